//! Durations and choices of the transition table.

use std::time::Duration;

/// Settings for stopping children, constant for a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A younger child receives no SIGQUIT and no SIGHUP: GitLab Runner installs its handlers late, and before that SIGQUIT terminates it
    /// with a stack dump. The kernel's list of handlers shows nothing, because Go's runtime installs handlers for all signals long before the
    /// program requests one.
    pub start_grace: Duration,
    /// Maximum wait for a gap between the job requests of a child. Zero: SIGQUIT is sent at once.
    pub request_gap_timeout: Duration,
    /// Minimum time between SIGQUIT and SIGTERM. GitLab Runner receives stop signals from an unbuffered channel: the second of two
    /// immediate signals can be lost.
    pub signal_spacing: Duration,
    /// Maximum time between SIGTERM and the child's exit; after it the process group is killed. `None`: it depends on the child's own limit.
    pub termination_timeout: Option<Duration>,
    /// Exit after the child's exit, except after a stop that a client has requested: a service manager would start the child again. By default the
    /// wrapper keeps running and reports `stopped`.
    pub leave_when_stopped: bool,
    /// systemd owns the child: it may start the child at any time, and restarts it.
    pub by_unit: bool,
}

impl Policy {
    /// Chosen for slow hosts, not measured: at its start the runner does little more than read its configuration.
    pub const START_GRACE: Duration = Duration::from_secs(3);
    /// Longer than GitLab holds a request (long polling, 50 s).
    pub const REQUEST_GAP_TIMEOUT: Duration = Duration::from_secs(60);
    /// A thousand times longer than the runner needs to read its channel again.
    pub const SIGNAL_SPACING: Duration = Duration::from_millis(500);
    /// The default of GitLab Runner's limit for its cleanup after SIGTERM is 30 s (`shutdown_timeout`). Killing it earlier, as upstream's
    /// wrapper does after 10 s, leaves machines and containers of its jobs running.
    pub const MIN_TERMINATION_TIMEOUT: Duration = Duration::from_secs(45);
    /// Time for the child to exit after its own limit.
    pub const EXIT_TIME: Duration = Duration::from_secs(15);
    /// No cleanup takes longer, and later instants may not exist.
    const MAX_TERMINATION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

    /// The time between SIGTERM and SIGKILL for a child with this limit for its cleanup, if it is known.
    pub(super) fn termination_timeout(&self, shutdown_timeout: Option<Duration>) -> Duration {
        self.termination_timeout.unwrap_or_else(|| {
            let exit = shutdown_timeout.unwrap_or_default().saturating_add(Self::EXIT_TIME);
            exit.clamp(Self::MIN_TERMINATION_TIMEOUT, Self::MAX_TERMINATION_TIMEOUT)
        })
    }

    /// The maximum of [`Policy::termination_timeout()`].
    pub(super) fn max_termination_timeout(&self) -> Duration {
        self.termination_timeout.unwrap_or(Self::MAX_TERMINATION_TIMEOUT)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start_grace: Self::START_GRACE,
            request_gap_timeout: Self::REQUEST_GAP_TIMEOUT,
            signal_spacing: Self::SIGNAL_SPACING,
            termination_timeout: None,
            leave_when_stopped: false,
            by_unit: false,
        }
    }
}

/// A child with this uptime is stable: its exit does not continue a crash loop. systemd restarts a failed unit after seconds.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigkill_comes_after_the_cleanup_of_the_child() {
        let seconds = |set: Option<u64>, child: Option<u64>| {
            let policy = Policy { termination_timeout: set.map(Duration::from_secs), ..Policy::default() };
            policy.termination_timeout(child.map(Duration::from_secs)).as_secs()
        };
        assert_eq!((seconds(None, None), seconds(None, Some(1)), seconds(None, Some(30))), (45, 45, 45));
        assert_eq!((seconds(None, Some(31)), seconds(None, Some(600))), (46, 615));
        assert_eq!(seconds(None, Some(u64::MAX)), 24 * 3600);
        assert_eq!((seconds(Some(5), Some(600)), seconds(Some(90), None)), (5, 90));
    }
}
