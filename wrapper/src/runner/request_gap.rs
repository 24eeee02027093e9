//! Finds a gap between the runner's job requests, for SIGQUIT.
//!
//! At SIGQUIT the runner cancels its open job requests. GitLab may have assigned a job to one of them: it then shows the job as running until its
//! timeout, but the runner never runs it. GitLab assigns a job when it handles a request, so that two kinds of sections can lose none:
//! - a section without an open request. Between the response to a request and the next request, the gauge is also 0 for a moment, so that a value
//!   counts only if the next read shows the same one, and no request has ended in between;
//! - a section whose open requests are so old that GitLab only holds them (long polling). It responds to them without a job. The gauge counts a
//!   request until the job in its response was reported to GitLab, and the next request follows immediately: with each job, the age begins again.
//!
//! The runner reports the open requests of each section: `gitlab_runner_request_concurrency`.
//!
//! Some milliseconds pass between a read and the signal, and the runner must not begin a request in this time. It gives the sections their turns at
//! a fixed interval, so that the next turn is known after one was seen (`gitlab_runner_worker_feeds_total`): SIGQUIT is not sent just before it.

mod decision;

use std::{ops::ControlFlow, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use hyper::StatusCode;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use self::decision::REPORT_INTERVAL;
pub(crate) use self::decision::{Gap, Report};
use super::{
    config_reader::Reader,
    http_client::{Http, Server},
    runner_metrics::RunnerMetrics,
};
use crate::supervise::{ChildInfo, Handle, Phase, State, Supervision, log_key as key};

/// The pause between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// The metric with the open requests. The runner sorts its metrics by name.
const GAUGE: &str = "gitlab_runner_request_concurrency";

/// The metric with the running jobs.
const JOBS: &str = "gitlab_runner_jobs";

/// The metric with all jobs since the runner's start.
const BEGUN: &str = "gitlab_runner_jobs_total";

/// The number of turns is the last metric that is read.
const FEEDS: &str = "gitlab_runner_worker_feeds_total";

/// The metrics with the requests that have ended.
const ENDED: [&str; 2] =
    ["gitlab_runner_api_request_statuses_total", "gitlab_runner_job_router_get_job_duration_seconds_count"];

/// Reports the open job requests of a runner that is to receive SIGQUIT.
#[derive(Debug)]
pub struct RequestGap {
    reader: Reader,
    http: Http,
}

impl RequestGap {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, http: Http::default() }
    }

    /// Reports during every wait of the supervisor, until the supervisor exits.
    pub async fn run(self, supervisor: Handle) {
        let mut supervision = supervisor.watch();
        loop {
            let waits = supervision.wait_for(|now| waiting(now).is_some()).await;
            let Some(child) = waits.ok().and_then(|now| waiting(&now)) else { return };
            tokio::select! {
                biased;
                // After this wait there may be another one for the same child.
                _ended = supervision.wait_for(|now| waiting(now) != Some(child)) => {}
                () = self.report(child, &supervisor) => {}
            }
        }
    }

    /// Never returns.
    async fn report(&self, child: ChildInfo, supervisor: &Handle) {
        let config = self.reader.read().await.ok();
        let Some(endpoint) = self.reader.endpoint(config.as_deref()) else {
            loop {
                supervisor.job_requests(child, None);
                sleep(REPORT_INTERVAL).await;
            }
        };
        let server = Server { endpoint, runner: child };
        let mut gap = Gap::new(config.as_deref(), Instant::now());
        loop {
            // The lookup of a name panics if there are no more threads, as for a probe.
            let read = AssertUnwindSafe(self.read(&server)).catch_unwind().await.ok().flatten();
            if let Some(report) = gap.add(read.as_ref(), Instant::now()) {
                if let Report::FirstOpen(open) = report {
                    info!(
                        { key::PID } = child.pid(),
                        { key::OPEN_REQUESTS } = open,
                        "delaying SIGQUIT until no job request is open"
                    );
                }
                supervisor.job_requests(child, report.number());
            }
            sleep(READ_INTERVAL).await;
        }
    }

    /// The metrics of job requests; `None` if they cannot be read.
    async fn read(&self, server: &Server) -> Option<RunnerMetrics> {
        let mut metrics = RunnerMetrics::default();
        let line = |line: &str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            if [GAUGE, JOBS, BEGUN, FEEDS].contains(&name) || ENDED.contains(&name) {
                metrics.add_line(line);
            }
            if name > FEEDS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.http.lines(server, "/metrics", line).await {
            Ok(status) => (status == StatusCode::OK).then_some(metrics),
            Err(error) => {
                debug!({ key::ERROR } = %error, "cannot read the open job requests");
                None
            }
        }
    }
}

/// The child that is to receive SIGQUIT in a gap.
fn waiting(supervision: &Supervision) -> Option<ChildInfo> {
    match supervision.state {
        State::Stopping { child, phase: Phase::AwaitingGap { .. }, .. } => Some(child),
        _ => None,
    }
}
