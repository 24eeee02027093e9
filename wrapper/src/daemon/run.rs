//! The story of one wrapper: bind, supervise, serve, drain, say how it ended.

use std::{process::ExitCode, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    net::TcpListener,
    runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    callback::Caller,
    counters::Counters,
    grpc::{self, Guard, Own, Services, Upstream},
    health::{Health, Prober},
    http::Web,
    listen::{self, ListenError, Listener, Passed, PassedError},
    signals::Signals,
    systemd::Notifier,
    tasks::{Broken, Parts},
};
use crate::{
    cli::args::Run,
    supervise::{
        End, Handle, Outcome, Task,
        process::{self, CommandError, CommandLine, orphans},
        state_file::{Store, StoreError},
    },
};

/// Why a wrapper could not do its work.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("cannot run the command")]
    Command(#[from] CommandError),
    #[error("{flag}")]
    Listen {
        flag: &'static str,
        #[source]
        source: ListenError,
    },
    #[error("invalid socket from systemd")]
    Passed(#[from] PassedError),
    #[error("cannot set up the wrapper process")]
    Prepare(#[source] std::io::Error),
    #[error("--http-listen: expected tcp://host:port")]
    HttpAddress,
    #[error("cannot open the state file")]
    Store(#[from] StoreError),
    #[error("cannot find out whether the previous wrapper's runner is still running")]
    Adopt(#[source] std::io::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl RunError {
    /// The wrapper itself failed, as with `docker run` or `timeout`.
    pub const FAILED: u8 = 125;
    /// The command is there but may not be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// There is no such command.
    pub const NOT_FOUND: u8 = 127;

    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(CommandError::NotExecutable(_) | CommandError::Format { .. }) => {
                Self::NOT_EXECUTABLE
            }
            Self::Command(CommandError::Missing(_) | CommandError::Empty) => Self::NOT_FOUND,
            Self::Listen { .. }
            | Self::Passed(_)
            | Self::HttpAddress
            | Self::Prepare(_)
            | Self::Store(_)
            | Self::Adopt(_)
            | Self::Broken(_) => Self::FAILED,
        }
    }
}

/// Runs the wrapper until it is told to end and the runner has ended; the code says how the runner did.
///
/// # Errors
///
/// Nothing was started when this fails, but for [`RunError::Broken`].
pub fn run(settings: &Run) -> Result<ExitCode, RunError> {
    // Before anything is opened whose number could be taken for a passed socket's.
    let passed = Passed::from_env()?;
    // One thread: the work is a few messages a minute, and each thread would cost memory for ever.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Prepare)?;
    let result = runtime.block_on(supervise(settings, passed));
    // What still runs are calls that hang in a file system or the name service. Nothing waits for them.
    runtime.shutdown_background();
    result.map(ExitCode::from)
}

async fn supervise(settings: &Run, mut passed: Passed) -> Result<u8, RunError> {
    let command = CommandLine::new(settings.command.clone())?;
    // A parent that ignores SIGCHLD hands that down, and the kernel would then throw our child's exit status away.
    let child_ended = signal(SignalKind::child()).map_err(RunError::Prepare)?;
    // A limit on the size of files (LimitFSIZE) is met as a full disk is, and does not end the wrapper. The runner does not inherit this.
    let _keep_writing =
        signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(RunError::Prepare)?;
    // A runner's jobs become ours when it ends, so that they can be found, and are collected when they end.
    if let Err(error) = orphans::adopt() {
        warn!(%error, "cannot become the parent of the runner's orphaned processes");
    }
    let signals = Signals::new().map_err(RunError::Prepare)?;
    let mut listeners = Vec::new();
    for address in &settings.grpc_listen {
        let opened = listen::open(address, &settings.listen_rules(), &mut passed).await;
        for listener in opened.map_err(|source| RunError::Listen { flag: "--grpc-listen", source })? {
            info!(%address, bound = %listener, "gRPC server listening");
            listeners.push(listener);
        }
    }
    // What nobody takes is closed, and not left to the runner.
    drop(passed);
    let state_file = settings.state_file(listeners.iter().find_map(Listener::path));
    let web = bind_http(settings).await?;

    let counters = Arc::new(Counters::default());
    let caller = Caller::new(runtime::Handle::current(), Arc::clone(&counters));
    let policy = settings.policy();
    let (mut task, supervisor) =
        Task::new(policy.clone(), settings.platform(command.clone(), state_file.is_some()), caller);
    task = task.count(Arc::clone(&counters));
    if let Some(path) = state_file {
        let (store, saved) = Store::open(&path).await?;
        task = task.keep(store).map_err(RunError::Prepare)?;
        if let Some(saved) = saved {
            let found = saved.find(&policy, &command).await.map_err(RunError::Adopt)?;
            task = task.resume(found.supervision, found.child, found.owed);
        }
    }
    warn_of_twins(&command, &supervisor);
    let supervision = tokio::spawn(task.run());
    let mut parts = Parts::default();
    parts.spawn(SIGNALS, signals.forward(supervisor.clone(), settings.drain_timeout));
    parts.spawn(ORPHANS, orphans::collect(child_ended));
    let prober = Prober::new(settings.probes());
    let (publish_health, health) = watch::channel(Health::default());
    parts.spawn(PROBER, prober.clone().run(supervisor.clone(), publish_health));
    let guard = Guard::new(settings.access(), Arc::clone(&counters));
    let own = Own::new(supervisor.clone(), health.clone(), prober, guard.clone());
    if let Some(notifier) = Notifier::from_env().map_err(RunError::Prepare)? {
        let ready = settings.ready_when.level();
        parts.spawn(NOTIFIER, notifier.run(own.clone(), supervisor.clone(), health, ready));
    }
    // What callers are told first is the runner that is being started. When its start takes long, they are served before there is a child,
    // as by upstream's wrapper, and what they ask for counts.
    if let Ok(Err(error)) = timeout(BOOT_LIMIT, supervisor.boot()).await {
        error!(%error, "cannot request the start of the runner");
    }
    if let Some(listener) = web {
        let web = Web {
            own: own.clone(),
            control: settings.http_allow_control,
            beyond_loopback: settings.insecure_http_beyond_loopback,
            counters: Arc::clone(&counters),
            labels: settings.label.clone(),
        };
        parts.spawn(HTTP, web.serve(listener));
    }
    let services = Services { upstream: Upstream::new(supervisor.clone(), guard), own: Some(own), counters };
    let stop_serving = CancellationToken::new();
    parts.spawn_fallible(GRPC, grpc::serve(listeners, services, stop_serving.clone()));
    let outcome = outcome(supervision, &mut parts).await?;

    // It tells the end, and then has nobody to watch.
    parts.end_of(NOTIFIER).await?;
    let end = match outcome {
        Outcome::Ended(end) => end,
        // The next wrapper makes the callbacks, and listens in our place.
        Outcome::Detached => {
            info!("wrapper exiting; the runner keeps running");
            return Ok(0);
        }
    };
    stop_serving.cancel();
    if let Err(error) = parts.end_of(GRPC).await {
        error!(%error, "gRPC server failed");
    }
    info!(exit_code = exit_code(&end), reason = end.failure(), "wrapper exiting");
    Ok(exit_code(&end))
}

/// A runner that nobody supervises, or that another wrapper does, and this one would take the same jobs, and a drain would end one of them.
fn warn_of_twins(command: &CommandLine, supervisor: &Handle) {
    let adopted = supervisor.now().state.child().map(|child| child.pid);
    for pid in process::running(command).into_iter().filter(|pid| Some(*pid) != adopted) {
        warn!(
            pid,
            "another process runs the same command. If both use the same configuration, both accept jobs, \
             and this wrapper drains only its runner. Stop the other process, or use separate \
             configurations"
        );
    }
}

/// How long callers wait for the first start.
const BOOT_LIMIT: Duration = Duration::from_secs(1);

/// The names of the parts.
const SUPERVISOR: &str = "supervisor";
const SIGNALS: &str = "signals";
const PROBER: &str = "health prober";
const NOTIFIER: &str = "systemd notifier";
const HTTP: &str = "HTTP server";
const GRPC: &str = "gRPC server failed";
const ORPHANS: &str = "orphan reaper";

/// Waits for the end of the supervisor's work, as long as no part breaks.
async fn outcome(supervision: JoinHandle<Outcome>, parts: &mut Parts) -> Result<Outcome, Broken> {
    tokio::select! {
        biased;
        // First: with the supervisor the prober and the notifier end as well.
        outcome = supervision => outcome.map_err(|error| Broken::new(SUPERVISOR, error)),
        broken = parts.broken() => Err(broken),
    }
}

async fn bind_http(settings: &Run) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = &settings.http_listen else { return Ok(None) };
    let bound = listen::bind(address, &settings.http_rules()).await;
    let listener = match bound.map_err(|source| RunError::Listen { flag: "--http-listen", source })? {
        Listener::Tcp(listener) => listener,
        Listener::Unix(_) => return Err(RunError::HttpAddress),
    };
    info!(%address, bound = listener.local_addr().map_err(RunError::Prepare)?.to_string(), "HTTP server listening");
    Ok(Some(listener))
}

fn exit_code(end: &End) -> u8 {
    match end {
        End::NeverStarted => 0,
        // That the command may be executed was seen before: no memory, no process or no disk was left.
        End::SpawnFailed(_) => RunError::FAILED,
        End::Exited { exit, .. } => exit.shell_code(),
    }
}
