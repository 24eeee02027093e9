//! Finds a gap between the runner's job requests, for SIGQUIT.
//!
//! At SIGQUIT the runner cancels its open job requests. GitLab may have assigned a job to one of them: it then shows the job as running until its
//! timeout, but the runner never runs it. GitLab assigns a job when it handles a request, so that two kinds of sections can lose none:
//! - a section without an open request. Between the response to a request, or the end of a job, and the next request, the gauge is also 0 for a
//!   moment, so that a value counts only if the next read shows the same one, and no request and no job has ended in between;
//! - a section whose open requests are so old that GitLab only holds them (long polling). It responds to them without a job. The gauge counts a
//!   request until the job in its response was reported to GitLab, and the next request follows immediately: with each job, the age begins again.
//!
//! The runner reports the open requests of each section: `gitlab_runner_request_concurrency`.
//!
//! The probes read the same metrics every few seconds, so that the age of a held request is often known when a drain begins.
//!
//! Some milliseconds pass between a read and the signal, and the runner must not begin a request in this time. It gives the sections their turns at
//! a fixed interval, so that the next turn is known after one was seen (`gitlab_runner_worker_feeds_total`): SIGQUIT is not sent just before it.
//! But a job can end at any time, and the next request follows immediately. After SIGQUIT, the counters of the runner show how many requests the
//! signal has cancelled ([`cancelled`]).

mod cancelled;
mod decision;
mod read;
mod sections;
mod turns;

#[cfg(test)]
mod tests;

use std::{
    ops::ControlFlow,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use hyper::StatusCode;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};

use self::decision::REPORT_INTERVAL;
use self::decision::{AfterSignal, Gap, Report};
pub(super) use self::read::Read;
use super::{
    access::Access, http_client::Server, runner_config::RunnerConfig, runner_metrics::RunnerMetrics,
};
use crate::supervise::{ChildInfo, Handle, Moment, Phase, RequestsRead, State, Supervision};

/// The pause between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// The pauses after SIGQUIT: the runner needs some milliseconds, and then little changes. The longest one, and the first one, which doubles.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The metrics that are read. The runner sorts its metrics by name, so that nothing follows the last one.
const READ: [&str; 9] = [
    "gitlab_runner_api_request_statuses_total",
    "gitlab_runner_job_router_get_job_duration_seconds_count",
    "gitlab_runner_jobs",
    "gitlab_runner_jobs_total",
    "gitlab_runner_process_state_info",
    "gitlab_runner_request_concurrency",
    "gitlab_runner_request_concurrency_hard_limit",
    "gitlab_runner_worker_feeds_total",
    LAST,
];
const LAST: &str = "gitlab_runner_worker_processing_failures_total";

/// What all reads of the present child have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<Gap>>);

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Gap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the read of a probe.
    pub(super) fn add(&self, child: ChildInfo, read: &Read<'_>, config: Option<&RunnerConfig>) {
        self.lock().probe(child, read, config);
    }
}

/// Reports the open job requests of a runner that is to receive SIGQUIT, and the requests that SIGQUIT has cancelled.
#[derive(Debug)]
pub struct RequestGap {
    access: Arc<dyn Access>,
    seen: Seen,
}

/// The part of a graceful stop that the reads are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Before SIGQUIT, which is sent in a gap from the first moment on, at the latest at the second one.
    Waiting(Moment, Moment),
    /// SIGQUIT was sent at this moment. `again`: an earlier wrapper may also have sent it.
    Signalled { at: Moment, again: bool },
}

impl RequestGap {
    pub(super) fn new(access: Arc<dyn Access>, seen: Seen) -> Self {
        Self { access, seen }
    }

    /// Reports during every graceful stop, until the supervisor exits.
    pub async fn run(self, supervisor: Handle) {
        let mut supervision = supervisor.watch();
        loop {
            let stops = supervision.wait_for(|now| part(now).is_some()).await;
            let Some((child, _)) = stops.ok().and_then(|now| part(&now)) else { return };
            tokio::select! {
                biased;
                _ended = supervision.wait_for(|now| part(now).is_none_or(|(now, _)| now != child)) => {}
                () = self.report(child, &supervisor) => {}
            }
            self.seen.lock().end();
        }
    }

    /// Never returns.
    async fn report(&self, child: ChildInfo, supervisor: &Handle) {
        self.access.note_process(child.pid()).await;
        let config = self.access.config().await.ok();
        let Some(endpoint) = self.access.endpoint(config.as_deref()) else {
            loop {
                let ended = Moment::now();
                supervisor.job_requests(child, RequestsRead { ended, open: None, may_begin: false });
                sleep(REPORT_INTERVAL).await;
            }
        };
        let server = Server { endpoint, runner: child };
        self.seen.lock().follow(child);
        let mut supervision = supervisor.watch();
        let mut current = None;
        let (mut after, mut pause) = (None, READ_INTERVAL);
        loop {
            // SIGQUIT is not sent yet: until then, the reads of the probes count.
            let waits = part(&supervision.borrow_and_update());
            if let Some((_, now @ Part::Waiting(not_before, _))) = waits
                && Instant::now() < not_before.at
            {
                self.seen.lock().end();
                tokio::select! {
                    biased;
                    _other = supervision.wait_for(|state| part(state).map(|(_, part)| part) != Some(now)) => {}
                    () = sleep_until(not_before.at) => {}
                }
                self.seen.lock().follow(child);
                continue;
            }
            let began = Instant::now();
            // The lookup of a name panics if there are no more threads, as for a probe.
            let metrics = AssertUnwindSafe(self.read(&server)).catch_unwind().await.ok().flatten();
            let ended = Moment::now();
            let read = metrics.as_ref().map(|metrics| Read { metrics, began, ended: ended.at });
            let Some((_, now)) = part(&supervision.borrow_and_update()) else { return };
            if current.replace(now) != Some(now) {
                self.begin(child, now, &mut after);
                pause = if after.is_some() { FIRST_PAUSE } else { READ_INTERVAL };
            }
            match (&mut after, &read) {
                (None, read) => {
                    self.wait(child, read.as_ref(), config.as_deref(), ended, supervisor);
                }
                (Some(after), Some(read)) => {
                    self.seen.lock().add(child, read, config.as_deref());
                    if let Some(cancelled) = after.add(read) {
                        supervisor.cancelled_requests(child, cancelled);
                    }
                }
                (Some(_), None) => {}
            }
            tokio::select! {
                biased;
                _other = supervision.wait_for(|state| part(state).map(|(_, part)| part) != Some(now)) => {}
                () = sleep(pause) => {}
            }
            if after.is_some() {
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    fn begin(&self, child: ChildInfo, part: Part, after: &mut Option<AfterSignal>) {
        let mut seen = self.seen.lock();
        *after = match part {
            Part::Waiting(..) => {
                seen.begin_wait(child);
                None
            }
            Part::Signalled { at, again } => Some(AfterSignal::new(&seen, child, at.at, again)),
        };
    }

    fn wait(
        &self,
        child: ChildInfo,
        read: Option<&Read<'_>>,
        config: Option<&RunnerConfig>,
        ended: Moment,
        supervisor: &Handle,
    ) {
        let Some(report) = self.seen.lock().wait(child, read, config, ended.at) else { return };
        let (open, may_begin) = (report.number(), report.may_begin());
        // First: each millisecond counts.
        supervisor.job_requests(child, RequestsRead { ended, open, may_begin });
        if let Report::FirstOpen(open) = report {
            info!(pid = child.pid(), open_requests = open, "delaying SIGQUIT until no job request is open");
        }
    }

    /// The metrics of job requests; `None` if they cannot be read.
    async fn read(&self, server: &Server) -> Option<RunnerMetrics> {
        let mut metrics = RunnerMetrics::default();
        let mut line = |line: &str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            if READ.contains(&name) {
                metrics.add_line(line);
            }
            if name > LAST { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.access.lines(server, "/metrics", &mut line).await {
            Ok(status) => (status == StatusCode::OK).then_some(metrics),
            Err(error) => {
                debug!(%error, "cannot read the open job requests");
                None
            }
        }
    }
}

/// The child that is to receive SIGQUIT in a gap, or that has received it.
fn part(supervision: &Supervision) -> Option<(ChildInfo, Part)> {
    let State::Stopping { child, phase, .. } = &supervision.state else { return None };
    match phase {
        Phase::AwaitingGap { not_before, until, .. } => Some((*child, Part::Waiting(*not_before, *until))),
        Phase::Draining { since, repeated } => {
            Some((*child, Part::Signalled { at: *since, again: *repeated }))
        }
        _ => None,
    }
}
