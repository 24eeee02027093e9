//! `grit-wrapper run`, step by step: bind, supervise, serve, drain, exit.

mod addresses;
mod error;
pub(crate) mod supervisor;

use std::{process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use self::error::RunError;
use super::{
    callback::{CallbackSender, OnExit},
    control::Control,
    counters::Counters,
    settings::{Settings, Target},
    tasks::{TaskFailed, Tasks},
};
use crate::supervise::{Answer, End, Handle, Mode, State, Stop, StopId, process::orphans};
use crate::{
    daemon::{
        host::{signals::Signals, systemd::Notifier},
        serve::{
            grpc::{self, Api},
            http::HttpServer,
            listen::{Listener, LostSockets},
        },
    },
    runner::{Health, Prober},
};

/// Runs the wrapper until it shuts down, and returns its exit code, which depends on the end of the runner.
/// After an error no runner was started, except after [`RunError::Task`]. While the runner of a killed wrapper runs, the wrapper also runs without an
/// executable command.
pub fn run(settings: &Settings) -> Result<ExitCode, RunError> {
    // One thread is enough for a few messages a minute, and costs the least memory.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::Prepare)?;
    let result = runtime.block_on(supervise(settings));
    // Calls that hang in a file system or in the name service are not waited for.
    runtime.shutdown_background();
    result.map(ExitCode::from)
}

async fn supervise(settings: &Settings) -> Result<u8, RunError> {
    let process = OwnProcess::prepare(&settings.target)?;
    let (publish_health, health) = watch::channel(Health::default());
    let opened = addresses::open(settings, &LostSockets::new(publish_health.clone())).await?;

    let counters = Arc::new(Counters::default());
    let (probes, listen_address) =
        settings.health.clone().with_listen_address(settings.runner_listen_address.clone()).await;
    let on_exit = OnExit::new(settings.on_exit.as_deref());
    let callbacks = CallbackSender::new(
        runtime::Handle::current(),
        Arc::clone(&counters),
        settings.callbacks.clone(),
        on_exit.clone(),
    );
    let (task, supervisor) =
        supervisor::of_target(settings, listen_address, opened.state, callbacks, &publish_health)?;
    let prober = Prober::new(probes);
    let has_unit = matches!(settings.target, Target::Unit(_));
    let mut control = Control::new(supervisor.clone(), health, prober.clone(), settings.callbacks.clone());
    if has_unit {
        control = control.of_unit(settings.drain_timeout);
    }

    let supervision = tokio::spawn(task);
    let mut tasks = Tasks::default();
    let asked_to_end = CancellationToken::new();
    let on_signal = match has_unit {
        true => OnSignal::End(asked_to_end.clone()),
        false => OnSignal::Drain { timeout: settings.drain_timeout },
    };
    let notifier = process.start(&mut tasks, &supervisor, on_signal);
    // The first probe of a runner can take seconds, and clients need the configuration after the runner's exit.
    tokio::join!(boot(&supervisor, settings), prober.read_config(&publish_health));
    if let Some(notifier) = notifier {
        tasks.spawn(NOTIFIER, notifier.run(control.clone(), supervisor.clone()));
    }
    probe(&mut tasks, &prober, &supervisor, publish_health);
    serve_http(&mut tasks, &control, &counters, opened.http);
    let stop_serving = CancellationToken::new();
    let api = Api::new(control, counters);
    tasks.spawn_fallible(GRPC, grpc::serve(opened.grpc, opened.status, api, stop_serving.clone()));

    let end = tokio::select! {
        end = end(supervision, &mut tasks) => Some(end?),
        // Nothing happens to the runner of the unit, and the state file is up to date.
        () = asked_to_end.cancelled() => None,
    };
    on_exit.finish().await;
    leave(end.as_ref(), tasks, &stop_serving).await
}

/// What a signal to the wrapper requests.
enum OnSignal {
    /// Drain the runner, and then exit; with this deadline.
    Drain { timeout: Option<Duration> },
    /// Exit, without the runner.
    End(CancellationToken),
}

/// What concerns the wrapper's own process: its children, its signals, and systemd.
struct OwnProcess {
    /// For a runner that is a child of this process.
    child_ended: Option<Signal>,
    signals: Signals,
    notifier: Option<Notifier>,
}

impl OwnProcess {
    fn prepare(target: &Target) -> Result<Self, RunError> {
        // With a handler, a file size limit (LimitFSIZE) is an error like a full disk. The runner does not inherit the handler.
        drop(
            signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
                .map_err(RunError::Prepare)?,
        );
        let child_ended = match target {
            Target::Command(_) => Some(Self::prepare_for_children()?),
            Target::Unit(_) => None,
        };
        let signals = Signals::new().map_err(RunError::Prepare)?;
        let notifier = Notifier::from_env().map_err(RunError::Prepare)?;
        Ok(Self { child_ended, signals, notifier })
    }

    fn prepare_for_children() -> Result<Signal, RunError> {
        // A parent that ignores SIGCHLD passes that on, and the kernel would then discard the runner's exit status.
        let child_ended = signal(SignalKind::child()).map_err(RunError::Prepare)?;
        // The kernel gives the processes of a runner that has exited to this process, which can then find and reap them.
        if let Err(error) = orphans::become_parent() {
            warn!(%error, "cannot become the parent of the runner's orphaned processes");
        }
        Ok(child_ended)
    }

    /// Handles signals and orphans. The caller notifies systemd later.
    fn start(self, tasks: &mut Tasks, supervisor: &Handle, on_signal: OnSignal) -> Option<Notifier> {
        match on_signal {
            OnSignal::Drain { timeout } => {
                tasks.spawn(SIGNALS, self.signals.forward(supervisor.clone(), timeout));
            }
            OnSignal::End(asked) => tasks.spawn(SIGNALS, self.signals.end(supervisor.clone(), asked)),
        }
        if let Some(child_ended) = self.child_ended {
            tasks.spawn(ORPHANS, orphans::collect(child_ended));
        }
        self.notifier
    }
}

fn probe(tasks: &mut Tasks, prober: &Prober, supervisor: &Handle, published: watch::Sender<Health>) {
    tasks.spawn(REQUEST_GAP, prober.request_gap().run(supervisor.clone()));
    tasks.spawn(PROBER, prober.clone().run(supervisor.clone(), published));
}

/// Requests the start of the runner, so that the first clients see a runner that is being started. When the start takes long, they are
/// served before there is a child, as by the upstream wrapper, and their requests are kept. The runner of a unit is started by systemd.
async fn boot(supervisor: &Handle, settings: &Settings) {
    let asked = async {
        match settings.target {
            _ if settings.drain_at_start => {
                let reason = Arc::from("the unit is stopped, and its wrapper does not run");
                supervisor.leave(Stop { reason, ..Stop::new(StopId::Signal, Mode::Graceful) }).await
            }
            Target::Command(_) => supervisor.boot().await,
            // The first look at the unit.
            Target::Unit(_) => {
                let mut states = supervisor.watch();
                let _ended = states.wait_for(|now| now.state != State::Idle).await;
                Ok(Answer::Done)
            }
        }
    };
    if let Ok(Err(error)) = timeout(BOOT_LIMIT, asked).await {
        error!(%error, "cannot request the start or the drain of the runner");
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
    end: Option<&End>,
    mut tasks: Tasks,
    stop_serving: &CancellationToken,
) -> Result<u8, RunError> {
    // The notifier reports the end of the runner, and then has nothing to watch.
    if end.is_some() {
        tasks.end_of(NOTIFIER).await?;
    }
    stop_serving.cancel();
    if let Err(error) = tasks.end_of(GRPC).await {
        error!(%error, "gRPC server failed");
    }
    let code = end.map_or(0, exit_code);
    info!(exit_code = code, reason = end.and_then(End::failure), "wrapper exiting");
    Ok(code)
}

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
        // There was not enough memory, disk or process slots, or the command does not exist any more.
        End::SpawnFailed(_) => RunError::FAILED,
        End::Exited { exit, .. } => exit.shell_code(),
    }
}

#[cfg(test)]
mod tests;
