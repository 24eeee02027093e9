//! The status of a wrapper, as types of the provider.

use std::{fmt, time::Duration};

use grit_proto::{SIGNAL_DRAIN, runner_wrapper as upstream, wrapper_v1 as v1};
use time::OffsetDateTime;

use super::{
    drain_info::{CancelledDrain, DrainInfo, DrainOutcome},
    level::Level,
    limits,
};
use crate::duration::human;

#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Reported by all wrappers.
    pub report: StatusReport,
    /// Reported only by grit-wrapper.
    pub detail: Option<Box<Detail>>,
}

/// The status of grit-wrapper. An absent value is unknown, not zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    pub wrapper_version: String,
    /// Identifies the runner's process; empty without one, and from an older wrapper.
    pub process: String,
    /// The boot of the host; `process` begins with it.
    pub boot_id: String,
    pub level: Level,
    /// The maximum level; `None` before the wrapper's first probe.
    pub level_max: Option<Level>,
    /// Why the next level is not reached.
    pub reasons: Vec<String>,
    pub runner_version: Option<String>,
    pub pid: Option<u32>,
    pub started_at: Option<OffsetDateTime>,
    /// The number of running jobs.
    pub jobs: Option<u32>,
    /// The maximum number of running jobs.
    pub concurrent: Option<u64>,
    /// Age and stage of the oldest job.
    pub oldest_job: Option<(Duration, String)>,
    /// The drain in progress, or the last one.
    pub drain: Option<DrainInfo>,
    /// The id of the drain that stopped the previous runner, if another one was started after it.
    pub last_drain: Option<String>,
    /// The drain that was cancelled last, until the wrapper accepts another one.
    pub cancelled: Option<CancelledDrain>,
    /// The wrapper exits when its runner has exited.
    pub shutting_down: bool,
    pub evidence: RunnerEvidence,
    /// Where the runner is registered; empty if the wrapper does not know it.
    pub registrations: Vec<Registration>,
    /// The exit of the last runner process, if none is running.
    pub exit: Option<RunnerExit>,
}

/// The sections of a runner at one GitLab instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Scheme, host and port, as the host reports it.
    pub url: String,
    /// Of this runner manager. Letters, digits, `_` and `-`.
    pub system_id: Option<String>,
    pub runner_ids: Vec<u64>,
    /// The number of sections that are not in `runner_ids`.
    pub sections_without_id: u32,
}

/// What the runner's counters and its configuration show beyond the health level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunnerEvidence {
    /// Jobs that have ended since the start of the runner process.
    pub jobs_succeeded: Option<u64>,
    pub jobs_failed: Option<u64>,
    /// The number of sections whose token GitLab rejects.
    pub rejected_sections: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerExit {
    pub how: ExitKind,
    /// The wrapper killed it because it did not exit in time.
    pub killed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    Code(i32),
    Signal(i32),
    /// There was no process.
    NeverStarted,
    Unknown,
}

impl fmt::Display for ExitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NeverStarted => f.write_str("never started"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Snapshot {
    /// The wrapper's program and version; `upstream` for upstream's, which reports none.
    pub fn wrapper(&self) -> String {
        self.detail.as_deref().map_or_else(
            || "upstream".to_owned(),
            |detail| format!("grit-wrapper {}", detail.wrapper_version),
        )
    }

    /// The drain in progress, or the last one, if the wrapper reports it.
    pub fn drain(&self) -> Option<&DrainInfo> {
        self.detail.as_deref()?.drain.as_ref()
    }

    /// The drain that was cancelled last, until the wrapper accepts another one. Upstream's wrapper cancels no drain.
    pub fn cancelled(&self) -> Option<&CancelledDrain> {
        self.detail.as_deref()?.cancelled.as_ref()
    }

    /// Whether the wrapper exits, and no client requested that its runner stays stopped.
    pub fn exits_for_itself(&self) -> bool {
        self.detail.as_deref().is_some_and(|detail| detail.shutting_down && !detail.is_drained_by_client())
    }

    /// Whether the shutdown in progress can no longer be cancelled: SIGQUIT was sent. Upstream's wrapper does not report it.
    pub fn is_shutdown_final(&self) -> bool {
        self.drain().is_none_or(|drain| drain.signalled)
    }

    /// What the shutdown in progress waits for before the signal to the runner.
    pub fn signal_waits_for(&self) -> Option<&str> {
        Some(self.drain()?.waits_for.as_str()).filter(|clause| !clause.is_empty())
    }

    /// Problems of the shutdown in progress, such as a suspended process: in that state the first reason is the shutdown.
    pub fn shutdown_problems(&self) -> Option<String> {
        let detail = self.detail.as_deref().filter(|_| self.report.status == RunnerStatus::InShutdown)?;
        let problems = detail.reasons.get(1..).unwrap_or_default();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Whether all slots of the runner have a job: it sends no job request.
    pub fn has_no_free_slot(&self) -> bool {
        let slots = self.detail.as_deref().and_then(|detail| Some((detail.jobs?, detail.concurrent?)));
        slots.is_some_and(|(jobs, slots)| slots > 0 && u64::from(jobs) >= slots)
    }

    /// The number of running jobs and the age of the oldest job, if known: `12 jobs left, oldest 2h10m (step_script)`.
    pub fn jobs_left(&self) -> Option<String> {
        let detail = self.detail.as_deref()?;
        let jobs = detail.jobs?;
        let noun = if jobs == 1 { "job" } else { "jobs" };
        Some(match &detail.oldest_job {
            Some((age, stage)) if stage.is_empty() => format!("{jobs} {noun} left, oldest {}", human(*age)),
            Some((age, stage)) => format!("{jobs} {noun} left, oldest {} ({stage})", human(*age)),
            None => format!("{jobs} {noun} left"),
        })
    }
}

impl Detail {
    /// Whether a client requested the current or last drain. After such a drain, the next wrapper starts a runner only at a client's request.
    pub fn is_drained_by_client(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.id != SIGNAL_DRAIN)
    }

    /// Why the exit was not clean, as the end of a sentence; none if it was. `forceful`: the drain was to abort the jobs.
    pub fn bad_end(&self, forceful: bool) -> Option<String> {
        let exit = self.exit?;
        let drain = self.drain.as_ref();
        let code = match exit.how {
            ExitKind::Code(code) => format!("the exit code was {code}"),
            ExitKind::Signal(signal) => format!("the runner was killed by signal {signal}"),
            // Beside a runner that had outlived its command.
            ExitKind::NeverStarted
                if drain.and_then(|drain| drain.outcome) == Some(DrainOutcome::Unknown) =>
            {
                "it is unknown how the runner of the previous wrapper exited".to_owned()
            }
            ExitKind::NeverStarted => return None,
            ExitKind::Unknown => {
                "the exit status is unknown, because another wrapper had started the runner".to_owned()
            }
        };
        let outcome = drain.and_then(|drain| drain.outcome).unwrap_or_else(|| match exit.how {
            _ if exit.killed => DrainOutcome::Killed,
            ExitKind::Code(0) if drain.is_some_and(|drain| drain.forceful) => DrainOutcome::JobsAborted,
            ExitKind::Code(0) => DrainOutcome::Clean,
            ExitKind::Unknown => DrainOutcome::Unknown,
            ExitKind::Code(_) | ExitKind::Signal(_) | ExitKind::NeverStarted => DrainOutcome::Failed,
        });
        let failed = !matches!(exit.how, ExitKind::Code(0) | ExitKind::NeverStarted | ExitKind::Unknown);
        Some(match outcome {
            DrainOutcome::NoRunner if failed => {
                format!("the runner had exited before the drain: {code}; jobs may have been aborted")
            }
            DrainOutcome::Clean | DrainOutcome::NoRunner => return None,
            DrainOutcome::JobsAborted if forceful => return None,
            DrainOutcome::JobsAborted => {
                "the drain became forceful on the host: the remaining jobs were aborted".to_owned()
            }
            DrainOutcome::ResultsLost => {
                "the runner may have given up reporting the end of at least one job to GitLab: the result of such a job is lost"
                    .to_owned()
            }
            DrainOutcome::OpenRequests => {
                let open = drain.and_then(|drain| drain.open_requests).unwrap_or(1);
                let requests = if open == 1 { "1 job request was" } else { &format!("{open} job requests were") };
                format!(
                    "{requests} open when the runner received SIGQUIT. If GitLab had assigned a job to such a request, this job never ran"
                )
            }
            DrainOutcome::Killed => {
                "the runner did not exit in time after a forceful stop, and the wrapper killed the runner: its jobs were lost"
                    .to_owned()
            }
            DrainOutcome::Unknown if exit.how == ExitKind::Code(0) => {
                "whether job requests were open when the runner received SIGQUIT could not be read. If GitLab had assigned a job to such a \
                 request, this job never ran"
                    .to_owned()
            }
            DrainOutcome::Failed | DrainOutcome::Unknown => format!("{code}; jobs may have been aborted"),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    pub status: RunnerStatus,
    /// Why the process exited or could not be started; empty if there is no reason.
    pub failure_reason: String,
}

impl StatusReport {
    pub(super) fn new(status: i32, failure_reason: String) -> Self {
        Self { status: status.into(), failure_reason: limits::failure_reason(failure_reason) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunnerStatus {
    Running,
    /// A shutdown is in progress.
    InShutdown,
    /// The process has exited.
    Stopped,
    /// The status is unknown (0), or this version does not know the number. It must never be treated as stopped.
    Unknown(i32),
}

impl From<i32> for RunnerStatus {
    fn from(number: i32) -> Self {
        match upstream::Status::try_from(number) {
            Ok(upstream::Status::Running) => Self::Running,
            Ok(upstream::Status::InShutdown) => Self::InShutdown,
            Ok(upstream::Status::Stopped) => Self::Stopped,
            Ok(upstream::Status::Unknown) | Err(_) => Self::Unknown(number),
        }
    }
}

impl fmt::Display for RunnerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::InShutdown => f.write_str("draining"),
            Self::Stopped => f.write_str("stopped"),
            Self::Unknown(0) => f.write_str("unknown"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

impl From<v1::Status> for Snapshot {
    fn from(status: v1::Status) -> Self {
        let status = limits::status(status);
        let runner_status = match status.state() {
            v1::State::Running => RunnerStatus::Running,
            v1::State::Draining | v1::State::Terminating => RunnerStatus::InShutdown,
            v1::State::Stopped | v1::State::Failed => RunnerStatus::Stopped,
            // A runner in backoff has exited, but will be restarted.
            v1::State::Unspecified | v1::State::Idle | v1::State::Starting | v1::State::Backoff => {
                RunnerStatus::Unknown(0)
            }
        };
        let health = status.health.unwrap_or_default();
        let level_max = (health.level_max() != v1::Level::Unspecified).then(|| health.level_max().into());
        let drain = status.drain.map(|drain| DrainInfo {
            forceful: drain.mode() == v1::Mode::Forceful,
            signalled: drain.signalled,
            deadline: drain.deadline.and_then(|at| OffsetDateTime::from_unix_timestamp(at.seconds).ok()),
            until_deadline: drain.until_deadline.and_then(|left| left.try_into().ok()),
            outcome: DrainOutcome::of(drain.outcome()),
            open_requests: drain.open_requests,
            waits_for: drain.waits_for,
            id: drain.id,
            reason: drain.reason,
            requested_by: drain.requested_by,
        });
        let exit = status.exit.map(RunnerExit::from);
        let evidence = RunnerEvidence {
            jobs_succeeded: health.jobs_succeeded,
            jobs_failed: health.jobs_failed,
            rejected_sections: health.rejected_sections.unwrap_or_default(),
        };
        let registrations = status.registrations.into_iter().map(|registration| Registration {
            url: registration.url,
            system_id: registration.system_id,
            runner_ids: registration.runner_ids,
            sections_without_id: registration.sections_without_id,
        });
        let detail = Detail {
            wrapper_version: status.wrapper_version,
            process: status.process,
            boot_id: status.boot_id,
            level: health.level().into(),
            level_max,
            reasons: health.reasons,
            runner_version: health.runner_version,
            pid: status.pid,
            started_at: status.started_at.and_then(|at| OffsetDateTime::from_unix_timestamp(at.seconds).ok()),
            jobs: health.jobs,
            concurrent: health.concurrent,
            oldest_job: health
                .oldest_job
                .map(|job| (job.age.and_then(|age| age.try_into().ok()).unwrap_or_default(), job.stage)),
            drain,
            last_drain: status.last_drain.map(|drain| drain.id),
            cancelled: status.cancelled_drain.map(CancelledDrain::from),
            shutting_down: status.shutting_down,
            evidence,
            registrations: registrations.collect(),
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

#[cfg(test)]
mod tests;
