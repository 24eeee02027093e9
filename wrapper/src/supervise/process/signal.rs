//! The signals for a runner.

use std::{fmt, io};

use rustix::io::Errno;

/// Signals for a runner, named after their meaning for GitLab Runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGQUIT: accept no new jobs, finish running jobs, exit.
    Drain,
    /// SIGTERM: abort jobs, exit. A second one would skip the runner's cleanup.
    Terminate,
    /// SIGKILL, also to all other processes of the runner.
    Kill,
}

impl Signal {
    pub(crate) fn number(self) -> rustix::process::Signal {
        match self {
            Self::Reload => rustix::process::Signal::HUP,
            Self::Drain => rustix::process::Signal::QUIT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Kill => rustix::process::Signal::KILL,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => "SIGHUP",
            Self::Drain => "SIGQUIT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        })
    }
}

/// A signal to a process that has exited is no error.
pub(crate) fn ignore_esrch(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
