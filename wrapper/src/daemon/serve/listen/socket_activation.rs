//! Socket activation: sockets that systemd created before it started the wrapper, as in a `.socket` unit.
//!
//! `LISTEN_FDS` is the number of sockets, from descriptor 3 on, `LISTEN_PID` the PID of the receiver, and `LISTEN_FDNAMES` has the names.
//! systemd manages their paths, owners and modes, and keeps them when the wrapper exits, so that clients wait while a wrapper is replaced.
//!
//! The wrapper passes [its own sockets](super::kept) in the same way at an upgrade.

use std::{
    env, io,
    net::TcpListener,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use thiserror::Error;
use tracing::warn;

use super::{
    Address, ListenError, Listener, Rules, UnixSocket,
    kept::{self, KeptSocket},
};
use crate::supervise::log_key as key;

/// The passed sockets that are not used yet.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(KeptSocket, Socket)>);

/// The scheme of the sockets of systemd.
const SCHEME: &str = "fd://";

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A passed descriptor is not a listening socket.
#[derive(Debug, Error)]
#[error(
    "socket {number} of {count} passed by systemd is not a listening unix or TCP stream socket; set Accept=no in the .socket unit"
)]
pub struct PassedError {
    number: usize,
    count: usize,
    #[source]
    source: io::Error,
}

impl InheritedSockets {
    /// Takes the passed sockets. Call it before any other file is opened: the environment defines which descriptors are used.
    /// Fails if a descriptor is not a listening socket.
    pub fn from_env() -> Result<Self, PassedError> {
        let for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        if !for_us {
            return Ok(Self::default());
        }
        let mut found = ListenFd::from_env();
        let wanted = kept::from_env().unwrap_or_else(|| of_systemd(found.len()));
        let count = wanted.len();
        let sockets = wanted.into_iter().zip(1..).map(|(wanted, number)| {
            let socket = take(&mut found, wanted.fd);
            socket.map(|socket| (wanted, socket)).map_err(|source| PassedError { number, count, source })
        });
        sockets.collect::<Result<_, _>>().map(Self)
    }

    /// Takes the socket of the wrapper with this address, if it stayed open during an upgrade. Its path may have been removed since: then clients
    /// need another socket.
    pub(super) fn take_kept(
        &mut self,
        address: &Address,
        rules: &Rules,
    ) -> Option<Result<Listener, ListenError>> {
        let source = address.to_string();
        let at = self.0.iter().position(|(kept, _)| kept.source == source)?;
        let (kept, socket) = self.0.remove(at);
        let is_lost = matches!(address, Address::Unix(path) if !path.exists());
        (!is_lost).then(|| socket.listen(rules, kept.file))
    }

    /// Takes the sockets with this name, or all if the name is empty. Call it within the runtime.
    pub(crate) fn take(&mut self, name: &str, rules: &Rules) -> Result<Vec<Listener>, ListenError> {
        let is_meant = |(found, _): &mut (KeptSocket, Socket)| {
            found.source.strip_prefix(SCHEME).is_some_and(|found| name.is_empty() || found == name)
        };
        let taken: Vec<_> = self.0.extract_if(.., is_meant).collect();
        if taken.is_empty() {
            return Err(ListenError::NotPassed { name: name.to_owned() });
        }
        taken.into_iter().map(|(_, socket)| socket.listen(rules, None)).collect()
    }
}

impl Drop for InheritedSockets {
    fn drop(&mut self) {
        for (kept, socket) in &self.0 {
            warn!(
                { key::NAME } = kept.source.strip_prefix(SCHEME).unwrap_or(&kept.source),
                { key::SOCKET } = ?socket,
                "systemd passed a socket that no --grpc-listen fd:// flag uses"
            );
        }
    }
}

impl Socket {
    fn listen(self, rules: &Rules, file: Option<(u64, u64)>) -> Result<Listener, ListenError> {
        match self {
            Self::Unix(socket) => {
                let path = path(&socket);
                let io = io(Address::Unix(path.clone()));
                let listener = tokio::net::UnixListener::from_std(socket).map_err(io)?;
                Ok(Listener::Unix(UnixSocket::passed(listener, path, file, rules.access.clone())))
            }
            Self::Tcp(socket) => {
                let bound = socket.local_addr().map_err(io(Address::Tcp(String::new())))?;
                let address = Address::Tcp(bound.to_string());
                if !bound.ip().is_loopback() && !rules.beyond_loopback {
                    let allowed_by = rules.allowed_by;
                    return Err(ListenError::BeyondLoopback { address, resolved: bound, allowed_by });
                }
                tokio::net::TcpListener::from_std(socket).map(Listener::Tcp).map_err(io(address))
            }
        }
    }
}

/// The sockets that systemd has passed, with their names.
fn of_systemd(count: usize) -> Vec<KeptSocket> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat("")).take(count);
    let sockets =
        names.zip(FIRST..).map(|(name, fd)| KeptSocket { fd, source: format!("{SCHEME}{name}"), file: None });
    sockets.collect()
}

/// The descriptor of the first passed socket.
const FIRST: i32 = 3;

fn take(found: &mut ListenFd, fd: i32) -> io::Result<Socket> {
    let at = usize::try_from(fd - FIRST).map_err(io::Error::other)?;
    let socket = match found.take_unix_listener(at) {
        Ok(socket) => socket.map(Socket::Unix),
        Err(_) => found.take_tcp_listener(at)?.map(Socket::Tcp),
    };
    let socket = socket.ok_or(io::ErrorKind::NotFound)?;
    let listens = match &socket {
        Socket::Unix(socket) => {
            socket.set_nonblocking(true)?;
            socket_acceptconn(socket)?
        }
        Socket::Tcp(socket) => {
            socket.set_nonblocking(true)?;
            socket_acceptconn(socket)?
        }
    };
    if listens { Ok(socket) } else { Err(io::ErrorKind::NotConnected.into()) }
}

/// Empty for a socket without a path.
fn path(socket: &UnixListener) -> PathBuf {
    let address = socket.local_addr().ok();
    address.as_ref().and_then(|address| address.as_pathname()).map(Path::to_owned).unwrap_or_default()
}

fn io(address: Address) -> impl FnOnce(io::Error) -> ListenError {
    move |source| ListenError::Io { address, what: "listen on the socket passed by systemd", source }
}
