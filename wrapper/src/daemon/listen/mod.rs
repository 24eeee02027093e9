//! Listeners. Addresses use upstream's syntax, and binding never disturbs a running wrapper.

mod address;
mod socket_activation;
mod tcp;
mod unix;

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use thiserror::Error;

pub use self::{
    address::{Address, AddressError, Source},
    socket_activation::{Passed, PassedError},
    unix::{SocketAccess, UnixSocket},
};
pub use crate::supervise::lock_wait::LockOwner;

/// The default of --grpc-listen. GRIT's modules use this path for the upstream wrapper. The upstream default, tcp://localhost:7777, would let
/// every local process stop the runner, CI jobs included.
pub const DEFAULT_ADDRESS: &str = "unix:///var/run/gitlab-runner-wrapper.sock";

/// One bound address.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixSocket),
    Tcp(tokio::net::TcpListener),
}

impl Listener {
    /// The path of a unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(socket) => Some(socket.path()).filter(|path| !path.as_os_str().is_empty()),
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

/// Why an address cannot be used. Each message begins with the address.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error(
        "{address}: in use by {holder}. If that is a wrapper, stop it first (on SIGTERM it drains its \
         runner), or use another address"
    )]
    Alive { address: Address, holder: LockOwner },
    #[error("{address}: {path:?} exists and is not a socket")]
    NotASocket { address: Address, path: PathBuf },
    #[error("{address}: the path is too long for a socket (at most 107 bytes)")]
    TooLong { address: Address },
    #[error("user {user:?} does not exist on this host")]
    NoSuchUser { user: String },
    #[error("group {group:?} does not exist on this host")]
    NoSuchGroup { group: String },
    #[error(
        "{address}: other hosts can reach {resolved}, and TCP clients are not authenticated; listen on \
         loopback, or allow this with {allowed_by}"
    )]
    BeyondLoopback { address: Address, resolved: SocketAddr, allowed_by: &'static str },
    #[error(
        "fd://{name}: systemd passed no such socket (LISTEN_FDS, LISTEN_FDNAMES); start the .socket unit \
         of this service"
    )]
    NotPassed { name: String },
    #[error("{address}: the host name has no IP address")]
    NoAddress { address: Address },
    #[error("{address}: cannot {what}")]
    Io {
        address: Address,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl ListenError {
    /// The flag with the wrong value; `listen` is the flag with the address.
    pub(crate) fn flag<'a>(&self, listen: &'a str) -> &'a str {
        if matches!(self, Self::NoSuchUser { .. }) {
            "--socket-owner"
        } else if matches!(self, Self::NoSuchGroup { .. }) {
            "--socket-group"
        } else {
            listen
        }
    }
}

/// Opens the listeners of `source`: one address, or sockets passed by systemd.
///
/// # Errors
///
/// See [`bind`].
pub async fn open(source: &Source, rules: &Rules, passed: &mut Passed) -> Result<Vec<Listener>, ListenError> {
    match source {
        Source::Address(address) => bind(address, rules).await.map(|listener| vec![listener]),
        Source::Passed(name) => passed.take(name, rules),
    }
}

/// Listens on `address`. A stale socket is replaced; a socket in use is not changed. If its wrapper was killed and is still terminating,
/// this waits up to 2 s.
///
/// # Errors
///
/// See [`ListenError`]; no socket or file is left behind.
pub async fn bind(address: &Address, rules: &Rules) -> Result<Listener, ListenError> {
    match address {
        Address::Unix(path) => unix::bind(address, path, &rules.access).await.map(Listener::Unix),
        Address::Tcp(host) => tcp::bind(address, host, rules).await.map(Listener::Tcp),
    }
}
