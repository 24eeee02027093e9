//! A stand-in for `gitlab-runner run`: the program `runner-stand-in`.
//!
//! It behaves as GitLab Runner (19.x, `commands/multi.go`) in all respects that the wrapper and the provider rely on,
//! including faults. It runs no shell and no container: a job is a duration.
//!
//! **Start.** After `--start-delay` the HTTP server opens. After `--handlers-after` the signal
//! handlers are installed. The boot verification (`--boot-verify`), process state `running` and the first job request follow.
//! A missing configuration file is not an error: the process runs with zero runners. A broken file is an error at the start; at a
//! reload the old configuration is kept.
//!
//! **Signals**, once the handlers are installed:
//!
//! | signal | first | then |
//! | --- | --- | --- |
//! | SIGQUIT | graceful: no new requests, open ones cancelled, jobs finish, executors shut down, exit 0 | QUIT: no effect; TERM, INT: forceful |
//! | SIGTERM, SIGINT | forceful: open requests are cancelled, jobs are aborted; exit 0 after that, exit 1 after `shutdown_timeout` | any stop signal, QUIT included: exit 1 immediately |
//! | SIGHUP | reload of the configuration (also when the file's time changes, checked every 3 s) | |
//!
//! Before the handlers are installed, SIGQUIT makes a Go program print its stacks and exit 2, and the other signals kill it. A signal
//! that follows another one immediately is dropped: see `signals.rs`. Any stop signal during the boot verification cancels it, and the runner exits
//! 1: upstream treats a cancelled verification as failed.
//!
//! **Zero jobs does not mean exit.** After the last job the executors shut down (`--executor-shutdown`), and the process still
//! runs; its endpoints respond.
//!
//! **Requests.** There are `concurrent` workers. The feeder gives one `[[runners]]` section after the other to a free worker, each
//! `check_interval / sections` (3 s by default); while all workers are busy, it waits, and no request is sent. A worker sends one request,
//! within `limit` and `request_concurrency` (1) of its section, and runs the job of the response. As soon as it has one, another free worker
//! requests the next. A stop signal cancels the open requests, with a line in the log: the runner never receives a job that GitLab has
//! assigned in their responses. The gauge `gitlab_runner_request_concurrency` rises before a request is sent, and falls after its response was
//! read and the job in it was reported as running; if another worker is free, the next request follows a moment later. A response without
//! `X-GitLab-Last-Update` leaves `last_update` as it is.
//!
//! A 403 counts as unhealthy, a request without a response does not; `unhealthy_requests_limit` of them in a row (3) disable the section for
//! its `unhealthy_interval` (an hour) or until a reload, while the process keeps running. Sections of one GitLab whose tokens begin alike share this
//! state, and the metrics that have no `runner_name`. `concurrent = 0` is fatal, at the start and at a
//! reload.
//!
//! **Jobs.** Each job is reported as running before it starts. From 18.5 on this confirms it, if GitLab supports the two-phase commit. A job
//! fails without a temporary file for its log. After its end, a job is listed as `success` or `failed` until the last part of its log (`patch_trace`)
//! and then its result (`update_job`) are reported. If that fails, the job occupies its worker for `job_status_final_update_retry_limit` attempts (10)
//! with doubling delays, also during a graceful shutdown. Then the runner drops the job: GitLab never receives its result, no line of the log says so
//! (since 18.6), and the exit code is 0. As upstream, a part of a log without a response is not counted in the metrics. With `--job-process` each job has a separate process group, which a forceful
//! shutdown may leave behind: see `job.rs`.
//!
//! **Job router.** A section with `FF_USE_JOB_ROUTER` requests its jobs by another call, which the metrics count without section and result.
//! With `--job-router=down` the circuit breaker opens, and its requests go to GitLab directly.
//!
//! **Endpoints**, only with a listen address (the option overrides the file): `/metrics`, `/debug/jobs/list`, from 19.1 on
//! `/debug/process/state`, from 19.2 on `/health/ready`, as set by `--emulate-version`. The metrics are those for
//! health and jobs, with upstream's names and labels.
//!
//! Differences to GitLab Runner: fractions of seconds in the configuration, shorter delays between reports, and requests to the lab for the
//! event log (see `link.rs`). It reports a part of a job's log at the end of the job only: versions before 18.5 do not report that a job runs, and GitLab first hears of
//! a job by its log. It does not repeat a job request that failed, and has no `strict_check_interval`, `FF_USE_ADAPTIVE_REQUEST_CONCURRENCY`
//! or executors that limit the number of jobs.

mod config;
mod endpoints;
mod feed;
mod job;
mod link;
mod options;
mod signals;
mod state;
mod work;

use std::{
    fmt,
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use config::Config;
use endpoints::Endpoints;
pub use job::JobProcess;
use link::Link;
pub use options::{JobRouter, Metrics, Options, Version};
use signals::{Stop, StopSignals};
use state::{ProcessState, State};
use tokio::signal::unix::{SignalKind, signal};

use super::{event::What, queue::RunnerProcess};

/// Interval of checks of the configuration file.
const CONFIG_CHECK: Duration = Duration::from_secs(3);
/// What upstream logs before each forceful shutdown.
const GRACEFUL_NOT_FINISHED: &str = r"Graceful shutdown not finished properly. To gracefully clean up running plugins please use SIGQUIT (ctrl-\) instead of SIGINT (ctrl-c)";
/// The reason of a failed or cancelled boot verification.
const BOOT_VERIFY_FAILED: &str = "Boot-verify canary failed, draining and exiting";
/// The exit code of a Go program that SIGQUIT ended.
const GO_QUIT: i32 = 2;

/// Runs until the exit, and returns the exit code.
pub async fn run(options: Options) -> i32 {
    // A stand-in that is killed by a signal must not leave a core file in the working directory.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);

    let pid = std::process::id();
    let link = Link::new(options.lab.clone(), RunnerProcess { system_id: system_id(&options), pid });
    // The Go runtime handles signals long before GitLab Runner installs its handlers.
    let Ok(mut go_runtime) = signal(SignalKind::quit()) else { return 1 };
    link.tell(What::RunnerStarted { pid, version: options.emulate_version.to_string() }).await;
    tokio::spawn(link.clone().be_present());

    let (code, reason) = live(options, &link, &mut go_runtime).await;
    say(&reason);
    link.tell(What::RunnerExiting { pid, code, reason }).await;
    code
}

/// Runs from reading the configuration to the reason of the exit.
async fn live(options: Options, link: &Link, go_runtime: &mut tokio::signal::unix::Signal) -> (i32, String) {
    let early = async {
        tokio::time::sleep(options.start_delay).await;
        let config = Config::load(&options.config, options.emulate_version)
            .map_err(|error| format!("FATAL: {error}"))?;
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
    tokio::spawn(reload(Arc::clone(&state), options.config.clone(), options.emulate_version, hangups));
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
        exits_at_once: options.executor_shutdown.is_zero(),
        system_id: link.process().system_id.clone(),
        started: process_started().map_err(|error| failed(&error))?,
        reads: AtomicUsize::default(),
    };
    tokio::spawn(endpoints::serve(listener, Arc::new(endpoints)));
    Ok(())
}

/// The start time of this process by the kernel's clock, as Prometheus' client for Go reports it. That client recomputes it at each scrape from the
/// current boot time; here it is computed once, so later clock changes have no effect.
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

/// Normal operation: ends only by a failed boot verification, a fatal configuration, or a crash.
async fn serve(options: &Options, link: &Link, state: &Arc<State>) -> (i32, String) {
    tokio::time::sleep(options.boot_verify).await;
    if state.stopping.is_cancelled() {
        // The verification was cancelled: see `stop`.
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
    let behavior = work::Behavior {
        version: options.emulate_version,
        router: options.job_router,
        abort: work::Abort { takes: options.abort_takes, process: options.job_process },
        report_retry: options.report_retry,
        update_interval: options.update_interval,
    };
    tokio::spawn(feed::feed(Arc::clone(state), link.clone(), behavior));
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

/// Waits until the configuration allows no jobs; not checked after a shutdown has begun.
async fn no_workers(state: &State) {
    loop {
        let changed = state.changed.notified();
        if state.lock().config.concurrent == 0 && !state.stopping.is_cancelled() {
            return;
        }
        changed.await;
    }
}

/// Waits for the first stop signal, and shuts down.
async fn stop(mut signals: StopSignals, options: &Options, link: &Link, state: &Arc<State>) -> (i32, String) {
    let mut received = take(&mut signals, link, state).await;
    if !options.boot_verify.is_zero() && !state.lock().boot_verified {
        state.lock().process = match received {
            Stop::Quit => ProcessState::GracefulShutdown,
            Stop::Term | Stop::Int => ProcessState::ForcefulShutdown,
        };
        tokio::time::sleep(options.executor_shutdown).await;
        return (1, format!("{BOOT_VERIFY_FAILED}: context canceled"));
    }
    if received == Stop::Quit {
        state.lock().process = ProcessState::GracefulShutdown;
        warn(
            "Starting graceful shutdown, waiting for builds to finish",
            &[("StopSignal", received.go_name())],
        );
        let drained = drained(options, link, state);
        tokio::pin!(drained);
        while received == Stop::Quit {
            tokio::select! {
                () = &mut drained => return (0, "All executor providers shut down. Can exit now!".to_owned()),
                next = take(&mut signals, link, state) => received = next,
            }
            warn("[handleGracefulShutdown] received stop signal", &[("stop-signal", received.go_name())]);
        }
    }
    let error = format!("received stop signal: {}", received.go_name());
    warn(GRACEFUL_NOT_FINISHED, &[("error", &error)]);
    state.lock().process = ProcessState::ForcefulShutdown;
    let timeout = state.lock().config.shutdown_timeout;
    let fields = [("StopSignal", received.go_name()), ("shutdown-timeout", &format!("{timeout:?}"))];
    warn("Starting forceful shutdown", &fields);
    state.aborting.cancel();
    tokio::select! {
        () = drained(options, link, state) => (0, "All jobs aborted. Can exit now!".to_owned()),
        () = tokio::time::sleep(timeout) => (1, "FATAL: shutdown timed out".to_owned()),
        second = take(&mut signals, link, state) => {
            warn("[handleForcefulShutdown] received stop signal", &[("stop-signal", second.go_name())]);
            (1, format!("FATAL: forced exit with stop signal: {}", second.name()))
        }
    }
}

/// Receives one stop signal, and cancels the job requests; drops signals that follow immediately.
async fn take(signals: &mut StopSignals, link: &Link, state: &State) -> Stop {
    let pid = link.process().pid;
    let received = signals.next().await;
    // Not after the report to the event log, which takes longer than upstream's handler: in this time, a section could send a new request.
    state.stopping.cancel();
    let jobs = state.lock().jobs.len();
    let dropped = signals.drop_signals().await;
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
        if state.lock().busy_workers == 0 {
            break;
        }
        changed.await;
    }
    link.tell(What::RunnerIdle { pid: link.process().pid }).await;
    tokio::time::sleep(options.executor_shutdown).await;
}

/// Follows SIGHUP and the time of the configuration file.
async fn reload(
    state: Arc<State>,
    path: PathBuf,
    version: Version,
    mut hangups: tokio::signal::unix::Signal,
) {
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
        let loaded = Config::load(&path, version);
        let mut inner = state.lock();
        match loaded {
            Ok(config) => {
                say(&format!("Configuration loaded: {} runners", config.runners.len()));
                inner.config = config;
                inner.config_loads += 1;
                // All sections are enabled.
                inner.health.clear();
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

/// As upstream: a file beside the configuration.
fn system_id(options: &Options) -> String {
    std::fs::read_to_string(options.config.with_file_name(".runner_system_id"))
        .map_or_else(|_| "s_standin".to_owned(), |text| text.trim().to_owned())
}

/// Writes a log line immediately; a closed stderr is ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "runner: {line}");
}

/// Writes a warning with fields, in upstream's format.
fn warn(message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    say(&format!("WARNING: {message:<40} {}", fields.join(" ")));
}
