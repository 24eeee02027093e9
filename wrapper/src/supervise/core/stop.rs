//! A stop: who requested it, how the child is stopped, and its outcome. A graceful stop is a drain; the APIs call each stop a drain.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{callback::Callback, end::End, moment::Moment};
use crate::supervise::process::Exit;

/// A request to stop the child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// A request with the same id is the same stop.
    pub id: StopId,
    pub reason: Arc<str>,
    /// The user and the transport of the client, as text.
    pub requested_by: Arc<str>,
    pub requested: Moment,
    /// The mode of the first request. A later request, or the deadline, can make a graceful stop forceful.
    pub requested_mode: Mode,
    pub mode: Mode,
    /// The client whose request made a graceful stop forceful; empty if none did.
    pub forced_by: Arc<str>,
    /// When a graceful stop becomes forceful. There is no default, because a job may take days.
    pub deadline: Option<Moment>,
    /// The callbacks that have neither succeeded, nor failed after all retries.
    pub callbacks: Vec<Callback>,
    /// The child was seen to abort its jobs during the graceful stop.
    pub aborts_jobs: bool,
    /// The child may have given up reporting the end of at least one job to GitLab during the stop.
    #[serde(default)]
    pub lost_results: bool,
    /// Job requests that were open at SIGQUIT; `None` before it, and if the number is unknown. If a previous wrapper may have sent it before, the
    /// higher number.
    pub open_requests: Option<u32>,
    /// The child reports its open requests, but whether some were open at SIGQUIT is not certain. A read after SIGQUIT can show it.
    pub unconfirmed: bool,
    /// `None` while the stop is in progress.
    pub outcome: Option<StopOutcome>,
}

/// The name of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum StopId {
    /// A drain for the shutdown of the wrapper, which a signal requested.
    Signal,
    /// A drain that came through the API of the upstream wrapper, which has no ids.
    Upstream,
    /// The client chose this id.
    Client(Arc<str>),
}

impl StopId {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Signal => "signal",
            Self::Upstream => "upstream",
            Self::Client(id) => id,
        }
    }
}

impl From<&str> for StopId {
    fn from(id: &str) -> Self {
        match id {
            "signal" => Self::Signal,
            "upstream" => Self::Upstream,
            id => Self::Client(Arc::from(id)),
        }
    }
}

impl From<String> for StopId {
    fn from(id: String) -> Self {
        Self::from(id.as_str())
    }
}

impl From<StopId> for String {
    fn from(id: StopId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for StopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Stop {
    /// The maximum number of unfinished callbacks.
    pub const MAX_CALLBACKS: usize = 16;

    /// The maximum deadline. It is longer than any job.
    const MAX_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

    /// A deadline this long after the request.
    #[must_use]
    pub fn within(self, limit: Option<Duration>) -> Self {
        let deadline = limit.map(|limit| self.requested + limit.min(Self::MAX_DEADLINE));
        Self { deadline, ..self }
    }

    /// Whether the stop becomes forceful, because its deadline has passed.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        self.mode == Mode::Graceful && self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// A stop that is requested now, without a deadline or callbacks.
    pub fn new(id: impl Into<StopId>, mode: Mode) -> Self {
        Self {
            id: id.into(),
            reason: Arc::from(""),
            requested_by: Arc::from(""),
            requested: Moment::now(),
            requested_mode: mode,
            mode,
            forced_by: Arc::from(""),
            deadline: None,
            callbacks: Vec::new(),
            aborts_jobs: false,
            lost_results: false,
            open_requests: None,
            unconfirmed: false,
            outcome: None,
        }
    }
}

/// A stop that was cancelled, by whom, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub id: StopId,
    pub by: Arc<str>,
    pub at: Moment,
}

/// How the child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Take no new jobs, finish those that run (SIGQUIT).
    Graceful,
    /// Abort the jobs (SIGTERM, and SIGKILL to the group when that takes too long).
    Forceful,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Forceful => "forceful",
        }
    }
}

/// The result of a stop that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopOutcome {
    /// After a graceful stop the child exited with code 0.
    Clean,
    /// After a forceful stop the child exited with code 0, or after a graceful one that another process made forceful: it sent SIGTERM or
    /// SIGINT to the child.
    JobsAborted,
    /// After a graceful stop the child exited with code 0, but may have given up reporting the end of at least one job to GitLab.
    ResultsLost,
    /// After a graceful stop the child exited with code 0, but job requests were open at SIGQUIT: GitLab may have assigned a job to one of them, which
    /// then never ran.
    OpenRequests,
    /// The child did not exit in time after SIGTERM, and was killed.
    Killed,
    /// The child exited with another code, or by a signal that the wrapper did not send.
    Failed,
    /// The child exited, and its exit status is unknown; or after a graceful stop with exit code 0, whether job requests were open at SIGQUIT is not
    /// certain, although the child reports them.
    Unknown,
    /// No child was running.
    NoRunner,
}

impl StopOutcome {
    pub const ALL: [Self; 8] = [
        Self::Clean,
        Self::JobsAborted,
        Self::ResultsLost,
        Self::OpenRequests,
        Self::Killed,
        Self::Failed,
        Self::Unknown,
        Self::NoRunner,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::JobsAborted => "jobs_aborted",
            Self::ResultsLost => "results_lost",
            Self::OpenRequests => "open_requests",
            Self::Killed => "killed",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::NoRunner => "no_runner",
        }
    }

    /// The outcome of this stop when its child ended this way.
    pub(super) fn of(stop: &Stop, end: &End) -> Self {
        match (end, stop.mode) {
            (End::NeverStarted | End::SpawnFailed(_), _) => Self::NoRunner,
            (End::Exited { killed: true, .. }, _) => Self::Killed,
            (End::Exited { exit: Exit::Unknown, .. }, _) => Self::Unknown,
            (End::Exited { exit, .. }, _) if !exit.is_success() => Self::Failed,
            (End::Exited { .. }, Mode::Forceful) => Self::JobsAborted,
            (End::Exited { .. }, Mode::Graceful) if stop.aborts_jobs => Self::JobsAborted,
            (End::Exited { .. }, Mode::Graceful) if stop.lost_results => Self::ResultsLost,
            (End::Exited { .. }, Mode::Graceful) if stop.open_requests > Some(0) => Self::OpenRequests,
            (End::Exited { .. }, Mode::Graceful) if stop.unconfirmed => Self::Unknown,
            (End::Exited { .. }, Mode::Graceful) => Self::Clean,
        }
    }
}

/// A stop that is over, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStop {
    /// The mode that was requested first.
    pub mode: Mode,
    /// `None` for a cancelled stop.
    pub outcome: Option<StopOutcome>,
}

impl EndedStop {
    pub(super) fn new(stop: &Stop) -> Self {
        Self { mode: stop.requested_mode, outcome: stop.outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exit_code_0_after_graceful_stop_is_clean() {
        let of = |mode, exit, killed| {
            StopOutcome::of(&Stop::new("d", mode), &End::Exited { pid: 1, exit, killed })
        };
        for (mode, exit, killed, outcome) in [
            (Mode::Graceful, Exit::Code(0), false, StopOutcome::Clean),
            (Mode::Graceful, Exit::Code(1), false, StopOutcome::Failed),
            (Mode::Graceful, Exit::Signal(3), false, StopOutcome::Failed),
            (Mode::Graceful, Exit::Unknown, false, StopOutcome::Unknown),
            (Mode::Forceful, Exit::Code(0), false, StopOutcome::JobsAborted),
            (Mode::Forceful, Exit::Code(1), false, StopOutcome::Failed),
            (Mode::Forceful, Exit::Unknown, false, StopOutcome::Unknown),
            (Mode::Forceful, Exit::Signal(9), true, StopOutcome::Killed),
        ] {
            assert_eq!(of(mode, exit, killed), outcome, "{mode:?} {exit:?} {killed}");
        }
        let stop = Stop::new("d", Mode::Graceful);
        assert_eq!(StopOutcome::of(&stop, &End::NeverStarted), StopOutcome::NoRunner);
    }

    #[test]
    fn drain_with_open_job_requests_is_not_clean() {
        let of = |open_requests, code| {
            let stop = Stop { open_requests, ..Stop::new("d", Mode::Graceful) };
            let end = End::Exited { pid: 1, exit: Exit::Code(code), killed: false };
            StopOutcome::of(&stop, &end)
        };
        assert_eq!((of(None, 0), of(Some(0), 0)), (StopOutcome::Clean, StopOutcome::Clean));
        assert_eq!((of(Some(1), 0), of(Some(1), 1)), (StopOutcome::OpenRequests, StopOutcome::Failed));
    }

    #[test]
    fn observed_abort_or_lost_result_is_not_clean() {
        for (aborts_jobs, lost_results, outcome) in [
            (true, false, StopOutcome::JobsAborted),
            (false, true, StopOutcome::ResultsLost),
            (true, true, StopOutcome::JobsAborted),
        ] {
            let of = |mode, exit| {
                let stop = Stop { aborts_jobs, lost_results, open_requests: Some(1), ..Stop::new("d", mode) };
                StopOutcome::of(&stop, &End::Exited { pid: 1, exit, killed: false })
            };
            assert_eq!(of(Mode::Graceful, Exit::Code(0)), outcome);
            assert_eq!(of(Mode::Forceful, Exit::Code(0)), StopOutcome::JobsAborted);
            assert_eq!(of(Mode::Graceful, Exit::Code(1)), StopOutcome::Failed);
            assert_eq!(of(Mode::Graceful, Exit::Unknown), StopOutcome::Unknown);
        }
    }
}
