//! The interface of the supervisor to the platform: start a process, signal it, and wait for its exit.
//!
//! The supervisor's tests use other implementations.

use std::{fmt, io};

use tokio::time::Instant;

use super::{exit::Exit, identity::Identity, leftovers::LeftoverProcess};
use crate::supervise::output::LastLines;

/// Makes children.
pub trait Platform: Send + 'static {
    type Child: Child;

    /// Makes a child, as the leader of a process group of its own. It may run the command at once, or wait for [`Child::release`].
    ///
    /// # Errors
    ///
    /// Those of fork and exec: the command is missing, may not be executed, or there is no memory or process slot left.
    fn spawn(&mut self) -> io::Result<Self::Child>;

    /// The last lines in the log of a child that was started at `since` and has ended; `None` when nobody can read them back.
    fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines>;
}

/// One child process. Its process id is not given to another process before [`Child::reap`].
pub trait Child: Send {
    fn pid(&self) -> u32;

    /// What tells this process from every other one, before it and after it.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    fn identity(&self) -> io::Result<Identity>;

    /// Lets the child run its command; it does when this returns.
    ///
    /// # Errors
    ///
    /// Those of exec; there is no child then.
    fn release(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Ends a child that was not released, and collects it.
    fn discard(self);

    /// Waits until the process has ended, without reaping it. Cancel safe, and answers again when asked again.
    fn ended(&mut self) -> impl Future<Output = Exit> + Send;

    /// Sends `signal` to the process alone: what else is in its group may be doing a job's work.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] when the process changed its user; one that has ended is no error.
    fn signal(&mut self, signal: Signal) -> io::Result<()>;

    /// Kills the child and every process of it.
    ///
    /// # Errors
    ///
    /// As [`Child::signal`]. An empty group is no error.
    fn kill_group(&mut self) -> io::Result<()>;

    /// Whether the process catches or ignores SIGQUIT by now, so that the signal would not kill it.
    fn handles_quit(&self) -> bool;

    /// Kills the processes that the ended child left behind, until none is left. Answers those that could not be killed in time. Cancel
    /// safe: asked again, it goes on.
    fn end_leftovers(&mut self) -> impl Future<Output = Vec<LeftoverProcess>> + Send {
        async { Vec::new() }
    }

    /// Whether [`Child::end_leftovers`] was begun: the child has ended then.
    fn is_ending_leftovers(&self) -> bool {
        false
    }

    /// Collects the ended process. Answers which other processes of its live on.
    fn reap(self) -> Vec<LeftoverProcess>;
}

/// The signals that we send to a child, named for what they ask of GitLab Runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGQUIT: take no new jobs, finish those that run, end.
    Drain,
    /// SIGTERM: abort the jobs, end. A second one would skip the runner's clean-up.
    Terminate,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => "SIGHUP",
            Self::Drain => "SIGQUIT",
            Self::Terminate => "SIGTERM",
        })
    }
}
