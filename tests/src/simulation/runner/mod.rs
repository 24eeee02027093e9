//! The model of `gitlab-runner`: what it does with jobs and signals, as measured with GitLab Runner 19.4 (the stand-in `lab::runner` has the same
//! properties in a real process).
//!
//! - It installs its signal handlers some time after exec. SIGQUIT before that ends it with code 2, SIGTERM and SIGHUP end it by the signal.
//! - It gives one section after the other its turn ([`feed`]).
//! - SIGQUIT cancels its open job requests. A job that GitLab has assigned to one, or still assigns to it, is lost: GitLab shows it as running.
//! - It lists a job that has ended until GitLab has received its result, and drops the result after some failed attempts.
//! - After SIGQUIT it finishes its jobs, and exits with code 0. SIGTERM aborts them, and it exits after their cleanup, or after `shutdown_timeout`
//!   with code 1. Each further SIGTERM or SIGQUIT ends it at once.

mod feed;
mod page;
mod setup;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use grit_wrapper::supervise::process::Exit;
use tokio::time::Instant;

pub(super) use setup::{Kind, Setup, runner_id};

/// The next request, and the next probe.
const SEEN_AFTER: Duration = Duration::from_secs(20);

/// The phase of a runner process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The process does not execute the runner yet.
    BeforeExec,
    /// Its signal handlers are not installed yet.
    Loading,
    Working,
    /// After SIGQUIT.
    Finishing,
    /// After SIGTERM.
    Aborting,
    /// It exits soon, for another reason.
    Exiting,
}

/// With a longer cleanup, the process itself hangs.
pub(super) const HANGS: Duration = Duration::from_secs(300);

/// One runner process.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    pub(super) pid: u32,
    pub(super) mode: Mode,
    pub(super) started: Instant,
    pub(super) jobs: BTreeSet<u64>,
    /// How long its jobs need to abort after SIGTERM. Longer than the wrapper's limit in some runs.
    pub(super) cleanup: Duration,
    /// It does not exit after its last job.
    pub(super) hangs: bool,
    pub(super) setup: Setup,
    pub(super) sections: Vec<Section>,
    /// The failed reports of each job that has ended.
    reports: BTreeMap<u64, u32>,
    /// When it has dropped the last result of a job.
    pub(super) dropped: Option<Instant>,
    /// It has reported the end of a job in the last attempt.
    pub(super) reported_late: bool,
    /// When each job has begun.
    since: BTreeMap<u64, Instant>,
    /// The section of each job.
    section_of: BTreeMap<u64, usize>,
    /// The section that had the last turn, and waits for a free worker.
    waiting: Option<usize>,
    /// Completed requests through the job router.
    routed: u64,
}

/// The state of a `[[runners]]` section, and its counters.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) requests: Vec<Request>,
    /// Received jobs whose first report is on its way: their requests still count as open.
    reporting: usize,
    /// When the number of its open requests last became smaller.
    closed: Instant,
    /// What GitLab has sent last as `last_update`.
    last_update: Option<u64>,
    feeds: u64,
    /// Jobs whose first report has arrived.
    begun: u64,
    /// Requests that SIGQUIT has cancelled, and when the runner counts them.
    cancelled: Option<(Instant, u64)>,
    accepted: u64,
    rejected: u64,
    unanswered: u64,
    other: u64,
    /// When a request had no good reply, last.
    refused: Option<Instant>,
    /// Failed health checks in a row, the time of the last good one, and all of them.
    failures: u64,
    checked: Instant,
    health_failures: u64,
    jobs_ended: u64,
}

/// An open job request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) opened: Instant,
}

impl Runner {
    pub(super) fn new(pid: u32, setup: Setup, cleanup: Duration, hangs: bool) -> Self {
        let started = Instant::now();
        let section = Section {
            requests: Vec::new(),
            reporting: 0,
            closed: started,
            last_update: None,
            feeds: 0,
            begun: 0,
            cancelled: None,
            accepted: 0,
            rejected: 0,
            unanswered: 0,
            other: 0,
            refused: None,
            failures: 0,
            checked: started,
            health_failures: 0,
            jobs_ended: 0,
        };
        Self {
            pid,
            mode: Mode::BeforeExec,
            started,
            jobs: BTreeSet::new(),
            cleanup,
            hangs,
            sections: vec![section; setup.sections],
            setup,
            reports: BTreeMap::new(),
            dropped: None,
            reported_late: false,
            since: BTreeMap::new(),
            section_of: BTreeMap::new(),
            waiting: None,
            routed: 0,
        }
    }

    /// Whether its limit for the cleanup after SIGTERM ends before its jobs: they live on, and GitLab shows them as running.
    pub(super) fn leaves_jobs(&self) -> bool {
        !self.jobs.is_empty() && (self.setup.shutdown_timeout..HANGS).contains(&self.cleanup)
    }

    /// When it exits after SIGTERM, and how.
    pub(super) fn cleanup_end(&self) -> (Duration, Exit) {
        match self.leaves_jobs() {
            true => (self.setup.shutdown_timeout, Exit::Code(1)),
            false => (self.cleanup, Exit::Code(0)),
        }
    }

    /// A worker is busy from the beginning of a request to the end of its job.
    fn has_free_worker(&self) -> bool {
        let requests: usize = self.sections.iter().map(|section| section.requests.len()).sum();
        requests + self.jobs.len() < self.setup.concurrent
    }

    /// Its workers without a job; `None` if it does not take jobs.
    pub(super) fn free_workers(&mut self) -> Option<usize> {
        let takes_jobs = self.mode == Mode::Working
            && self.accepted_requests() > 0
            && self.sections.iter_mut().any(|section| section.is_healthy());
        takes_jobs.then(|| self.setup.concurrent.saturating_sub(self.jobs.len()))
    }

    /// Whether it takes jobs with each of its sections, and has done so, and a probe has seen it since. health: "a section has sent no request yet, all slots have jobs, and another
    /// section polls: the wrapper ignores the section", until a slot is free.
    pub(super) fn is_healthy(&mut self) -> bool {
        let started = self.started;
        let takes_jobs = |section: &mut Section| {
            let is_refused = section.refused.is_some_and(|at| at.elapsed() < SEEN_AFTER);
            section.checked > started && section.is_healthy() && !is_refused
        };
        self.free_workers().is_some() && self.sections.iter_mut().all(takes_jobs)
    }

    /// The job requests of this process that GitLab has accepted.
    pub(super) fn accepted_requests(&self) -> u64 {
        self.routed + self.sections.iter().map(|section| section.accepted).sum::<u64>()
    }

    /// The runner has lost its open requests: their numbers.
    pub(super) fn take_requests(&mut self) -> Vec<Request> {
        self.sections.iter_mut().flat_map(|section| std::mem::take(&mut section.requests)).collect()
    }

    /// SIGQUIT cancels its open requests: their numbers. It counts them at this moment.
    pub(super) fn cancel_requests(&mut self, counted: Instant) -> Vec<Request> {
        for section in &mut self.sections {
            if !section.requests.is_empty() {
                section.cancelled = Some((counted, section.requests.len() as u64));
            }
        }
        self.take_requests()
    }

    /// Whether the last request of a section ended between two reads of its metrics, so that only the second one shows none.
    pub(super) fn has_closed_between(&self, first: Option<Instant>, second: Instant) -> bool {
        self.sections.iter().any(|section| {
            let is_after_first = first.is_none_or(|first| first < section.closed);
            let was_open = section.requests.iter().any(|open| open.opened <= second);
            is_after_first && section.closed < second && !was_open && section.reporting == 0
        })
    }

    /// A job is over, for the runner.
    fn forget(&mut self, job: u64) {
        self.jobs.remove(&job);
        self.reports.remove(&job);
        self.since.remove(&job);
    }

    /// Since when it has no open request; `None` if one is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_open = |section: &Section| !section.requests.is_empty() || section.reporting > 0;
        let closed = self.sections.iter().map(|section| section.closed).max();
        closed.filter(|_| !self.sections.iter().any(is_open))
    }

    pub(super) fn has_open_request(&self) -> bool {
        self.sections.iter().any(|section| !section.requests.is_empty())
    }
}
