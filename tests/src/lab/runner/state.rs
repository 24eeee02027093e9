//! The state, jobs and counters of the process. Endpoints read them, workers write them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    config::{Config, Section},
    options::Version,
};
use crate::lab::queue::{JobId, serve::ReportedState};

/// As `/debug/process/state` spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessState {
    Starting,
    Running,
    GracefulShutdown,
    ForcefulShutdown,
}

impl ProcessState {
    pub(super) fn name(self) -> &'static str {
        match self {
            ProcessState::Starting => "starting",
            ProcessState::Running => "running",
            ProcessState::GracefulShutdown => "graceful-shutdown",
            ProcessState::ForcefulShutdown => "forceful-shutdown",
        }
    }
}

/// Why a job failed. No script of a stand-in's job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureReason {
    /// A forceful shutdown aborted it.
    Interrupted,
    SystemFailure,
}

impl FailureReason {
    /// As upstream, before 19.1 an abort has no reason of its own.
    pub(super) fn of_abort(version: Version) -> FailureReason {
        if version.has_process_state() { FailureReason::Interrupted } else { FailureReason::SystemFailure }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            FailureReason::Interrupted => "runner_interrupted",
            FailureReason::SystemFailure => "runner_system_failure",
        }
    }
}

/// A running job.
#[derive(Debug, Clone)]
pub(super) struct RunningJob {
    pub(super) id: JobId,
    pub(super) section: Section,
    pub(super) since: Instant,
    /// How it has ended. It is listed until GitLab has its result.
    pub(super) end: Option<ReportedState>,
}

impl RunningJob {
    /// Its state, stage and executor stage, as upstream names them.
    pub(super) fn stages(&self) -> [(&'static str, &'static str); 3] {
        let (state, stage, executor_stage) = match self.end {
            None | Some(ReportedState::Running) => ("running", "step_script", "docker_run"),
            Some(ReportedState::Success) => ("success", "cleanup_file_variables", "cleanup"),
            Some(ReportedState::Failed) => ("failed", "cleanup_file_variables", "cleanup"),
        };
        [("state", state), ("stage", stage), ("executor_stage", executor_stage)]
    }
}

/// What a section occupies now, and what it could not get.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Running jobs and open requests: what `limit` limits.
    pub(super) jobs: usize,
    /// Open requests. As upstream, a request is open until the job in its response has been reported as running.
    pub(super) requests: usize,
    /// Requests that were not sent, because there were as many as `request_concurrency`.
    pub(super) exceeded: usize,
}

/// The health of a section.
#[derive(Debug)]
pub(super) struct Health {
    /// Refused requests in a row.
    pub(super) failures: usize,
    /// The last request that was not refused. A section that is disabled becomes healthy a time after this.
    pub(super) checked: Instant,
}

impl Default for Health {
    fn default() -> Health {
        Health { failures: 0, checked: Instant::now() }
    }
}

/// The state shared by all tasks.
#[derive(Debug)]
pub(super) struct State {
    inner: Mutex<Inner>,
    /// Notified when a worker becomes free or the configuration changes.
    pub(super) changed: Notify,
    /// A graceful or forceful shutdown has begun: no new jobs.
    pub(super) stopping: CancellationToken,
    /// A forceful shutdown has begun: running jobs are aborted.
    pub(super) aborting: CancellationToken,
}

/// The locked part.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) process: ProcessState,
    pub(super) boot_verified: bool,
    pub(super) config: Config,
    pub(super) config_loads: usize,
    pub(super) config_errors: usize,
    pub(super) jobs: Vec<RunningJob>,
    /// Workers that process a section: with an open request or a running job.
    pub(super) busy_workers: usize,
    /// By token.
    pub(super) counts: BTreeMap<String, Counts>,
    /// By URL and short token. A reload of the configuration clears it.
    pub(super) health: BTreeMap<String, Health>,
    /// The last `last_update` of GitLab, by token.
    pub(super) last_updates: BTreeMap<String, u64>,
    /// Number of ended jobs by token. As upstream, a job counts after the report of its end.
    pub(super) jobs_ended: BTreeMap<String, usize>,
    /// Number of failed jobs by token. As upstream, a job counts before the report of its end.
    pub(super) jobs_failed: BTreeMap<(String, FailureReason), usize>,
    /// Requests through the job router that were completed, and those that were sent to GitLab directly.
    pub(super) routed: usize,
    pub(super) fallbacks: usize,
    /// The circuit breaker of the job router is open.
    pub(super) breaker_open: bool,
    /// Number of started jobs, by token.
    pub(super) jobs_total: BTreeMap<String, usize>,
    /// Responses by token, endpoint, status, method. As upstream, the status of a request without a valid response is -1.
    pub(super) statuses: BTreeMap<(String, &'static str, i32, &'static str), usize>,
    /// Failed health checks of a section, by token.
    pub(super) health_failures: BTreeMap<String, usize>,
    /// How often a section was fed to the workers, by token.
    pub(super) feeds: BTreeMap<String, usize>,
}

impl State {
    pub(super) fn new(config: Config) -> State {
        State {
            inner: Mutex::new(Inner {
                process: ProcessState::Starting,
                boot_verified: false,
                config,
                config_loads: 1,
                config_errors: 0,
                jobs: Vec::new(),
                busy_workers: 0,
                counts: BTreeMap::new(),
                health: BTreeMap::new(),
                last_updates: BTreeMap::new(),
                jobs_ended: BTreeMap::new(),
                jobs_failed: BTreeMap::new(),
                routed: 0,
                fallbacks: 0,
                breaker_open: false,
                jobs_total: BTreeMap::new(),
                statuses: BTreeMap::new(),
                health_failures: BTreeMap::new(),
                feeds: BTreeMap::new(),
            }),
            changed: Notify::new(),
            stopping: CancellationToken::new(),
            aborting: CancellationToken::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a response of the job queue.
    pub(super) fn count_answer(
        &self,
        token: &str,
        endpoint: &'static str,
        status: i32,
        method: &'static str,
    ) {
        *self.lock().statuses.entry((token.to_owned(), endpoint, status, method)).or_default() += 1;
    }
}
