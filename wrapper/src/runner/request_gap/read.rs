//! One read of the runner's metrics.

use std::time::Duration;

use tokio::time::Instant;

use crate::runner::runner_metrics::{Requests, RunnerMetrics};

/// The runner's process state after SIGQUIT.
const GRACEFUL_SHUTDOWN: &str = "graceful-shutdown";

/// Its values are of a moment between its beginning and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    pub(crate) metrics: &'a RunnerMetrics,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Read<'_> {
    pub(super) fn lasted(&self) -> Duration {
        self.ended.saturating_duration_since(self.began)
    }

    /// The runner reports its open requests.
    pub(super) fn is_measured(&self) -> bool {
        self.metrics.reports_requests()
    }

    /// The runner handles SIGQUIT: it begins no request.
    pub(super) fn is_draining(&self) -> bool {
        self.metrics.process_state.as_deref() == Some(GRACEFUL_SHUTDOWN)
    }
}

impl Requests {
    /// Requests that SIGQUIT has not cancelled, and that have ended, in the order in which the runner counts them: at the response, or without one
    /// because of the executor, and a received job again after its first report to GitLab. Each of them may be followed by a new request.
    pub(super) fn ended(&self) -> u64 {
        self.accepted
            .saturating_add(self.rejected)
            .saturating_add(self.other)
            .saturating_add(self.jobs_begun)
            .saturating_add(self.without_machine)
            .saturating_add(self.executor_failures)
    }

    /// As many requests are open as `request_concurrency` permits, so that the section sends none in its next turn.
    pub(super) fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| limit > 0 && self.open >= Some(limit))
    }
}
