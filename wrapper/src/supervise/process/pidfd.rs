//! Descriptors of processes.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::identity::Identity;

/// A descriptor of the process that has this PID now. It becomes readable when the process has exited.
#[expect(
    deprecated,
    reason = "its replacement is unsafe, because other code could close the descriptor; an OwnedFd has one owner"
)]
pub(in crate::supervise) fn hold(pid: u32) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((pid, AsyncFd::with_interest(pidfd, Interest::READABLE)?))
}

/// A descriptor of this process; `None` if it has exited, even if its PID was reused. While the descriptor is open, the PID may be reused only
/// after the exit of the process.
pub(in crate::supervise) fn hold_same(identity: &Identity) -> io::Result<Option<(Pid, AsyncFd<OwnedFd>)>> {
    match hold(identity.pid) {
        // Checked after opening the pidfd: from then on the PID cannot be reused.
        Ok(held) => Ok(identity.is_alive()?.then_some(held)),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the exit of a process that has another parent.
#[derive(Debug)]
pub struct Exited(Option<AsyncFd<OwnedFd>>);

impl Exited {
    /// The process that has this PID now. Call it within the runtime.
    ///
    /// # Errors
    ///
    /// As from `pidfd_open(2)`, except that a process that does not exist has exited.
    pub fn of(pid: u32) -> io::Result<Self> {
        match hold(pid) {
            Ok((_, pidfd)) => Ok(Self(Some(pidfd))),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }

    /// Returns when it has exited. Cancel safe.
    pub async fn wait(&self) {
        if let Some(pidfd) = &self.0 {
            exited(pidfd, || has_exited(pidfd)).await;
        }
    }
}

/// Whether the process has exited. Of a child of this process, also before it is reaped.
pub(in crate::supervise) fn has_exited(pidfd: &AsyncFd<OwnedFd>) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Waits until `has_exited` is true, which is called again when the descriptor may have become readable. Cancel safe, and can be repeated.
pub(in crate::supervise) async fn exited(pidfd: &AsyncFd<OwnedFd>, has_exited: impl Fn() -> bool) {
    while !has_exited() {
        match pidfd.readable().await {
            // Readiness is only a hint: clear it and check again.
            Ok(mut ready) => ready.clear_ready(),
            // The runtime is shutting down, and the caller with it.
            Err(_) => std::future::pending().await,
        }
    }
}
