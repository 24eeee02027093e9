//! The interface for the simulation of the workspace: the wrapper, on a host and with a runner that are not real.

use std::{fmt, io, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future, future::BoxFuture};
use grit_proto::wrapper_v1 as v1;
use hyper::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    daemon::{
        callback::AllowedUrls,
        control::Control,
        run::supervisor::{child_continues, unit_continues},
        serve::{
            grpc::{self, Api, Connection},
            requester::Requester,
        },
    },
    runner::{self, Access, ConfigError, Endpoint, GetError, Health, OnLine, Prober, Server},
    supervise::{
        self, End, Handle, Observer, Owner, Policy, Stop, Supervision, Surroundings, Task, Unit, UnitName,
        owner::{Child, Host, Processes},
        process::BootId,
        record::{Saved, StateFile},
    },
};

/// The configuration of a runner, as the wrapper reads it.
#[derive(Clone, Debug)]
pub struct RunnerConfig(Arc<runner::RunnerConfig>);

impl RunnerConfig {
    /// The content of `config.toml`, and of `.runner_system_id`.
    ///
    /// # Errors
    ///
    /// If the text is invalid.
    pub fn parse(config: &str, system_id: &str) -> Result<Self, String> {
        let config = runner::parse_config(config)?;
        let system_id = Some(system_id.to_owned());
        Ok(Self(Arc::new(runner::RunnerConfig { system_id, ..config })))
    }
}

/// A request to the runner's HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Ready,
    Metrics,
    /// The part of the metrics that concerns job requests.
    Requests,
    Jobs,
}

/// The runner, as the wrapper reads it.
pub trait SimulatedRunner: fmt::Debug + Send + Sync {
    fn config(&self) -> RunnerConfig;

    /// The response of the process with this PID, if it is the one that responds.
    fn read(&self, pid: u32, page: Page) -> BoxFuture<'_, Option<String>>;
}

/// The wrapper's access to it. `is_gap`: for the reads of job requests.
#[derive(Debug)]
struct Simulated {
    runner: Arc<dyn SimulatedRunner>,
    is_gap: bool,
}

impl Access for Simulated {
    fn note_process(&self, _: u32) -> BoxFuture<'_, ()> {
        future::ready(()).boxed()
    }

    fn config(&self) -> BoxFuture<'_, Result<Arc<runner::RunnerConfig>, ConfigError>> {
        future::ready(Ok(self.runner.config().0)).boxed()
    }

    fn endpoint(&self, config: Option<&runner::RunnerConfig>) -> Option<Endpoint> {
        Some(Endpoint(vec![config?.listen_address.clone()?]))
    }

    fn get<'a>(
        &'a self,
        server: &'a Server,
        path: &'a str,
    ) -> BoxFuture<'a, Result<(StatusCode, String), GetError>> {
        let page = if path == "/health/ready" { Page::Ready } else { Page::Jobs };
        let read = self.runner.read(server.runner.pid(), page);
        async move { Ok((StatusCode::OK, read.await.ok_or(GetError::Connect)?)) }.boxed()
    }

    fn lines<'a>(
        &'a self,
        server: &'a Server,
        _: &'a str,
        line: OnLine<'a>,
    ) -> BoxFuture<'a, Result<StatusCode, GetError>> {
        let page = if self.is_gap { Page::Requests } else { Page::Metrics };
        let read = self.runner.read(server.runner.pid(), page);
        async move {
            let page = read.await.ok_or(GetError::Connect)?;
            let _end = page.lines().try_for_each(|text| match line(text) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(()),
            });
            Ok(StatusCode::OK)
        }
        .boxed()
    }

    fn is_suspended(&self, _: u32) -> bool {
        false
    }

    fn launcher_fault(&self, _: u32) -> BoxFuture<'_, Option<String>> {
        future::ready(None).boxed()
    }

    fn another(&self) -> Arc<dyn Access> {
        Arc::new(Self { runner: Arc::clone(&self.runner), is_gap: true })
    }
}

/// What a wrapper has besides the owner of its runner.
pub struct Settings<S, F> {
    pub policy: Policy,
    pub boot: BootId,
    pub surroundings: S,
    /// The state file, and its content; `None`: it does not exist.
    pub file: F,
    pub saved: Option<Vec<u8>>,
    pub runner: Arc<dyn SimulatedRunner>,
    /// Is shown each transition of the supervisor, before its effects.
    pub observer: Observer,
}

/// A wrapper process, whose parts are polled by the simulation.
pub struct Wrapper {
    /// The supervisor, until it ends.
    pub supervisor: BoxFuture<'static, End>,
    /// All other tasks. It begins with this request, as `grit-wrapper run`.
    pub others: BoxFuture<'static, ()>,
    pub client: Client,
}

/// A client of a wrapper.
#[derive(Clone)]
pub struct Client {
    pub supervisor: Handle,
    health: watch::Receiver<Health>,
    connect: mpsc::UnboundedSender<Connection<Box<dyn Stream>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// The first request of a wrapper.
#[derive(Clone, Debug)]
pub enum First {
    Boot,
    /// Of a unit: none.
    Look,
    /// The command of `ExecStop=` drains the runner.
    Leave(Stop),
}

impl Wrapper {
    /// The wrapper as the parent of its runner.
    ///
    /// # Errors
    ///
    /// If the state file is invalid, or if it cannot be read whether the runner of an earlier wrapper runs.
    pub fn of_child<S: Surroundings, F: StateFile>(
        processes: impl Processes + Sync,
        first: First,
        settings: Settings<S, F>,
    ) -> io::Result<Self> {
        let saved = parsed(settings.saved.as_deref())?;
        let earlier = saved.as_ref().and_then(Saved::process);
        let owner = Child::with_earlier(processes, earlier)?;
        let supervision = saved.map(|saved| child_continues(saved, owner.is_running(), &settings.policy));
        Ok(Self::new(owner, supervision, first, settings))
    }

    /// The wrapper that is attached to the unit of this name.
    ///
    /// # Errors
    ///
    /// If the state file is invalid, or if it cannot be read whether the runner of an earlier wrapper runs.
    pub fn of_unit<S: Surroundings, F: StateFile>(
        host: impl Host,
        is_closed: bool,
        (name, folder): (UnitName, PathBuf),
        first: First,
        settings: Settings<S, F>,
    ) -> io::Result<Self> {
        let saved = parsed(settings.saved.as_deref())?;
        let earlier = saved.as_ref().map(Saved::process_of_unit);
        let supervision = unit_continues(saved, is_closed, &name, &settings.policy);
        let owner = Unit::new(host, name, folder, Box::new(|_| {}));
        let owner = match earlier {
            Some(process) => owner.after(process)?,
            None => owner,
        };
        Ok(Self::new(owner, supervision, first, settings))
    }

    fn new<S: Surroundings, F: StateFile>(
        owner: impl Owner,
        supervision: Option<Supervision>,
        first: First,
        settings: Settings<S, F>,
    ) -> Self {
        let by_unit = settings.policy.by_unit;
        let (task, supervisor) = Task::new(settings.policy, owner, settings.surroundings);
        let mut task = task.save_to(settings.file).show_steps(settings.observer);
        if let Some(supervision) = supervision {
            task = task.resume(supervision);
        }
        let (publish_health, health) = watch::channel(Health::default());
        let access = Arc::new(Simulated { runner: settings.runner, is_gap: false });
        let prober = Prober::over(access, runner::Settings::INTERVAL);
        let mut control =
            Control::new(supervisor.clone(), health.clone(), prober.clone(), AllowedUrls::default())
                .in_boot(settings.boot);
        if by_unit {
            control = control.of_unit(None);
        }
        let (handle, (connect, accepted)) = (supervisor.clone(), mpsc::unbounded_channel());
        let others = async move {
            let first = async {
                match first {
                    First::Boot => drop(handle.boot().await),
                    First::Look => {}
                    First::Leave(stop) => drop(handle.leave(stop).await),
                }
            };
            tokio::join!(biased; first, prober.read_config(&publish_health));
            let gap = prober.request_gap().run(handle.clone());
            let api = Api::new(control, Arc::default());
            let connections = UnboundedReceiverStream::new(accepted).map(Ok);
            let served = grpc::serve_connections(connections, api, CancellationToken::new());
            let _ended = tokio::join!(biased; gap, prober.run(handle, publish_health), served);
        };
        Self {
            supervisor: task.run().boxed(),
            others: others.boxed(),
            client: Client { supervisor, health, connect },
        }
    }
}

impl Client {
    /// Opens a connection to the gRPC server of the wrapper. Its requests are those of this user.
    pub fn connect(&self, stream: impl Stream, uid: u32) {
        let requester = Requester::Unix { uid, gid: uid, pid: None };
        let connection = Connection::of(Box::new(stream) as Box<dyn Stream>, requester);
        if let Some(connection) = connection {
            // After the end of the wrapper, it is closed.
            let _closed = self.connect.send(connection);
        }
    }

    /// The level of the last probe.
    pub fn level(&self) -> v1::Level {
        self.health.borrow().level
    }

    /// Returns after the next probe. `false`: there is none any more.
    pub async fn probed(&mut self) -> bool {
        self.health.changed().await.is_ok()
    }
}

/// The server's end of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

fn parsed(text: Option<&[u8]>) -> io::Result<Option<Saved>> {
    text.map(|text| Saved::parse(text).map_err(|error| io::Error::other(format!("{error:?}")))).transpose()
}

/// The state in a valid state file.
#[must_use]
pub fn saved(text: &[u8]) -> Option<Supervision> {
    Saved::parse(text).ok().map(|saved| saved.supervision)
}

/// The wall clock of this thread follows the clock of its runtime from now on.
pub fn use_virtual_wall_clock() {
    supervise::use_virtual_wall_clock();
}

/// The time of the kernel's monotonic clock at this instant.
#[must_use]
pub fn monotonic(at: Instant) -> Duration {
    supervise::monotonic(at)
}

/// Whether others than the wrapper may not start the runner in this state.
#[must_use]
pub fn is_held(supervision: &Supervision) -> bool {
    supervision.is_held()
}
