//! A stand-in for `gitlab-runner run`: the program `runner-stand-in`.
//!
//! It behaves as GitLab Runner (19.x, `commands/multi.go`) does in every respect that the wrapper and the provider rely on,
//! the unpleasant ones included. It runs no shell and no container: a job is a length of time.
//!
//! **Start.** Slow (`--start-delay`). Then the HTTP server opens; only after that (`--handlers-after`) are the signal
//! handlers installed; then the boot verification (`--boot-verify`) and process state `running`; then the first job request.
//! A missing configuration file is no error: the process runs happily with zero runners. A broken one is, at the start; at a
//! reload the old configuration stays.
//!
//! **Signals**, once the handlers are installed:
//!
//! | signal | first | then |
//! | --- | --- | --- |
//! | SIGQUIT | graceful: no new requests, polls given up, jobs finish, executors shut down, exit 0 | QUIT again: nothing; TERM, INT: forceful |
//! | SIGTERM, SIGINT | forceful: jobs are aborted; exit 0 when that is done, exit 1 after `shutdown_timeout` | any second one, QUIT included: exit 1 at once |
//! | SIGHUP | reload of the configuration (also when the file's time changes, looked at every 3 s) | |
//!
//! Before the handlers are there, SIGQUIT makes a Go program print its stacks and exit 2, and the others kill it. A signal
//! that comes right behind another is dropped: see `signals.rs`. A stop signal during the boot verification cancels that, and the runner exits
//! 1, whichever signal it was: upstream takes a cancelled verification for a failed one.
//!
//! **Zero jobs is not the end.** After the last job the executors shut down (`--executor-shutdown`), and the process is still
//! there; in that time the endpoints answer.
//!
//! **Jobs.** One request at a time for each `[[runners]]` section, within `concurrent` and `limit`; a long poll that is held
//! while there is nothing to do. 403 counts as unhealthy, and so does a request without an answer; `unhealthy_requests_limit` of them in a row
//! (3) disable the section for its `unhealthy_interval` (an hour), while the process runs on. `concurrent = 0` is fatal, at the start and
//! at a reload. The end of a job is reported until somebody takes note, also during a graceful shutdown. With `--job-process` each job has a
//! process group of its own, which a forceful shutdown may leave behind: see `job.rs`.
//!
//! **Endpoints**, only with a listen address (the option beats the file): `/metrics`, `/debug/jobs/list`, from 19.1 on
//! `/debug/process/state`, from 19.2 on `/health/ready`; `--emulate-version` decides. The metrics are the ones that say
//! something about health and jobs, with upstream's names and labels.
//!
//! Not like GitLab Runner: fractions of seconds in the configuration, offers that must be accepted always (two-phase commit),
//! and the lab's own requests, which make its life visible in the event log: see `link.rs`.

mod config;
mod endpoints;
mod job;
mod link;
mod signals;
mod state;
mod work;

use std::{fmt, io::Write, net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use config::Config;
use endpoints::Endpoints;
pub use job::JobProcess;
use link::Link;
use signals::{Stop, StopSignals};
use state::{ProcessState, State};
use tokio::signal::unix::{SignalKind, signal};

use super::{event::What, queue::RunnerProcess};

/// How often the configuration file is looked at.
const CONFIG_CHECK: Duration = Duration::from_secs(3);
/// What is said of a boot verification that failed or was cancelled.
const BOOT_VERIFY_FAILED: &str = "Boot-verify canary failed, draining and exiting";
/// The exit code of a Go program that SIGQUIT ended.
const GO_QUIT: i32 = 2;

/// The options of `run`. The first six are GitLab Runner's, the others say how badly to behave.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[arg(long, short, env = "CONFIG_FILE", default_value = "/etc/gitlab-runner/config.toml")]
    pub config: PathBuf,
    /// Beats the configuration file.
    #[arg(long, env = "LISTEN_ADDRESS")]
    pub listen_address: Option<String>,
    /// GitLab Runner's, and without a meaning here: no job has files.
    #[arg(long, short = 'd')]
    pub working_directory: Option<PathBuf>,
    /// GitLab Runner's, for the log's lines.
    #[arg(long, short = 'n')]
    pub service: Option<String>,
    /// GitLab Runner's, and without a meaning here: no job has a shell.
    #[arg(long, short = 'u')]
    pub user: Option<String>,
    /// GitLab Runner's, and without a meaning here: the log goes to stderr.
    #[arg(long)]
    pub syslog: bool,
    /// The version to be: decides which endpoints exist.
    #[arg(long, default_value = "19.2.0")]
    pub emulate_version: Version,
    /// Before anything else.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub start_delay: Duration,
    /// Between the opening of the HTTP server and the installation of the signal handlers.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub handlers_after: Duration,
    /// How long `/health/ready` answers 503.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub boot_verify: Duration,
    /// What `/metrics` answers.
    #[arg(long, value_enum, default_value_t)]
    pub metrics: Metrics,
    /// The boot verification fails: exit 1.
    #[arg(long)]
    pub boot_verify_fails: bool,
    /// From the last job to the exit.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub executor_shutdown: Duration,
    /// How long a job takes to be aborted.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub abort_takes: Duration,
    /// Each job is a process group of its own, which is told to end when the job is aborted.
    #[arg(long, value_enum)]
    pub job_process: Option<JobProcess>,
    /// Crash with this code...
    #[arg(long, requires = "crash_after")]
    pub crash_code: Option<i32>,
    /// ...so long after process state `running`.
    #[arg(long, value_parser = humantime::parse_duration, requires = "crash_code")]
    pub crash_after: Option<Duration>,
    /// Where to tell of one's life: the URL of the job queue.
    #[arg(long, env = "LAB_URL")]
    pub lab: Option<String>,
}

/// What `/metrics` answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Metrics {
    #[default]
    Full,
    /// Something else than a runner's metrics, as from another exporter on its port.
    Foreign,
    /// 500.
    Broken,
    /// Nothing, for ever.
    Silent,
}

/// A version of GitLab Runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// Runs until it is time to exit, and returns the code to exit with.
pub async fn run(options: Options) -> i32 {
    // A stand-in that dies of a signal shall not leave a core file in the working directory.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);

    let pid = std::process::id();
    let link = Link::new(options.lab.clone(), RunnerProcess { system_id: system_id(&options), pid });
    // The Go runtime is there long before GitLab Runner asks for signals.
    let Ok(mut go_runtime) = signal(SignalKind::quit()) else { return 1 };
    link.tell(What::RunnerStarted { pid, version: options.emulate_version.to_string() }).await;
    tokio::spawn(link.clone().be_present());

    let (code, reason) = live(options, &link, &mut go_runtime).await;
    say(&reason);
    link.tell(What::RunnerExiting { pid, code, reason }).await;
    code
}

/// From the configuration to the reason why it is over.
async fn live(options: Options, link: &Link, go_runtime: &mut tokio::signal::unix::Signal) -> (i32, String) {
    let early = async {
        tokio::time::sleep(options.start_delay).await;
        let config = Config::load(&options.config).map_err(|error| format!("FATAL: {error}"))?;
        say(&format!("Configuration loaded: {} runners", config.runners.len()));
        let state = Arc::new(State::new(config));
        open_endpoints(&options, link, &state).await?;
        tokio::time::sleep(options.handlers_after).await;
        Ok::<_, String>(state)
    };
    let state = tokio::select! {
        early = early => match early {
            Ok(state) => state,
            Err(reason) => return (1, reason),
        },
        _ = go_runtime.recv() => {
            return (GO_QUIT, "SIGQUIT: quit\nPC=0x0 m=0 sigcode=0\n\ngoroutine 1 [running]:".to_owned());
        }
    };
    let (stops, hangups) = match (StopSignals::install(), signal(SignalKind::hangup())) {
        (Ok(stops), Ok(hangups)) => (stops, hangups),
        (Err(error), _) | (_, Err(error)) => return (1, format!("FATAL: no signal handlers: {error}")),
    };
    tokio::spawn(reload(Arc::clone(&state), options.config.clone(), hangups));
    tokio::select! {
        ended = serve(&options, link, &state) => ended,
        ended = stop(stops, &options, link, &state) => ended,
    }
}

async fn open_endpoints(options: &Options, link: &Link, state: &Arc<State>) -> Result<(), String> {
    let address = options.listen_address.clone().or_else(|| state.lock().config.listen_address.clone());
    let Some(address) = address else { return Ok(()) };
    let failed =
        |error: &dyn fmt::Display| format!("FATAL: Failed to create listener for metrics server: {error}");
    let parsed: SocketAddr = address.parse().map_err(|error| failed(&error))?;
    let listener = tokio::net::TcpListener::bind(parsed).await.map_err(|error| failed(&error))?;
    say(&format!("Metrics server listening on {parsed}"));
    let endpoints = Endpoints {
        state: Arc::clone(state),
        version: options.emulate_version,
        metrics: options.metrics,
        system_id: link.process().system_id.clone(),
        started: process_started().map_err(|error| failed(&error))?,
    };
    tokio::spawn(endpoints::serve(listener, Arc::new(endpoints)));
    Ok(())
}

/// When this process was started, by the kernel's clock, as Prometheus' client for Go tells it. That counts it anew at each scrape from the
/// present boot time; here once, so a wall clock that is set later does not show.
fn process_started() -> std::io::Result<Duration> {
    let broken = || std::io::Error::other("/proc does not tell when this process was started");
    let boot = std::fs::read_to_string("/proc/stat")?;
    let boot: u64 =
        boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).ok_or_else(broken)?;
    let own = std::fs::read_to_string("/proc/self/stat")?;
    let own = own.rsplit_once(") ").ok_or_else(broken)?.1;
    let ticks: u64 = own.split(' ').nth(22 - 3).and_then(|ticks| ticks.parse().ok()).ok_or_else(broken)?;
    Ok(Duration::from_secs(boot) + Duration::from_millis(ticks * 10))
}

/// The working life: ends only by a failed boot verification, a configuration that is fatal, or a crash.
async fn serve(options: &Options, link: &Link, state: &Arc<State>) -> (i32, String) {
    tokio::time::sleep(options.boot_verify).await;
    if state.stopping.is_cancelled() {
        // The verification was cancelled; what comes of that is in `stop`.
        return std::future::pending().await;
    }
    if options.boot_verify_fails {
        return (1, BOOT_VERIFY_FAILED.to_owned());
    }
    {
        let mut inner = state.lock();
        inner.boot_verified = true;
        inner.process = ProcessState::Running;
    }
    let abort = work::Abort { takes: options.abort_takes, process: options.job_process };
    tokio::spawn(work::feed(Arc::clone(state), link.clone(), abort));
    let crash = async {
        if let (Some(after), Some(code)) = (options.crash_after, options.crash_code) {
            tokio::time::sleep(after).await;
            return (code, "panic: runtime error: as ordered".to_owned());
        }
        std::future::pending().await
    };
    tokio::select! {
        crash = crash => crash,
        () = no_workers(state) => {
            (1, "FATAL: Current configuration 'concurrent = 0' means that no jobs will be processed".to_owned())
        }
    }
}

/// Waits until the configuration allows no jobs at all; once a shutdown has begun nobody looks any more.
async fn no_workers(state: &State) {
    loop {
        let changed = state.changed.notified();
        if state.lock().config.concurrent == 0 && !state.stopping.is_cancelled() {
            return;
        }
        changed.await;
    }
}

/// Waits for the first stop signal, and takes it from there.
async fn stop(mut signals: StopSignals, options: &Options, link: &Link, state: &Arc<State>) -> (i32, String) {
    let mut received = take(&mut signals, link, state).await;
    if !options.boot_verify.is_zero() && !state.lock().boot_verified {
        state.lock().process = match received {
            Stop::Quit => ProcessState::GracefulShutdown,
            Stop::Term | Stop::Int => ProcessState::ForcefulShutdown,
        };
        state.stopping.cancel();
        tokio::time::sleep(options.executor_shutdown).await;
        return (1, format!("{BOOT_VERIFY_FAILED}: context canceled"));
    }
    if received == Stop::Quit {
        state.lock().process = ProcessState::GracefulShutdown;
        state.stopping.cancel();
        let drained = drained(options, link, state);
        tokio::pin!(drained);
        while received == Stop::Quit {
            tokio::select! {
                () = &mut drained => return (0, "All executor providers shut down. Can exit now!".to_owned()),
                next = take(&mut signals, link, state) => received = next,
            }
        }
    }
    state.lock().process = ProcessState::ForcefulShutdown;
    let timeout = state.lock().config.shutdown_timeout;
    state.stopping.cancel();
    state.aborting.cancel();
    tokio::select! {
        () = drained(options, link, state) => (0, "All jobs aborted. Can exit now!".to_owned()),
        () = tokio::time::sleep(timeout) => (1, "FATAL: shutdown timed out".to_owned()),
        second = take(&mut signals, link, state) => {
            (1, format!("FATAL: forced exit with stop signal: {}", second.name()))
        }
    }
}

/// Receives one stop signal; drops those that follow at its heels.
async fn take(signals: &mut StopSignals, link: &Link, state: &State) -> Stop {
    let pid = link.process().pid;
    let received = signals.next().await;
    let jobs = state.lock().jobs.len();
    say(&format!("received stop signal {} with {jobs} jobs", received.name()));
    let dropped = signals.be_deaf().await;
    link.tell(What::RunnerSignal { pid, signal: received.name().to_owned(), jobs, ignored: false }).await;
    for signal in dropped {
        link.tell(What::RunnerSignal { pid, signal: signal.name().to_owned(), jobs, ignored: true }).await;
    }
    received
}

/// Waits until no job runs and the executors are shut down.
async fn drained(options: &Options, link: &Link, state: &State) {
    loop {
        let changed = state.changed.notified();
        // A request under way holds a slot: it may still bring a job.
        if state.lock().slots == 0 {
            break;
        }
        changed.await;
    }
    link.tell(What::RunnerIdle { pid: link.process().pid }).await;
    tokio::time::sleep(options.executor_shutdown).await;
}

/// Follows SIGHUP and the time of the configuration file.
async fn reload(state: Arc<State>, path: PathBuf, mut hangups: tokio::signal::unix::Signal) {
    let modified = || std::fs::metadata(&path).and_then(|file| file.modified()).ok();
    let mut seen = modified();
    loop {
        let asked = tokio::select! {
            _ = hangups.recv() => true,
            () = tokio::time::sleep(CONFIG_CHECK) => false,
        };
        let now = modified();
        if !asked && now == seen {
            continue;
        }
        seen = now;
        let loaded = Config::load(&path);
        let mut inner = state.lock();
        match loaded {
            Ok(config) => {
                say(&format!("Configuration loaded: {} runners", config.runners.len()));
                inner.config = config;
                inner.config_loads += 1;
            }
            Err(error) => {
                say(&format!("Failed to load config {error}"));
                inner.config_errors += 1;
            }
        }
        drop(inner);
        state.changed.notify_waiters();
    }
}

/// As upstream keeps it: a file beside the configuration.
fn system_id(options: &Options) -> String {
    std::fs::read_to_string(options.config.with_file_name(".runner_system_id"))
        .map_or_else(|_| "s_standin".to_owned(), |text| text.trim().to_owned())
}

/// A line for the log. Written at once; a closed stderr is not our problem.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "runner: {line}");
}

impl Version {
    fn has_process_state(self) -> bool {
        (self.major, self.minor) >= (19, 1)
    }

    fn has_health_ready(self) -> bool {
        (self.major, self.minor) >= (19, 2)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        let mut parts = text.split('.').map(str::parse);
        match (parts.next(), parts.next(), parts.next().unwrap_or(Ok(0)), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Ok(patch), None) => Ok(Version { major, minor, patch }),
            _ => Err(format!("{text:?} is not a version like 19.2 or 19.2.1")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
