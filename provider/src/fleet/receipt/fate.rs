//! What becomes of the jobs that a drain has lost.

use crate::gitlab::GitlabError;

/// What happens to a job that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLostJobs {
    Warn,
    /// It is cancelled, and queued again.
    Retry,
}

/// What became of a lost job.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It stays as it is.
    Kept,
    /// It was cancelled and queued again as the job with this URL.
    Retried(String),
    /// It was not cancelled.
    NotCancelled(NotCancelled),
    /// GitLab did not confirm the cancel request, and may have received it.
    MayBeCancelled(GitlabError),
    /// It was cancelled, and GitLab refused to queue it again.
    NotQueued(GitlabError),
}

impl Fate {
    /// Whether the provider has changed the job, or may have.
    pub(super) fn is_change(&self) -> bool {
        matches!(self, Self::Retried(_) | Self::MayBeCancelled(_) | Self::NotQueued(_))
    }
}

/// Why a lost job was not cancelled.
#[derive(Debug, Clone)]
pub(crate) enum NotCancelled {
    /// It has a log, so that a runner runs it, or has run it.
    HasLog,
    /// GitLab has listed it for a short time: a runner may have received it.
    New,
    /// GitLab has received a request of its runner manager since the exit of the runner, or does not list such a manager.
    InContact,
    /// It ended before the cancel request, with this status.
    Ended(String),
    /// The last question for the running jobs failed.
    NoAnswer,
    /// The time limit for all jobs.
    NoTime,
    Interrupted,
    Failed(GitlabError),
}
