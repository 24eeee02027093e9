//! The interface for the simulation of the workspace: what surrounds the core of the supervisor in the real program.

use std::sync::Arc;

use grit_proto::wrapper_v1 as v1;
use tokio::time::Instant;

use crate::{
    daemon,
    runner::{self, Evidence, Health, RunnerMetrics},
    supervise::{ChildInfo, Event, Moment, Observation, RequestsCancelled, RequestsRead, Stop, Supervision},
};

/// The configuration of a runner, as the wrapper reads it.
#[derive(Clone, Debug)]
pub struct RunnerConfig(Arc<runner::RunnerConfig>);

/// What the probes of one wrapper have found, and the reads before and after SIGQUIT.
#[derive(Debug, Default)]
pub struct Probes {
    evidence: Evidence,
    health: Health,
    page: Page,
    gap: runner::Gap,
    requests_page: Page,
    after: Option<runner::AfterSignal>,
}

/// The page of metrics of the last read. It is often that of the next one, too.
#[derive(Debug, Default)]
struct Page {
    text: String,
    metrics: RunnerMetrics,
}

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

impl Probes {
    /// A wait for a gap between job requests begins.
    pub fn begin_wait(&mut self, child: ChildInfo) {
        self.gap.begin_wait(child);
        self.after = None;
    }

    /// A read of the runner's metrics in this wait, which has begun at this moment, has ended, or has failed. Returns what to report, if anything.
    pub fn wait(
        &mut self,
        child: ChildInfo,
        config: &RunnerConfig,
        page: Option<&str>,
        began: Instant,
    ) -> Option<RequestsRead> {
        let ended = Moment::now();
        let metrics = page.map(|page| self.requests_page.read(page));
        let read = metrics.map(|metrics| runner::Read { metrics, began, ended: ended.at });
        let report = self.gap.wait(child, read.as_ref(), Some(&*config.0), ended.at)?;
        Some(RequestsRead { ended, open: report.number(), may_begin: report.may_begin() })
    }

    /// SIGQUIT was sent at this moment. `again`: perhaps also by an earlier wrapper.
    pub fn signalled(&mut self, child: ChildInfo, at: Instant, again: bool) {
        self.gap.follow(child);
        self.after = Some(runner::AfterSignal::new(&self.gap, child, at, again));
    }

    /// The stop is over, or was cancelled.
    pub fn end_reads(&mut self) {
        self.gap.end();
    }

    /// A read after SIGQUIT. Returns what to report, if anything.
    pub fn after_signal(
        &mut self,
        child: ChildInfo,
        page: &str,
        began: Instant,
    ) -> Option<RequestsCancelled> {
        let metrics = self.requests_page.read(page);
        let read = runner::Read { metrics, began, ended: Instant::now() };
        self.gap.add(child, &read);
        self.after.as_mut()?.add(&read)
    }

    /// Before the first probe, and before the wrapper serves clients, as `Prober::read_config`.
    pub fn read_config(&mut self, config: &RunnerConfig) {
        self.health.evidence.config = Some(Ok(Arc::clone(&config.0)));
    }

    /// What the last probe has shown of its child, for the supervisor.
    pub fn observation(&self) -> Option<(ChildInfo, Observation)> {
        let evidence = &self.health.evidence;
        Some((evidence.child?, evidence.observation()))
    }

    /// A probe, which reads this page of the runner's metrics and this list of its jobs. Without them, its HTTP server does not respond.
    pub fn probe(&mut self, supervision: &Supervision, config: &RunnerConfig, pages: Option<(&str, &str)>) {
        let config = Ok(Arc::clone(&config.0));
        let has_server = config.as_ref().is_ok_and(|config| config.listen_address.is_some());
        let Some(child) = supervision.state.child() else {
            self.evidence = Evidence { config: Some(config), ..Evidence::default() };
            self.health = Health { evidence: self.evidence.clone(), ..Health::default() };
            return;
        };
        self.evidence.begin(child, config);
        self.evidence.has_server = has_server;
        let asked = Moment::now();
        match pages {
            Some((page, _)) => {
                let (metrics, now) = (self.page.read(page), Instant::now());
                self.gap.probe(child, &runner::Read { metrics, began: now, ended: now });
                self.evidence.metrics.clone_from(metrics);
                self.evidence.ready = Some((true, "OK".to_owned()));
            }
            None => self.evidence.fault = has_server.then(|| "no response".to_owned()),
        }
        let jobs = pages.map(|(_, list)| runner::parse_jobs(list));
        self.evidence.add_jobs(jobs.as_deref(), asked, &supervision.state);
        self.health = Health::of(supervision, child, &mut self.evidence);
    }

    /// The level of the last probe.
    pub fn level(&self) -> v1::Level {
        self.health.level
    }

    /// The maximum level of the last probe.
    pub fn level_max(&self) -> v1::Level {
        self.health.level_max
    }

    /// The status that clients receive for this state.
    pub fn status(&self, supervision: &Supervision) -> v1::Status {
        daemon::status::status(supervision, &self.health)
    }
}

impl Page {
    fn read(&mut self, text: &str) -> &RunnerMetrics {
        if self.text != text {
            let mut metrics = RunnerMetrics::default();
            text.lines().for_each(|line| metrics.add_line(line));
            *self = Self { text: text.to_owned(), metrics };
        }
        &self.metrics
    }
}

/// The stop that a request describes.
///
/// # Errors
///
/// The text for the client, if the request is invalid.
pub fn requested_stop(request: &v1::DrainRequest) -> Result<Stop, String> {
    daemon::control::requested_stop(request).map_err(|error| error.to_string())
}

/// Whether others than the wrapper may not start the runner in this state.
#[must_use]
pub fn is_held(supervision: &Supervision) -> bool {
    supervision.is_held()
}

/// The same while the wrapper looks for a runner, for this request.
#[must_use]
pub fn is_held_by(request: &Event) -> bool {
    request.is_held()
}
