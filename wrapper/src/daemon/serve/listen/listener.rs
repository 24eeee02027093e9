//! A bound address, and the rules for binding.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
};

use super::{
    LostSockets,
    unix::{SocketAccess, UnixSocket},
};

/// One bound address.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixSocket),
    Tcp(tokio::net::TcpListener),
}

impl Listener {
    /// Reports there when the file of a unix socket is missing.
    pub(crate) fn report_to(&mut self, lost: &LostSockets) {
        if let Self::Unix(socket) = self {
            socket.report_to(lost.clone());
        }
    }

    /// Another descriptor of the socket.
    pub(super) fn copy(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(socket) => socket.as_fd().try_clone_to_owned(),
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Device and inode of the file of a unix socket.
    pub(super) fn file(&self) -> Option<(u64, u64)> {
        match self {
            Self::Unix(socket) => Some(socket.file()),
            Self::Tcp(_) => None,
        }
    }
}

impl fmt::Display for Listener {
    /// The path, or the address with the actual port if port 0 was requested.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(socket) => write!(f, "{}", socket.path().display()),
            Self::Tcp(listener) => listener.local_addr().map_err(|_| fmt::Error)?.fmt(f),
        }
    }
}

/// Permissions and restrictions of listeners.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Permissions of a unix socket.
    pub access: SocketAccess,
    /// Whether a TCP address may be reachable from other hosts.
    pub beyond_loopback: bool,
    /// The flag that allows this.
    pub allowed_by: &'static str,
}
