//! `grit-wrapper run`, step by step: bind, supervise, serve, drain, exit.

mod addresses;
mod error;

use std::{
    collections::BTreeSet, env, ffi::OsString, path::Path, process::ExitCode, sync::Arc, time::Duration,
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
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
    settings::Settings,
    tasks::{TaskFailed, Tasks},
};
use crate::supervise::{
    End, Handle, Task,
    journal::Journal,
    process::{CommandLine, Spawner, cgroup, orphans},
    record::Saved,
};
use crate::{
    daemon::{
        host::{
            signals::{self, Signals},
            systemd::Notifier,
            upgrade::Upgrade,
        },
        serve::{
            grpc::{self, Api},
            http::HttpServer,
            listen::{EarlierSockets, KeptSockets, Listener, LostSockets},
        },
    },
    runner::{Health, Level, Prober},
};

/// Runs the wrapper until it shuts down, and returns its exit code, which depends on the end of the runner.
/// After an error no runner was started, except after [`RunError::Task`]. While a runner is adopted, the wrapper also runs without an
/// executable command: the runner must not be without supervision.
pub fn run(settings: &Settings) -> Result<ExitCode, RunError> {
    // They have fixed descriptors, so that this comes before any other file is opened.
    let earlier = EarlierSockets::from_env().map_err(RunError::Prepare)?;
    // One thread is enough for a few messages a minute, and costs the least memory.
    let runtime = runtime::Builder::new_current_thread().enable_all().on_thread_start(signals::block).build();
    let runtime = runtime.map_err(RunError::Prepare)?;
    let result = runtime.block_on(supervise(settings, earlier));
    // Calls that hang in a file system or in the name service are not waited for.
    runtime.shutdown_background();
    result.map(ExitCode::from)
}

async fn supervise(settings: &Settings, earlier: EarlierSockets) -> Result<u8, RunError> {
    let command = CommandLine::new(settings.command.clone(), env::var_os("PATH"))?;
    let process = OwnProcess::prepare()?;
    let (publish_health, health) = watch::channel(Health::default());
    let kept = Arc::new(KeptSockets::default());
    let opened = addresses::open(settings, earlier, &kept, &LostSockets::new(publish_health.clone())).await?;
    let upgrade = Upgrade::new(Arc::downgrade(&kept)).map_err(RunError::Prepare)?;

    let counters = Arc::new(Counters::default());
    let (probes, listen_address) =
        settings.health.clone().with_listen_address(settings.runner_listen_address.clone()).await;
    let spawner = spawner(listen_address, command.clone(), opened.state.as_ref().map(|state| &*state.path));
    let (task, supervisor) = prepare_supervisor(settings, spawner, opened.state, &counters).await?;
    let is_adopted = supervisor.now().state.child().is_some();
    check_command(&command, is_adopted)?;
    let prober = Prober::new(probes);
    let control = Control::new(supervisor.clone(), health, prober.clone(), settings.callbacks.clone());

    let supervision = tokio::spawn(task.run());
    let mut tasks = Tasks::default();
    // If an adopted runner had to reach a level, systemd would stop the wrapper at its start timeout, and so drain a runner with jobs.
    let ready_when = if is_adopted { Level::None } else { settings.ready_when };
    process.start(&mut tasks, &control, &supervisor, upgrade, (settings.drain_timeout, ready_when));
    // The first probe of a runner can take seconds, and clients need the configuration after the runner's exit.
    tokio::join!(boot(&supervisor), prober.read_config(&publish_health));
    probe(&mut tasks, &prober, &supervisor, publish_health);
    serve_http(&mut tasks, &control, &counters, opened.http);
    let stop_serving = CancellationToken::new();
    let api = Api::new(control, counters);
    tasks.spawn_fallible(GRPC, grpc::serve(opened.grpc, opened.status, api, stop_serving.clone()));

    let end = end(supervision, &mut tasks).await?;
    leave(&end, tasks, kept, &stop_serving).await
}

/// What concerns the wrapper's own process: its children, its signals, and systemd.
struct OwnProcess {
    child_ended: Signal,
    earlier_children: BTreeSet<u32>,
    signals: Signals,
    notifier: Option<Notifier>,
}

impl OwnProcess {
    fn prepare() -> Result<Self, RunError> {
        // A parent that ignores SIGCHLD passes that on, and the kernel would then discard the runner's exit status.
        let child_ended = signal(SignalKind::child()).map_err(RunError::Prepare)?;
        // With a handler, a file size limit (LimitFSIZE) is an error like a full disk. The runner does not inherit the handler.
        drop(
            signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
                .map_err(RunError::Prepare)?,
        );
        // The kernel gives the processes of a runner that has exited to this process, which can then find and reap them.
        if let Err(error) = orphans::adopt() {
            warn!(%error, "cannot become the parent of the runner's orphaned processes");
        }
        let earlier_children = orphans::of_earlier_program();
        let signals = Signals::new().map_err(RunError::Prepare)?;
        let notifier = Notifier::from_env().map_err(RunError::Prepare)?;
        Ok(Self { child_ended, earlier_children, signals, notifier })
    }

    fn start(
        self,
        tasks: &mut Tasks,
        control: &Control,
        supervisor: &Handle,
        upgrade: Upgrade,
        (drain_timeout, ready_when): (Option<Duration>, Level),
    ) {
        tasks.spawn(SIGNALS, self.signals.forward(supervisor.clone(), drain_timeout, upgrade));
        tasks.spawn(ORPHANS, orphans::collect(self.child_ended, self.earlier_children));
        if let Some(notifier) = self.notifier {
            tasks.spawn(NOTIFIER, notifier.run(control.clone(), supervisor.clone(), ready_when));
        }
    }
}

/// The supervisor, with the runner of a previous wrapper if there is one.
async fn prepare_supervisor(
    settings: &Settings,
    spawner: Spawner,
    state: Option<StateFile>,
    counters: &Arc<Counters>,
) -> Result<(Task, Handle), RunError> {
    let runtime = runtime::Handle::current();
    let callbacks = CallbackSender::new(runtime, Arc::clone(counters), settings.callbacks.clone());
    let command = &spawner.command.clone();
    let (task, supervisor) = Task::new(settings.policy.clone(), spawner, callbacks);
    let mut task = task.read_log(Journal::of_stderr(env::var("JOURNAL_STREAM").ok().as_deref()));
    if let Some(StateFile { path, record, saved }) = state {
        task = task.save_to(record);
        if let Some(saved) = Saved::latest(saved, &path).await {
            let found = saved.find(&settings.policy, command).await.map_err(RunError::Adopt)?;
            task = task.resume(found);
        }
    }
    Ok((task, supervisor))
}

/// Fails for a command that cannot be executed, except while an adopted runner is running.
fn check_command(command: &CommandLine, is_adopted: bool) -> Result<(), RunError> {
    match command.program() {
        Ok(_) => Ok(()),
        Err(error) if is_adopted => {
            let error = format!("{:#}", anyhow::Error::new(error));
            error!(error, "the adopted runner is supervised, but cannot be restarted");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn probe(tasks: &mut Tasks, prober: &Prober, supervisor: &Handle, published: watch::Sender<Health>) {
    tasks.spawn(REQUEST_GAP, prober.request_gap().run(supervisor.clone()));
    tasks.spawn(PROBER, prober.clone().run(supervisor.clone(), published));
}

/// Requests the start of the runner, so that the first clients see a runner that is being started. When the start takes long, they are
/// served before there is a child, as by the upstream wrapper, and their requests are kept.
async fn boot(supervisor: &Handle) {
    if let Ok(Err(error)) = timeout(BOOT_LIMIT, supervisor.boot()).await {
        error!(%error, "cannot request the start of the runner");
    }
}

fn serve_http(tasks: &mut Tasks, control: &Control, counters: &Arc<Counters>, listener: Option<Listener>) {
    let Some(Listener::Tcp(listener)) = listener else { return };
    let server = HttpServer { control: control.clone(), counters: Arc::clone(counters) };
    tasks.spawn(HTTP, server.serve(listener));
}

/// Waits for the end of the supervisor, or for the failure of another task.
async fn end(supervision: JoinHandle<End>, tasks: &mut Tasks) -> Result<End, TaskFailed> {
    tokio::select! {
        biased;
        // This comes first, because the prober and the notifier end with the supervisor.
        end = supervision => end.map_err(|error| TaskFailed::new(SUPERVISOR, error)),
        failed = tasks.failed() => Err(failed),
    }
}

/// Ends the servers after the end of the runner, and returns the exit code.
async fn leave(
    end: &End,
    mut tasks: Tasks,
    kept: Arc<KeptSockets>,
    stop_serving: &CancellationToken,
) -> Result<u8, RunError> {
    // The notifier reports the end of the runner, and then has nothing to watch.
    tasks.end_of(NOTIFIER).await?;
    drop(kept);
    stop_serving.cancel();
    if let Err(error) = tasks.end_of(GRPC).await {
        error!(%error, "gRPC server failed");
    }
    info!(exit_code = exit_code(end), reason = end.failure(), "wrapper exiting");
    Ok(exit_code(end))
}

/// How the runner is started: it waits until the state file, if there is one, has its identity.
fn spawner(listen_address: Option<String>, command: CommandLine, state_file: Option<&Path>) -> Spawner {
    let address = listen_address.map(|address| ("LISTEN_ADDRESS", OsString::from(address)));
    Spawner {
        command,
        env: address.into_iter().collect(),
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
