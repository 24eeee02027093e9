//! The interface of the supervisor to the platform: start a process, signal it, and wait for its exit.
//!
//! The supervisor's tests use other implementations.

use std::{fmt, io};

use tokio::time::Instant;

use super::{
    exit::Exit,
    identity::Identity,
    leftovers::{LeftoverProcess, report},
};
use crate::supervise::{output::LastLines, policy::Leftovers};

pub trait Platform: Send + 'static {
    type Child: Child;

    /// Starts a child as the leader of a new process group. It executes the command immediately, or waits for [`Child::release`].
    fn spawn(&mut self) -> io::Result<Self::Child>;

    /// The last log lines of a child that was started at `since` and has exited; `None` if they cannot be read back.
    fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines>;
}

/// One child process. Its PID is not reused before [`Child::reap`].
pub trait Child: Send {
    fn pid(&self) -> u32;

    /// Identifies this process uniquely.
    fn identity(&self) -> io::Result<Identity>;

    /// Lets the child execute its command, and returns when it has done so.
    /// After an error of exec, the child has exited.
    fn release(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Kills and reaps a child that was not released.
    fn discard(self);

    /// Waits until the process has exited, without reaping it. Cancel safe, and can be repeated.
    fn ended(&mut self) -> impl Future<Output = Exit> + Send;

    /// Sends `signal` to this process only: other processes of its group may belong to a job.
    /// Fails if the process changed its user, but not if it has exited.
    fn signal(&mut self, signal: Signal) -> io::Result<()>;

    /// Kills the child and all its processes.
    /// An empty group is not an error.
    fn kill_group(&mut self) -> io::Result<()>;

    /// Whether the process catches or ignores SIGQUIT, so that the signal would not terminate it.
    fn handles_quit(&self) -> bool;

    /// Kills all processes that are still running after the child exited. Returns those that could not be killed in time. Cancel safe:
    /// another call continues.
    fn end_leftovers(&mut self) -> impl Future<Output = Vec<LeftoverProcess>> + Send {
        async { Vec::new() }
    }

    /// Whether [`Child::end_leftovers`] was started, which implies that the child has exited.
    fn is_ending_leftovers(&self) -> bool {
        false
    }

    /// Reaps the exited process. Returns its processes that are still running.
    fn reap(self) -> Vec<LeftoverProcess>;
}

/// Signals for a child, named after their meaning for GitLab Runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGQUIT: accept no new jobs, finish running jobs, exit.
    Drain,
    /// SIGTERM: abort jobs, exit. A second one would skip the runner's cleanup.
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

/// Reaps a child that has exited, and reports its processes that are still running.
pub(crate) fn reap<C: Child>(child: C) {
    let (pid, were_killed) = (child.pid(), child.is_ending_leftovers());
    let left = child.reap();
    // Those that could not be killed were reported then.
    if !were_killed {
        report(pid, &left, Leftovers::Report);
    }
}

/// Waits until the child has exited and, where its other processes are killed, until they have.
pub(crate) async fn exited<C: Child>(child: Option<&mut C>, leftovers: Leftovers) -> Exit {
    match child {
        Some(child) => {
            let exit = child.ended().await;
            if leftovers == Leftovers::Kill {
                report(child.pid(), &child.end_leftovers().await, leftovers);
            }
            exit
        }
        None => std::future::pending().await,
    }
}
