//! `grit-wrapper run`, step by step: bind, supervise, serve, drain, exit.

mod addresses;
mod error;

use std::{env, ffi::OsString, path::Path, process::ExitCode, sync::Arc, time::Duration};

use futures::stream::FuturesUnordered;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::addresses::StateFile;
pub use self::error::RunError;
use super::{
    callback::CallbackSender,
    control::Control,
    counters::Counters,
    grpc::{self, Authorizer, Services, Upstream, WrapperV1},
    health::{Health, Level, Prober},
    http::HttpServer,
    listen::{InheritedSockets, Listener},
    settings::Settings,
    signals::Signals,
    systemd::Notifier,
    tasks::{TaskFailed, Tasks},
};
use crate::supervise::log_key as key;
use crate::supervise::{
    End, Outcome, Task,
    journal::Journal,
    process::{CommandLine, Spawner, cgroup, orphans},
    record::Saved,
};

/// Runs the wrapper until it shuts down, and returns its exit code, which depends on the end of the runner.
/// After an error nothing was started, except after [`RunError::Task`]. While a runner is adopted, the wrapper also runs without an
/// executable command: the runner must not be without supervision.
pub fn run(settings: &Settings) -> Result<ExitCode, RunError> {
    // The sockets of systemd have fixed descriptors, so that this comes before any other file is opened.
    let passed = InheritedSockets::from_env()?;
    // One thread is enough for a few messages a minute, and costs the least memory.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Prepare)?;
    let result = runtime.block_on(supervise(settings, passed));
    // Calls that hang in a file system or in the name service are not waited for.
    runtime.shutdown_background();
    result.map(ExitCode::from)
}

async fn supervise(settings: &Settings, passed: InheritedSockets) -> Result<u8, RunError> {
    let command = CommandLine::new(settings.command.clone(), env::var_os("PATH"))?;
    // A parent that ignores SIGCHLD passes that on, and the kernel would then discard the runner's exit status.
    let child_ended = signal(SignalKind::child()).map_err(RunError::Prepare)?;
    // With a handler, a file size limit (LimitFSIZE) is an error like a full disk. The runner does not inherit the handler.
    let _file_size =
        signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(RunError::Prepare)?;
    // The kernel gives the processes of a runner that has exited to this process, which can then find and reap them.
    if let Err(error) = orphans::adopt() {
        warn!({ key::ERROR } = %error, "cannot become the parent of the runner's orphaned processes");
    }
    let signals = Signals::new().map_err(RunError::Prepare)?;
    let notifier = Notifier::from_env().map_err(RunError::Prepare)?;
    let (publish_health, health) = watch::channel(Health::default());
    let opened = addresses::open(settings, passed, &publish_health).await?;

    let counters = Arc::new(Counters::default());
    let callbacks =
        CallbackSender::new(runtime::Handle::current(), Arc::clone(&counters), settings.callbacks.clone());
    let state_file = opened.state.as_ref().map(|state| state.path.as_path());
    let spawner = spawner(settings, command.clone(), state_file);
    let (task, supervisor) = Task::new(settings.policy.clone(), spawner, callbacks);
    let mut task = task
        .read_log(Journal::of_stderr(env::var("JOURNAL_STREAM").ok().as_deref()));
    if let Some(StateFile { path, record, saved }) = opened.state {
        task = task.save_to(record);
        if let Some(saved) = saved.or_else(|| Saved::of_cgroup(&path)) {
            let found = saved.find(&settings.policy, &command).await.map_err(RunError::Adopt)?;
            task = task.resume(found);
        }
    }
    let is_adopted = supervisor.now().state.child().is_some();
    match command.program().await {
        Ok(_) => {}
        Err(error) if is_adopted => error!(
            { key::ERROR } = format!("{:#}", anyhow::Error::new(error)),
            "the adopted runner is supervised, but cannot be restarted"
        ),
        Err(error) => return Err(error.into()),
    }
    let supervision = tokio::spawn(task.run());
    let mut tasks = Tasks::default();
    tasks.spawn(SIGNALS, signals.forward(supervisor.clone(), settings.drain_timeout));
    tasks.spawn(ORPHANS, orphans::collect(child_ended));
    let prober = Prober::new(settings.health.clone());
    tasks.spawn(REQUEST_GAP, prober.request_gap().run(supervisor.clone()));
    tasks.spawn(PROBER, prober.clone().run(supervisor.clone(), publish_health));
    let authorizer = Authorizer::new(settings.access.clone(), Arc::clone(&counters));
    let control = Control::new(supervisor.clone(), health, prober, settings.callbacks.clone());
    if let Some(notifier) = notifier {
        // If an adopted runner had to reach a level, systemd would stop the wrapper at its start timeout, and so drain a runner with jobs.
        let ready_when = if is_adopted { Level::None } else { settings.ready_when };
        let notifier = notifier.run(control.clone(), supervisor.clone(), ready_when);
        tasks.spawn(NOTIFIER, notifier);
    }
    // The first clients see a runner that is being started. When the start takes long, they are served before there is a child, as by the
    // upstream wrapper, and their requests are kept.
    if let Ok(Err(error)) = timeout(BOOT_LIMIT, supervisor.boot()).await {
        error!({ key::ERROR } = %error, "cannot request the start of the runner");
    }
    if let (Some(http), Some(listener)) = (&settings.http, opened.http) {
        let server = HttpServer {
            control: control.clone(),
            access: settings.access.clone(),
            settings: Arc::new(http.clone()),
            counters: Arc::clone(&counters),
        };
        tasks.spawn(HTTP, async {
            if let Listener::Tcp(listener) = listener.await {
                server.serve(listener).await;
            }
        });
    }
    let upstream = Upstream::new(control.clone(), authorizer.clone());
    let services = Services { upstream, v1: Some(WrapperV1::new(control, authorizer)), counters };
    let stop_serving = CancellationToken::new();
    let listeners: FuturesUnordered<_> = opened.grpc.into_iter().collect();
    tasks.spawn_fallible(GRPC, grpc::serve(listeners, services, stop_serving.clone()));
    let outcome = outcome(supervision, &mut tasks).await?;

    // The notifier reports the end of the runner, and then has nothing to watch.
    tasks.end_of(NOTIFIER).await?;
    let end = match outcome {
        Outcome::Ended(end) => end,
        // The next wrapper sends the callbacks, and takes over the sockets.
        Outcome::Detached => {
            info!("wrapper exiting; the runner keeps running");
            return Ok(0);
        }
    };
    stop_serving.cancel();
    if let Err(error) = tasks.end_of(GRPC).await {
        error!({ key::ERROR } = %error, "gRPC server failed");
    }
    info!({ key::EXIT_CODE } = exit_code(&end), { key::REASON } = end.failure(), "wrapper exiting");
    Ok(exit_code(&end))
}

/// How the runner is started: it waits until the state file, if there is one, has its identity.
fn spawner(settings: &Settings, command: CommandLine, state_file: Option<&Path>) -> Spawner {
    let address = settings.runner_listen_address.iter();
    let address = address.map(|address| ("LISTEN_ADDRESS", OsString::from(address)));
    Spawner {
        command,
        env: address.collect(),
        not_inherited: &OF_SYSTEMD,
        with_barrier: true,
        cgroups: Some(cgroup::names_for(state_file)),
    }
}

/// The variables of systemd for the wrapper itself.
const OF_SYSTEMD: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// How long clients wait for the first start.
const BOOT_LIMIT: Duration = Duration::from_secs(1);

/// The names of the tasks.
const SUPERVISOR: &str = "supervisor";
const SIGNALS: &str = "signals";
const PROBER: &str = "health prober";
const REQUEST_GAP: &str = "request gap";
const NOTIFIER: &str = "systemd notifier";
const HTTP: &str = "HTTP server";
const GRPC: &str = "gRPC server";
const ORPHANS: &str = "orphan reaper";

/// Waits for the end of the supervisor, or for the failure of another task.
async fn outcome(supervision: JoinHandle<Outcome>, tasks: &mut Tasks) -> Result<Outcome, TaskFailed> {
    tokio::select! {
        biased;
        // This comes first, because the prober and the notifier end with the supervisor.
        outcome = supervision => outcome.map_err(|error| TaskFailed::new(SUPERVISOR, error)),
        failed = tasks.failed() => Err(failed),
    }
}

fn exit_code(end: &End) -> u8 {
    match end {
        End::NeverStarted => 0,
        // There was not enough memory, disk or process slots, or the command of an adopted runner does not exist.
        End::SpawnFailed(_) => RunError::FAILED,
        End::Exited { exit, .. } => exit.shell_code(),
    }
}

#[cfg(test)]
mod tests;
