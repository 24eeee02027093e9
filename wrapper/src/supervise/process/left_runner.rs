//! A GitLab Runner that is still running after the child exited: the child was not the runner itself, but a program that started it.

use std::{fmt, io, os::fd::OwnedFd};

use tokio::io::unix::AsyncFd;

use super::{
    identity::Identity,
    pidfd::{exited, has_exited, hold_same},
};

/// A running process. Its PID is not reused while [`LeftRunner::ended`] waits.
pub struct LeftRunner {
    identity: Identity,
    pidfd: AsyncFd<OwnedFd>,
}

impl LeftRunner {
    /// `None` if the process has ended.
    pub(crate) fn of(identity: Identity) -> io::Result<Option<Self>> {
        Ok(hold_same(&identity)?.map(|(_, pidfd)| Self { identity, pidfd }))
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Waits until the process has exited. Cancel safe.
    pub(crate) async fn ended(&self) {
        exited(&self.pidfd, || has_exited(&self.pidfd)).await;
    }
}

impl fmt::Debug for LeftRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeftRunner").field("pid", &self.pid()).finish_non_exhaustive()
    }
}
