//! The task that probes the runner.

use std::{ops::ControlFlow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use grit_proto::json::short;
use hyper::StatusCode;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep},
};
use tracing::{debug, info};

use super::{
    Health, Level,
    access::{Access, OfHost},
    evidence::Evidence,
    http_client::{GetError, Server},
    job_list::{self, Job},
    request_gap::{Read, RequestGap, Seen},
    runner_metrics::RunnerMetrics,
    settings::Settings,
};
use crate::supervise::{ChildInfo, Handle, Moment, State, Supervision};

/// Interval between probes while a change is expected: after a start, below the maximum level, and during a drain.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// Interval just after a start: a rollout waits for the first successful probe.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);

/// The time after a start with [`FIRST_INTERVAL`].
const FIRST_PERIOD: Duration = Duration::from_secs(10);

/// After this time below the maximum level, no quick change is expected.
const START_PERIOD: Duration = Duration::from_secs(300);

/// Maximum number of logged reasons; a runner can have a thousand sections with one reason each.
const LOGGED_REASONS: usize = 20;

/// Probes one runner. Clones share a connection.
#[derive(Clone, Debug)]
pub struct Prober {
    /// Interval between probes of a runner at its maximum level.
    interval: Duration,
    access: Arc<dyn Access>,
    list: Arc<Mutex<List>>,
    /// The job requests that the probes have read.
    seen: Seen,
}

/// The last job list, and the time of its request.
#[derive(Debug, Default)]
struct List {
    asked: Option<Instant>,
    jobs: Option<Vec<Job>>,
}

impl Prober {
    pub fn new(settings: Settings) -> Self {
        Self::over(Arc::new(OfHost::new(settings.source)), settings.interval)
    }

    pub(crate) fn over(access: Arc<dyn Access>, interval: Duration) -> Self {
        Self { interval, access, list: Arc::default(), seen: Seen::default() }
    }

    /// Publishes the runner's configuration, before the first probe does. Takes at most a second.
    pub async fn read_config(&self, published: &watch::Sender<Health>) {
        let config = Some(self.access.config().await);
        published.send_modify(|health| health.evidence.config = config);
    }

    /// Reports the open job requests of the same runner.
    pub fn request_gap(&self) -> RequestGap {
        RequestGap::new(self.access.another(), self.seen.clone())
    }

    /// Why the process is not the runner itself, if it is a launcher.
    pub(crate) async fn launcher_fault(&self, pid: u32) -> Option<String> {
        self.access.launcher_fault(pid).await
    }

    /// The current jobs of this runner; `None` if unknown.
    ///
    /// Only one request at a time is sent; concurrent callers share its result.
    pub async fn jobs(&self, runner: ChildInfo) -> Option<Vec<Job>> {
        self.access.note_process(runner.pid()).await;
        let config = self.access.config().await.ok();
        let endpoint = self.access.endpoint(config.as_deref())?;
        self.jobs_at(&Server { endpoint, runner }).await
    }

    async fn jobs_at(&self, server: &Server) -> Option<Vec<Job>> {
        let came = Instant::now();
        let mut list = self.list.lock().await;
        if list.asked.is_none_or(|asked| asked < came) {
            let asked = Instant::now();
            let jobs = self.ask_for_jobs(server).await;
            *list = List { asked: Some(asked), jobs };
        }
        list.jobs.clone()
    }

    async fn ask_for_jobs(&self, server: &Server) -> Option<Vec<Job>> {
        let (status, list) = self.access.get(server, "/debug/jobs/list").await.ok()?;
        (status == StatusCode::OK).then(|| job_list::parse(&list))
    }

    /// Probes the runner and publishes the results, until the supervisor exits.
    pub async fn run(self, supervisor: Handle, published: watch::Sender<Health>) {
        let mut supervision = supervisor.watch();
        let mut of_another = supervisor.watch();
        let mut evidence = Evidence::default();
        loop {
            let now = supervision.borrow_and_update().clone();
            let child = now.state.child();
            // A probe can take several seconds. If its child exits meanwhile, the result is useless, and the next child must not wait for
            // it.
            let health = tokio::select! {
                biased;
                changed = of_another.wait_for(|now| now.state.child() != child) => match changed {
                    Ok(_) => continue,
                    Err(_) => return,
                },
                health = self.probe_without_panic(&now, &mut evidence) => health,
            };
            let before = publish(&published, health.clone());
            if before != health.level {
                info!(
                    from = short(before.as_str_name()),
                    to = short(health.level.as_str_name()),
                    reasons = ?health.reasons.iter().take(LOGGED_REASONS).collect::<Vec<_>>(),
                    "health level changed"
                );
            }
            if let Some(child) = health.evidence.child {
                supervisor.observe(child, health.evidence.observation());
            }
            let is_at_max = health.level >= Level::Polling.min(health.level_max);
            // It was published, and the metrics of many sections are large.
            drop(health);
            tokio::select! {
                changed = supervision.changed() => if changed.is_err() { return },
                () = pause(&now, is_at_max, self.interval) => {}
            }
        }
    }

    /// A panic must not end the wrapper: the lookup of a name panics if the kernel refuses another thread, because a job has used all.
    async fn probe_without_panic(&self, supervision: &Supervision, evidence: &mut Evidence) -> Health {
        AssertUnwindSafe(self.probe(supervision, evidence)).catch_unwind().await.unwrap_or_else(|_| {
            let evidence = Evidence { child: supervision.state.child(), ..Evidence::default() };
            Health { reasons: vec!["the probe panicked".to_owned()], evidence, ..Health::default() }
        })
    }

    /// `evidence`: of the last probe.
    async fn probe(&self, supervision: &Supervision, evidence: &mut Evidence) -> Health {
        if let Some(child) = supervision.state.child() {
            self.access.note_process(child.pid()).await;
        }
        let config = self.access.config().await;
        let Some(child) = supervision.state.child() else {
            *evidence = Evidence { config: Some(config), ..Evidence::default() };
            return Health { evidence: evidence.clone(), ..Health::default() };
        };
        let endpoint = self.access.endpoint(config.as_deref().ok());
        let (begin, asked) = (Instant::now(), Moment::now());
        evidence.begin(child, config);
        evidence.suspended = self.access.is_suspended(child.pid());
        evidence.has_server = endpoint.is_some();
        let mut jobs = None;
        // A suspended runner would not respond within the timeout.
        if let Some(endpoint) = endpoint.filter(|_| !evidence.suspended) {
            let server = Server { endpoint, runner: child };
            match self.ask(&server, evidence).await {
                Ok(()) => jobs = self.jobs_at(&server).await,
                Err(fault) => evidence.fault = Some(fault),
            }
        }
        evidence.add_jobs(jobs.as_deref(), asked, &supervision.state);
        evidence.launcher = self.access.launcher_fault(child.pid()).await;
        evidence.note_quit(&supervision.state, begin);
        let health = Health::of(supervision, child, evidence);
        debug!(level = ?health.level, reasons = ?health.reasons, "probe finished");
        health
    }

    /// Reads the runner's readiness and metrics. The error is a reason.
    async fn ask(&self, server: &Server, evidence: &mut Evidence) -> Result<(), String> {
        let endpoint = &server.endpoint;
        let unreachable = |error| match error {
            GetError::NotRunner(_) => error.to_string(),
            error => format!("cannot reach the runner's HTTP server at {endpoint}: {error}"),
        };
        let ready = self.access.get(server, "/health/ready").await.map_err(unreachable)?;
        let (mut metrics, mut beginning) = (RunnerMetrics::default(), String::new());
        let mut line = |line: &str| {
            if beginning.len() < BEGINNING {
                beginning.push_str(line);
                beginning.push(' ');
            }
            metrics.add_line(line);
            ControlFlow::Continue(())
        };
        let began = Instant::now();
        let status = self.access.lines(server, "/metrics", &mut line).await.map_err(unreachable)?;
        if status == StatusCode::OK {
            let read = Read { metrics: &metrics, began, ended: Instant::now() };
            self.seen.add(server.runner, &read, evidence.config.as_ref().and_then(|it| it.as_deref().ok()));
        }
        evidence.metrics = metrics;
        evidence.ready = match ready {
            (StatusCode::OK, text) => Some((true, text.trim().to_owned())),
            (StatusCode::SERVICE_UNAVAILABLE, text) => Some((false, text.trim().chars().take(200).collect())),
            // An older runner.
            _ => None,
        };
        if status == StatusCode::OK {
            return Ok(());
        }
        // For example two sections with one token: the runner then has two metrics of the same name.
        let text: String = beginning.trim().chars().take(300).collect();
        Err(format!("cannot read the runner's metrics at {endpoint}: HTTP status {status}: {text:?}"))
    }
}

/// Publishes the result of a probe, and returns the previous level.
fn publish(published: &watch::Sender<Health>, health: Health) -> Level {
    let mut before = Level::None;
    published.send_modify(|now| {
        before = now.level;
        let faults = std::mem::take(&mut now.faults);
        *now = Health { faults, ..health };
    });
    before
}

/// The first lines of the metrics are kept up to this number of bytes: for an error, they say what is wrong.
const BEGINNING: usize = 1000;

/// Waits for the next probe; without a child it never returns. `is_at_max`: the runner has reached its maximum level, or polls.
async fn pause(now: &Supervision, is_at_max: bool, interval: Duration) {
    match &now.state {
        State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => {
            std::future::pending::<()>().await;
        }
        State::Running { child, .. } if is_at_max || child.started.elapsed() > START_PERIOD => {
            sleep(interval).await;
        }
        State::Running { child, .. } if child.started.elapsed() < FIRST_PERIOD => {
            sleep(FIRST_INTERVAL.min(interval)).await;
        }
        State::Running { .. } | State::Stopping { .. } => sleep(START_INTERVAL.min(interval)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::runner_source::Source;

    #[test]
    fn panic_of_a_probe_is_a_health_reason() {
        // No thread can be created with a stack of this size, so that the lookup of `localhost` panics.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().thread_stack_size(usize::MAX / 4).build().unwrap();
        let listen_address = Some("localhost:1".to_owned());
        let source = Source::new(&[], |name| (name == "CONFIG_FILE").then(|| "/nonexistent".into()));
        let source = Source { listen_address, ..source };
        let settings = Settings { source, interval: Settings::INTERVAL };
        let child = ChildInfo::example(std::process::id());
        let state = State::Running { child, reload_at: None };
        let supervision = Supervision { state, ..Supervision::default() };
        let prober = Prober::new(settings);
        let health = runtime.block_on(prober.probe_without_panic(&supervision, &mut Evidence::default()));
        assert_eq!(
            (health.evidence.child, health.reasons),
            (Some(child), vec!["the probe panicked".to_owned()])
        );
    }
}
