//! A GitLab Runner that is still running after the child exited: the child was not the runner itself, but a program that started it.

use std::{fmt, os::fd::OwnedFd};

use tokio::io::unix::AsyncFd;

use super::{
    pidfd::{exited, has_exited, hold},
    stat::Process,
};

/// A running process. Its PID is not reused while [`LeftRunner::ended`] waits.
pub(crate) struct LeftRunner {
    pid: u32,
    pidfd: AsyncFd<OwnedFd>,
}

impl LeftRunner {
    /// `None` if the process has ended.
    pub(super) fn of(process: &Process) -> Option<Self> {
        let (_, pidfd) = hold(process.pid).ok()?;
        // Checked after opening the pidfd: from then on the PID cannot be reused.
        let now = Process::of(process.pid)?;
        (now.id() == process.id()).then_some(Self { pid: process.pid, pidfd })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the process has exited. Cancel safe.
    pub(crate) async fn ended(&self) {
        exited(&self.pidfd, || has_exited(&self.pidfd)).await;
    }
}

impl fmt::Debug for LeftRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeftRunner").field("pid", &self.pid).finish_non_exhaustive()
    }
}
