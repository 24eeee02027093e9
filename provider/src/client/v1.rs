//! Our own wrapper API, `grit.wrapper.v1`, where the wrapper has it; upstream's where it does not.

use grit_proto::wrapper_v1::{self as v1, wrapper_client::WrapperClient as Grpc};
use std::{fmt, future::pending, sync::atomic::Ordering, time::Duration};
use time::OffsetDateTime;

use super::{
    ClientError, RunnerStatus, ShutdownCallback, StatusReport, WrapperClient, channel::Channel, origin,
};

/// What is known of a runner at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What every wrapper tells.
    pub report: StatusReport,
    /// What only our own wrapper tells.
    pub detail: Option<Box<Detail>>,
}

/// What our own wrapper tells beyond upstream's status. Absent is unknown, never zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    pub wrapper_version: String,
    /// How far up the ladder of health the runner is.
    pub level: Level,
    /// The highest rung on which it can be seen; `None` before the wrapper's first probe.
    pub goal: Option<Level>,
    /// Why the next rung is not reached, in the wrapper's words.
    pub reasons: Vec<String>,
    pub runner_version: Option<String>,
    pub pid: Option<u32>,
    pub started_at: Option<OffsetDateTime>,
    /// Jobs that run now.
    pub jobs: Option<u32>,
    /// Age and stage of the job that has run longest.
    pub oldest_job: Option<(Duration, String)>,
    /// Who drains it, and why.
    pub drain: Option<DrainInfo>,
    /// How the last runner ended, while none runs.
    pub exit: Option<RunnerExit>,
}

/// How a runner's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerExit {
    pub how: ExitKind,
    /// The wrapper killed it, because it did not end in time.
    pub killed: bool,
}

/// What the kernel told of the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    Code(i32),
    Signal(i32),
    /// There was no process.
    NeverStarted,
    Unknown,
}

impl Detail {
    /// Why the end of the runner is not a clean one, as the end of a sentence; none when it is. `forceful`: the jobs were to be aborted.
    pub fn bad_end(&self, forceful: bool) -> Option<String> {
        let exit = self.exit?;
        let code = match exit.how {
            ExitKind::Code(code) => format!("its exit code was {code}"),
            ExitKind::Signal(signal) => format!("it was killed by signal {signal}"),
            ExitKind::NeverStarted => return None,
            ExitKind::Unknown => {
                "its exit status is unknown because a later wrapper had adopted it".to_owned()
            }
        };
        let drain = self.drain.as_ref();
        let outcome = drain.and_then(|drain| drain.outcome).unwrap_or_else(|| match exit.how {
            _ if exit.killed => DrainOutcome::Killed,
            ExitKind::Code(0) if drain.is_some_and(|drain| drain.forceful) => DrainOutcome::JobsAborted,
            ExitKind::Code(0) => DrainOutcome::Clean,
            ExitKind::Unknown => DrainOutcome::Unknown,
            ExitKind::Code(_) | ExitKind::Signal(_) | ExitKind::NeverStarted => DrainOutcome::Failed,
        });
        Some(match outcome {
            DrainOutcome::Clean | DrainOutcome::NoRunner => return None,
            DrainOutcome::JobsAborted if forceful => return None,
            DrainOutcome::JobsAborted => {
                "its drain became forceful on the host: its remaining jobs were aborted".to_owned()
            }
            DrainOutcome::Killed => {
                "it did not exit in time after a forceful stop, and the wrapper killed it: its jobs were lost"
                    .to_owned()
            }
            DrainOutcome::Failed | DrainOutcome::Unknown => format!("{code}; its jobs may have been aborted"),
        })
    }
}

/// A drain that is under way, or that ended the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainInfo {
    pub id: String,
    pub reason: String,
    pub forceful: bool,
    /// What it came to, once it is over.
    pub outcome: Option<DrainOutcome>,
}

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// The runner finished its jobs.
    Clean,
    JobsAborted,
    Killed,
    Failed,
    /// The exit status of the runner is not known.
    Unknown,
    NoRunner,
}

impl DrainOutcome {
    fn of(outcome: v1::DrainOutcome) -> Option<Self> {
        match outcome {
            v1::DrainOutcome::Unspecified => None,
            v1::DrainOutcome::Clean => Some(Self::Clean),
            v1::DrainOutcome::JobsAborted => Some(Self::JobsAborted),
            v1::DrainOutcome::Killed => Some(Self::Killed),
            v1::DrainOutcome::Failed => Some(Self::Failed),
            v1::DrainOutcome::Unknown => Some(Self::Unknown),
            v1::DrainOutcome::NoRunner => Some(Self::NoRunner),
        }
    }
}

/// A rung of the ladder of health. Each includes those below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    Process,
    Ready,
    Polling,
}

impl Level {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request to shut a runner down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainRequest {
    /// The same id again is the same drain. Upstream's wrapper does not get it, nor the reason and the job.
    pub id: String,
    pub reason: String,
    pub forceful: bool,
    /// Upstream's wrapper takes it with a graceful shutdown only.
    pub callback: Option<ShutdownCallback>,
    /// `CI_JOB_URL` of the CI job that we run in: the wrapper refuses to drain a runner from one of its own jobs, which would wait for
    /// itself for ever.
    pub job_url: String,
}

/// What became of a request to start a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Requested,
    /// Upstream's wrapper cannot.
    NotSupported,
}

/// Which API the wrapper at the end of the tunnel speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    NotKnown = 0,
    Upstream = 1,
    Own = 2,
}

impl WrapperClient {
    /// What is true of the runner now, as well as this wrapper can tell.
    pub async fn look(&self) -> Result<Look, ClientError> {
        if self.kind() != Kind::Upstream {
            let call = |channel| async move { grpc(channel).get_status(v1::GetStatusRequest {}).await };
            match self.own("GetStatus", call).await? {
                Some(status) => return Ok(status.into()),
                None => {
                    tracing::debug!(
                        manager = self.target().manager,
                        "the wrapper supports only upstream's API"
                    );
                }
            }
        }
        Ok(Look { report: self.check_status().await?, detail: None })
    }

    /// Returns when the wrapper says that something changed. With a wrapper that does not say, and while it cannot be reached, never:
    /// look from time to time as well.
    ///
    /// May be dropped at any moment; the next call goes on listening. The first call after a connection returns at once.
    pub async fn changed(&self) {
        if self.kind() != Kind::Own {
            return pending().await;
        }
        let mut watch = self.shared.watch.lock().await;
        if watch.is_none() {
            let call = |channel| async move { grpc(channel).watch(v1::WatchRequest {}).await };
            *watch = self.own("Watch", call).await.ok().flatten();
        }
        let heard = match &mut *watch {
            Some(stream) => matches!(stream.message().await, Ok(Some(_))),
            None => false,
        };
        if !heard {
            // What is wrong shows at the next look, which can say it.
            *watch = None;
            drop(watch);
            pending::<()>().await;
        }
    }

    /// Asks for a shutdown; returns when the wrapper has taken the order, long before the end. Asking again is harmless.
    pub async fn drain(&self, request: &DrainRequest) -> Result<Look, ClientError> {
        if self.kind() != Kind::Upstream {
            let wire = v1::DrainRequest::from(request);
            let call = |channel| async move { grpc(channel).drain(wire).await };
            if let Some(v1::DrainResponse { status: Some(status), .. }) = self.own("Drain", call).await? {
                return Ok(status.into());
            }
        }
        let report = if request.forceful {
            self.init_forceful_shutdown().await?
        } else {
            self.init_graceful_shutdown(request.callback.clone()).await?
        };
        Ok(Look { report, detail: None })
    }

    /// Starts a runner that has ended.
    pub async fn start(&self) -> Result<Start, ClientError> {
        if self.kind() == Kind::Upstream {
            return Ok(Start::NotSupported);
        }
        let call = |channel| async move { grpc(channel).start(v1::StartRequest {}).await };
        Ok(self.own("Start", call).await?.map_or(Start::NotSupported, |_| Start::Requested))
    }

    /// A call of our own service; `None`, and remembered as such, when the wrapper does not have it.
    async fn own<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<Option<T>, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        match self.call(method, call).await {
            Ok(answer) => {
                self.shared.kind.store(Kind::Own as u8, Ordering::Relaxed);
                Ok(Some(answer))
            }
            Err(ClientError::Status { code: tonic::Code::Unimplemented, .. }) => {
                self.shared.kind.store(Kind::Upstream as u8, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What was found out over this tunnel; the wrapper behind the next one may be another.
    fn kind(&self) -> Kind {
        match self.shared.kind.load(Ordering::Relaxed) {
            1 => Kind::Upstream,
            2 => Kind::Own,
            _ => Kind::NotKnown,
        }
    }
}

fn grpc(channel: Channel) -> Grpc<Channel> {
    Grpc::with_origin(channel, origin())
}

impl From<&DrainRequest> for v1::DrainRequest {
    fn from(request: &DrainRequest) -> Self {
        let mode = if request.forceful { v1::Mode::Forceful } else { v1::Mode::Graceful };
        let callback = request
            .callback
            .clone()
            .map(|ShutdownCallback { url, method, headers }| v1::Callback { url, method, headers });
        Self {
            id: request.id.clone(),
            mode: mode.into(),
            reason: request.reason.clone(),
            deadline: None,
            callback,
            job_url: request.job_url.clone(),
        }
    }
}

impl From<v1::Status> for Look {
    fn from(status: v1::Status) -> Self {
        let runner_status = match status.state() {
            v1::State::Running => RunnerStatus::Running,
            v1::State::Draining | v1::State::Forcing => RunnerStatus::InShutdown,
            v1::State::Stopped => RunnerStatus::Stopped,
            // A runner that waits for its restart has ended, and will not stay so.
            v1::State::Unspecified | v1::State::Idle | v1::State::Starting | v1::State::Backoff => {
                RunnerStatus::Unknown(0)
            }
        };
        let health = status.health.unwrap_or_default();
        let goal = (health.goal() != v1::Level::Unspecified).then(|| health.goal().into());
        let drain = status.drain.map(|drain| DrainInfo {
            forceful: drain.mode() == v1::Mode::Forceful,
            outcome: DrainOutcome::of(drain.outcome()),
            id: drain.id,
            reason: drain.reason,
        });
        let exit = status.exit.map(RunnerExit::from);
        let detail = Detail {
            wrapper_version: status.wrapper_version,
            level: health.level().into(),
            goal,
            reasons: health.reasons,
            runner_version: health.runner_version,
            pid: status.pid,
            started_at: status.started_at.and_then(|at| OffsetDateTime::from_unix_timestamp(at.seconds).ok()),
            jobs: health.jobs,
            oldest_job: health
                .oldest_job
                .map(|job| (job.age.and_then(|age| age.try_into().ok()).unwrap_or_default(), job.stage)),
            drain,
            exit,
        };
        let report = StatusReport { status: runner_status, failure_reason: status.failure_reason };
        Self { report, detail: Some(Box::new(detail)) }
    }
}

impl From<v1::Exit> for RunnerExit {
    fn from(exit: v1::Exit) -> Self {
        let how = match exit.how {
            Some(v1::exit::How::Code(code)) => ExitKind::Code(code),
            Some(v1::exit::How::Signal(signal)) => ExitKind::Signal(signal),
            Some(v1::exit::How::NeverStarted(_) | v1::exit::How::SpawnError(_)) => ExitKind::NeverStarted,
            Some(v1::exit::How::Unknown(_)) | None => ExitKind::Unknown,
        };
        Self { how, killed: exit.killed }
    }
}

impl From<v1::Level> for Level {
    fn from(level: v1::Level) -> Self {
        match level {
            v1::Level::Unspecified | v1::Level::None => Self::None,
            v1::Level::Process => Self::Process,
            v1::Level::Ready => Self::Ready,
            v1::Level::Polling => Self::Polling,
        }
    }
}
