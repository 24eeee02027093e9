//! What a wrapper reports of a drain.

use std::time::Duration;

use grit_proto::wrapper_v1 as v1;
use time::OffsetDateTime;

/// A drain in progress, or the drain that ended the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainInfo {
    pub id: String,
    pub reason: String,
    /// User and transport of the request; empty if unknown.
    pub requested_by: String,
    pub forceful: bool,
    /// SIGQUIT or SIGTERM was sent to the runner.
    pub signalled: bool,
    /// When the wrapper makes the drain forceful or, if it is forceful, kills the runner. By the clock of the host.
    pub deadline: Option<OffsetDateTime>,
    /// The time until `deadline`; `None` from an older wrapper.
    pub until_deadline: Option<Duration>,
    /// Known after the exit.
    pub outcome: Option<DrainOutcome>,
    /// Job requests that were open at SIGQUIT or, before it, are open now; `None` if unknown.
    pub open_requests: Option<u32>,
    /// What a graceful drain waits for before SIGQUIT; empty after it.
    pub waits_for: String,
}

/// A drain that was cancelled on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledDrain {
    pub id: String,
    /// User and transport of the request.
    pub by: String,
    /// By the clock of the host.
    pub at: Option<OffsetDateTime>,
}

impl From<v1::CancelledDrain> for CancelledDrain {
    fn from(v1::CancelledDrain { id, cancelled_by, cancelled_at }: v1::CancelledDrain) -> Self {
        let at = cancelled_at.and_then(|at| OffsetDateTime::from_unix_timestamp(at.seconds).ok());
        Self { id, by: cancelled_by, at }
    }
}

impl DrainInfo {
    /// The outcome, as it is logged and recorded.
    pub fn outcome_text(&self) -> Option<&'static str> {
        match (self.outcome?, self.open_requests) {
            // The runner does not report them, so that a lost job would not be known.
            (DrainOutcome::Clean, None) => Some("clean; open requests unknown"),
            (outcome, _) => Some(outcome.as_str()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// The runner finished its jobs.
    Clean,
    JobsAborted,
    /// The runner finished its jobs, but may have given up reporting the end of at least one of them to GitLab.
    ResultsLost,
    /// Job requests were open at SIGQUIT, and GitLab may have assigned a job to one of them.
    OpenRequests,
    Killed,
    Failed,
    Unknown,
    NoRunner,
}

impl DrainOutcome {
    pub const fn as_str(self) -> &'static str {
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

    pub(super) fn of(outcome: v1::DrainOutcome) -> Option<Self> {
        match outcome {
            v1::DrainOutcome::Unspecified => None,
            v1::DrainOutcome::Clean => Some(Self::Clean),
            v1::DrainOutcome::JobsAborted => Some(Self::JobsAborted),
            v1::DrainOutcome::ResultsLost => Some(Self::ResultsLost),
            v1::DrainOutcome::Killed => Some(Self::Killed),
            v1::DrainOutcome::Failed => Some(Self::Failed),
            v1::DrainOutcome::Unknown => Some(Self::Unknown),
            v1::DrainOutcome::NoRunner => Some(Self::NoRunner),
            v1::DrainOutcome::OpenRequests => Some(Self::OpenRequests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Snapshot;

    #[test]
    fn clean_drain_without_a_number_is_shown_as_unknown() {
        let text = |outcome: v1::DrainOutcome, open_requests| {
            let drain = v1::Drain { outcome: outcome.into(), open_requests, ..v1::Drain::default() };
            let status = v1::Status { drain: Some(drain), ..v1::Status::default() };
            Snapshot::from(status).drain().and_then(DrainInfo::outcome_text)
        };
        assert_eq!(text(v1::DrainOutcome::Clean, Some(0)), Some("clean"));
        assert_eq!(text(v1::DrainOutcome::Clean, None), Some("clean; open requests unknown"));
        assert_eq!(text(v1::DrainOutcome::Killed, None), Some("killed"));
        assert_eq!(text(v1::DrainOutcome::Unspecified, None), None);
    }
}
