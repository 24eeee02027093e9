//! The durations and choices that the table works with.

use std::time::Duration;

/// How children are stopped, fixed for the life of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A child younger than this gets no SIGQUIT and no SIGHUP: GitLab Runner installs its handlers late, and before that SIGQUIT
    /// ends it with a stack dump. What the kernel says about its handlers is not enough, since Go's runtime installs handlers for
    /// all signals long before the program asks for one.
    pub start_grace: Duration,
    /// How long past [`Policy::start_grace`] we wait for a handler of SIGQUIT before the signal is sent all the same.
    pub handler_wait: Duration,
    /// The least time between SIGQUIT and SIGTERM. GitLab Runner takes its stop signals from an unbuffered channel: of two that
    /// follow each other at once the second can be lost.
    pub signal_spacing: Duration,
    /// How long a child may take to end after SIGTERM; then its group is killed.
    pub termination_timeout: Duration,
    /// Leave as soon as the child has ended, where the default is to stay and answer `stopped`.
    pub leave_when_stopped: bool,
}

impl Policy {
    /// Measured on no machine, chosen for slow ones: the runner's start does little but read its configuration.
    pub const START_GRACE: Duration = Duration::from_secs(3);
    /// A child that has installed no handler by then never will.
    pub const HANDLER_WAIT: Duration = Duration::from_secs(10);
    /// A thousand times what the runner needs to get back to its channel.
    pub const SIGNAL_SPACING: Duration = Duration::from_millis(500);
    /// GitLab Runner's own limit for its clean-up after SIGTERM is 30 s (`shutdown_timeout`). Killing it earlier, as upstream's
    /// 10 s would, leaves the machines and containers of its jobs behind.
    pub const TERMINATION_TIMEOUT: Duration = Duration::from_secs(45);
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start_grace: Self::START_GRACE,
            handler_wait: Self::HANDLER_WAIT,
            signal_spacing: Self::SIGNAL_SPACING,
            termination_timeout: Self::TERMINATION_TIMEOUT,
            leave_when_stopped: false,
        }
    }
}
