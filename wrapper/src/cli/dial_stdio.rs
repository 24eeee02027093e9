//! `dial-stdio`: connects stdin and stdout to a wrapper, for `ssh_command` and for `ForceCommand` of sshd.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, ioctl_fionbio, read, write},
    net::{Shutdown, shutdown},
};

use super::{connect, error::CommandError};
use crate::daemon::serve::listen::Address;

/// Copies until the wrapper closes the connection, or the reader of stdout is gone. The end of stdin closes only one direction: the
/// wrapper can still respond. No task of the runtime waits for these blocking calls.
pub(super) async fn run(address: &Address) -> Result<(), CommandError> {
    let connected = connect::connect(address).await;
    let connected = connected.map_err(|source| CommandError::Connect { address: address.clone(), source })?;
    let wrapper = Arc::new(connect::into_std(connected)?);
    ioctl_fionbio(&wrapper, false).map_err(io::Error::from)?;

    let sender = Arc::clone(&wrapper);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // A failed write means that the wrapper closed the connection, which the other direction reports.
        let _copied = copy(io::stdin().as_fd(), sender.as_fd());
        let _shut = shutdown(&sender, Shutdown::Write);
    })?;
    copy(wrapper.as_fd(), io::stdout().as_fd())
        .map_err(|source| CommandError::ConnectionLost { address: address.clone(), source: source.into() })
}

/// Copies until the end of `from`, or until nothing can be written to `to` any more.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut buffer = [0; 16 * 1024];
    loop {
        // Without requested events, poll reports that the other end of `to` is closed.
        let mut ends =
            [PollFd::from_borrowed_fd(from, PollFlags::IN), PollFd::from_borrowed_fd(to, PollFlags::empty())];
        let ready = poll(&mut ends, None);
        let [_, output] = ends;
        match ready {
            Ok(_) if !output.revents().is_empty() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        match read(from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => write_all(to, buffer.get(..count).unwrap_or_default())?,
            // Another process may have made the descriptor nonblocking.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
