//! The task that probes the runner.

use std::{collections::BTreeSet, ops::ControlFlow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use hyper::StatusCode;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep},
};
use tracing::{debug, info};

use super::{
    EndedJobs, Health, Oldest,
    config_reader::Reader,
    http_client::{GetError, Http, Server},
    job_list::{self, Job},
    level::{Answers, Evidence, Level, boot_verified, health_level, level_max},
    memory::Memory,
    quit_problem::quit_problem,
    request_gap::RequestGap,
    runner_config::Section,
    runner_metrics::RunnerMetrics,
    settings::Settings,
};
use crate::supervise::log_key as key;
use crate::supervise::{ChildInfo, Handle, Moment, State, Supervision, process};

/// Interval between probes while a change is expected: after a start, below the maximum level, and during a drain.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// Interval just after a start: a rollout waits for the first successful probe.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);

/// The time after a start with [`FIRST_INTERVAL`].
const FIRST_PERIOD: Duration = Duration::from_secs(10);

/// After this time below the maximum level, no quick change is expected.
const START_PERIOD: Duration = Duration::from_secs(300);

/// For this time a restart lowers the health level.
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of logged reasons; a runner can have a thousand sections with one reason each.
const LOGGED_REASONS: usize = 20;

/// Probes one runner. Clones share a connection.
#[derive(Clone, Debug)]
pub struct Prober {
    settings: Settings,
    reader: Reader,
    http: Http,
    list: Arc<Mutex<List>>,
}

/// The last job list, and the time of its request.
#[derive(Debug, Default)]
struct List {
    asked: Option<Instant>,
    jobs: Option<Vec<Job>>,
}

impl Prober {
    pub fn new(settings: Settings) -> Self {
        let reader = Reader::new(settings.source.clone());
        Self { settings, reader, http: Http::default(), list: Arc::default() }
    }

    /// Reports the open job requests of the same runner.
    pub fn request_gap(&self) -> RequestGap {
        RequestGap::new(self.reader.clone())
    }

    /// The current jobs of this runner; `None` if unknown.
    ///
    /// Only one request at a time is sent; concurrent callers share its result.
    pub async fn jobs(&self, runner: ChildInfo) -> Option<Vec<Job>> {
        let config = self.reader.read().await.ok();
        let endpoint = self.reader.endpoint(config.as_deref())?;
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
        let (status, list) = self.http.get(server, "/debug/jobs/list").await.ok()?;
        (status == StatusCode::OK).then(|| job_list::parse(&list))
    }

    /// Probes the runner and publishes the results, until the supervisor exits.
    pub async fn run(self, supervisor: Handle, published: watch::Sender<Health>) {
        let mut supervision = supervisor.watch();
        let mut of_another = supervisor.watch();
        let mut memory = Memory::default();
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
                health = self.probe_without_panic(&now, &mut memory) => health,
            };
            let before = publish(&published, health.clone());
            if before != health.level {
                info!(
                    { key::FROM } = before.name(),
                    { key::TO } = health.level.name(),
                    { key::REASONS } = ?health.reasons.iter().take(LOGGED_REASONS).collect::<Vec<_>>(),
                    "health level changed"
                );
            }
            if let Some(child) = health.child {
                supervisor.observe(child, health.observation());
            }
            tokio::select! {
                changed = supervision.changed() => if changed.is_err() { return },
                () = pause(&now, &health, self.settings.interval) => {}
            }
        }
    }

    /// A panic must not end the wrapper: the lookup of a name panics if the kernel refuses another thread, because a job has used all.
    async fn probe_without_panic(&self, supervision: &Supervision, memory: &mut Memory) -> Health {
        AssertUnwindSafe(self.probe(supervision, memory)).catch_unwind().await.unwrap_or_else(|_| {
            let child = supervision.state.child();
            Health { child, reasons: vec!["the probe panicked".to_owned()], ..Health::default() }
        })
    }

    async fn probe(&self, supervision: &Supervision, memory: &mut Memory) -> Health {
        let read = self.reader.read().await;
        let Some(child) = supervision.state.child() else {
            *memory = Memory::default();
            return Health { config: read.ok(), ..Health::default() };
        };
        if memory.child != Some(child) {
            *memory = Memory::of(child);
        }
        let config = read.as_deref();
        let server = self.reader.endpoint(config.ok()).map(|endpoint| Server { endpoint, runner: child });
        if let Ok(config) = config {
            memory.shutdown_timeout = Some(config.shutdown_timeout);
        }
        let begin = Instant::now();
        let suspended = process::is_suspended(child.pid());
        let (answers, jobs) = match &server {
            // A suspended runner would not respond within the timeout.
            Some(_) if suspended => (Some(Answers::default()), None),
            Some(server) => {
                let answers = self.ask(server).await;
                let jobs = if answers.fault.is_none() { self.jobs_at(server).await } else { None };
                (Some(answers), jobs)
            }
            None => (None, None),
        };
        if let Some(answers) = &answers {
            memory.polls.update(&answers.metrics, config.ok());
            memory.count_polls(&answers.metrics, Moment::now());
            memory.count_succeeded(&answers.metrics);
            memory.note_abort(&supervision.state, &answers.metrics);
            if memory.first_config.is_none() && answers.metrics.config_loads == 1 {
                memory.first_config = read.as_ref().ok().cloned();
            }
        }
        let launcher = process::launcher_of(child.pid()).await.map(|launcher| launcher.to_string());
        let evidence = Evidence {
            launcher: launcher.as_deref(),
            uptime: uptime(&supervision.state, child),
            min_uptime: self.settings.min_uptime,
            has_polled: memory.has_polled,
            suspended,
            restarted: supervision.restarts.automatic,
            restart_window: RESTART_WINDOW,
            config,
            answers: answers.as_ref(),
            polls: &memory.polls,
            succeeded: memory.succeeded,
        };
        let (level, reasons) = health_level(&evidence);
        let level_max = level_max(&evidence);
        memory.has_polled |= level >= Level::Polling;
        let first_config = memory.first_config.as_deref();
        let verified =
            first_config.zip(answers.as_ref()).and_then(|(first, seen)| boot_verified(first, seen));
        let metrics = answers.map(|answers| answers.metrics).unwrap_or_default();
        let quit_problem = quit_problem(supervision, &metrics, begin);
        let sections = config.map(|config| config.sections.as_slice()).unwrap_or_default();
        let uses_router = sections.iter().any(|section| section.uses_job_router);
        // Without a version these are not the metrics of a runner.
        let ended_jobs = metrics
            .version
            .is_some()
            .then_some(EndedJobs { succeeded: memory.succeeded, failed: metrics.jobs_failed });
        let count = jobs.as_ref().map(Vec::len).or(metrics.jobs);
        memory.count_jobs(count, Moment::now());
        debug!({ key::LEVEL } = ?level, { key::REASONS } = ?reasons, "probe finished");
        Health {
            child: Some(child),
            suspended,
            quit_problem,
            level,
            level_max,
            reasons,
            version: metrics.version,
            revision: metrics.revision,
            process_state: metrics.process_state,
            sections: config.ok().map(|config| config.sections.len()),
            polling_sections: config.ok().map(|config| memory.polls.polling(config)),
            rejected_sections: config.ok().map(|_| memory.polls.rejected()),
            jobs: count,
            oldest: jobs.as_deref().and_then(oldest),
            fewer_jobs: memory.fewer_jobs,
            ended_jobs,
            concurrent: config.ok().and_then(|config| config.concurrent),
            verified,
            job_router: metrics.router.filter(|_| uses_router),
            worker_groups: worker_groups(sections),
            last_poll: memory.last_poll,
            aborts_jobs: memory.aborts_jobs,
            shutdown_timeout: memory.shutdown_timeout,
            config: read.as_ref().ok().cloned(),
            ..Health::default()
        }
    }

    async fn ask(&self, server: &Server) -> Answers {
        let endpoint = &server.endpoint;
        let (ready, page) = match self.pages(server).await {
            Ok(pages) => pages,
            Err(error) => {
                let fault = match error {
                    GetError::NotRunner(_) => error.to_string(),
                    error => format!("cannot reach the runner's HTTP server at {endpoint}: {error}"),
                };
                return Answers { fault: Some(fault), ..Answers::default() };
            }
        };
        let ready = match ready {
            (StatusCode::OK, text) => Some((true, text.trim().to_owned())),
            (StatusCode::SERVICE_UNAVAILABLE, text) => Some((false, text.trim().chars().take(200).collect())),
            // An older runner.
            _ => None,
        };
        let status = page.status;
        let fault = (status != StatusCode::OK).then(|| {
            // For example two sections with one token: the runner then has two metrics of the same name.
            let text: String = page.beginning.trim().chars().take(300).collect();
            format!("cannot read the runner's metrics at {endpoint}: HTTP status {status}: {text:?}")
        });
        Answers { fault, ready, metrics: page.metrics }
    }

    async fn pages(&self, server: &Server) -> Result<((StatusCode, String), MetricsPage), GetError> {
        let ready = self.http.get(server, "/health/ready").await?;
        let (mut metrics, mut beginning) = (RunnerMetrics::default(), String::new());
        let line = |line: &str| {
            if beginning.len() < BEGINNING {
                beginning.push_str(line);
                beginning.push(' ');
            }
            metrics.add_line(line);
            ControlFlow::Continue(())
        };
        let status = self.http.lines(server, "/metrics", line).await?;
        Ok((ready, MetricsPage { status, metrics, beginning }))
    }
}

/// Publishes the result of a probe, and returns the previous level.
fn publish(published: &watch::Sender<Health>, health: Health) -> Level {
    let mut before = Level::None;
    published.send_modify(|now| {
        before = now.level;
        let unbound = std::mem::take(&mut now.unbound);
        *now = Health { unbound, ..health };
    });
    before
}

/// The response for `/metrics`.
struct MetricsPage {
    status: StatusCode,
    metrics: RunnerMetrics,
    /// Its first lines, as one. For an error, they say what is wrong.
    beginning: String,
}

/// Lines of a response are kept up to this number of bytes.
const BEGINNING: usize = 1000;

/// Uptime of a child that is not stopping.
fn uptime(state: &State, child: ChildInfo) -> Option<Duration> {
    matches!(state, State::Running { .. }).then(|| child.started.elapsed())
}

fn worker_groups(sections: &[Section]) -> Vec<String> {
    let groups: BTreeSet<_> = sections.iter().filter_map(|section| section.worker_group.clone()).collect();
    groups.into_iter().collect()
}

fn oldest(jobs: &[Job]) -> Option<Oldest> {
    let job = jobs.iter().max_by_key(|job| job.duration)?;
    let started = Instant::now().checked_sub(job.duration)?;
    Some(Oldest { started, stage: job.stage.clone() })
}

/// Waits for the next probe; without a child it never returns.
async fn pause(now: &Supervision, health: &Health, interval: Duration) {
    match &now.state {
        State::Idle | State::Starting { .. } | State::Backoff { .. } | State::Exited { .. } => {
            std::future::pending::<()>().await;
        }
        State::Running { child, .. }
            if health.level >= Level::Polling.min(health.level_max)
                || child.started.elapsed() > START_PERIOD =>
        {
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
    use crate::daemon::health::runner_source::Source;

    #[test]
    fn panic_of_a_probe_is_a_health_reason() {
        // No thread can be created with a stack of this size, so that the lookup of `localhost` panics.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().thread_stack_size(usize::MAX / 4).build().unwrap();
        let listen_address = Some("localhost:1".to_owned());
        let source = Source { config: "/nonexistent".into(), listen_address, is_single: false };
        let settings = Settings { source, min_uptime: Duration::ZERO, interval: Settings::INTERVAL };
        let child = ChildInfo::example(std::process::id());
        let state = State::Running { child, reload: None };
        let supervision = Supervision { state, ..Supervision::default() };
        let prober = Prober::new(settings);
        let health = runtime.block_on(prober.probe_without_panic(&supervision, &mut Memory::default()));
        assert_eq!((health.child, health.reasons), (Some(child), vec!["the probe panicked".to_owned()]));
    }
}
