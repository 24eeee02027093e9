//! Descriptors of processes.

use std::{io, os::fd::OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor of the process that has this PID now. It becomes readable when the process has exited.
#[expect(
    deprecated,
    reason = "its replacement is unsafe, because other code could close the descriptor; an OwnedFd has one owner"
)]
pub(super) fn hold(pid: u32) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((pid, AsyncFd::with_interest(pidfd, Interest::READABLE)?))
}
