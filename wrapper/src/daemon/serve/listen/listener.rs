//! A bound address, and the rules for binding.

use std::fmt;

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
