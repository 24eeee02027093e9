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
    /// What follows when a child ends although nobody asked for it.
    pub restart: Restart,
    /// What becomes of processes that a child leaves behind.
    pub leftovers: Leftovers,
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
            restart: Restart::default(),
            leftovers: Leftovers::Report,
            leave_when_stopped: false,
        }
    }
}

/// What follows when a child ends although nobody asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    pub when: RestartWhen,
    /// The pause before the first restart; each further failure doubles it.
    pub first_delay: Duration,
    /// The longest pause.
    pub max_delay: Duration,
    /// A child that lived so long was of use; what follows is no crash loop.
    pub stable_after: Duration,
}

/// What becomes of processes that a child leaves behind. A forceful stop always kills them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// Log each process with PID, age and command, and keep it running.
    Report,
    /// Kill the processes.
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartWhen {
    /// Do not restart, as upstream's wrapper.
    Never,
    /// Restart unless the exit code was 0.
    OnFailure,
    /// Restart after every unexpected exit.
    Always,
}

impl Restart {
    /// Long enough for a port or a lock of the last child to be free.
    pub const FIRST_DELAY: Duration = Duration::from_secs(1);
    /// A host that recovers gets its runner back within a minute.
    pub const MAX_DELAY: Duration = Duration::from_secs(60);
    /// Twice the longest pause, so that a child that dies right after it still counts as a failure.
    pub const STABLE_AFTER: Duration = Duration::from_secs(120);

    pub(super) fn wants(&self, success: bool) -> bool {
        match self.when {
            RestartWhen::Never => false,
            RestartWhen::OnFailure => !success,
            RestartWhen::Always => true,
        }
    }

    /// The pause after `failures` earlier failures in a row.
    pub(super) fn delay(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first_delay.saturating_mul(factor).min(self.max_delay)
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            when: RestartWhen::Never,
            first_delay: Self::FIRST_DELAY,
            max_delay: Self::MAX_DELAY,
            stable_after: Self::STABLE_AFTER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_maximum() {
        let restart = Restart::default();
        let seconds = |failures| restart.delay(failures).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 31, 32, u32::MAX].map(seconds), [1, 2, 4, 32, 60, 60, 60, 60]);
    }
}
