//! Listening sockets that stay open while the wrapper executes its binary again, so that clients wait and no connection is refused.
//!
//! They are passed as systemd passes sockets (`LISTEN_FDS`), with a variable that has the descriptor and the address of each.

use std::{
    env, io,
    os::fd::{AsRawFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tracing::warn;

use super::{Address, Listener, Rules, UnixSocket};

/// The beginning of its name keeps it from the runner.
const VARIABLE: &str = "GRIT_WRAPPER_SOCKETS";

/// Copies of the listening sockets.
#[derive(Debug, Default)]
pub struct KeptSockets(Mutex<Vec<(KeptSocket, OwnedFd)>>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptSocket {
    fd: i32,
    /// The address, as configured.
    address: String,
    /// Device and inode of the file of a unix socket.
    file: Option<(u64, u64)>,
}

impl KeptSockets {
    pub fn add(&self, address: &Address, listener: &Listener) {
        let (address, file) = (address.to_string(), listener.file());
        match listener.copy() {
            Ok(copy) => self.sockets().push((KeptSocket { fd: copy.as_raw_fd(), address, file }, copy)),
            // The next program opens it again.
            Err(error) => {
                warn!(%error, address, "an upgrade will close this socket for a moment");
            }
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<(KeptSocket, OwnedFd)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next program in this process inherits them. No process may be started meanwhile.
    pub fn inherit(&self, inherit: bool) -> io::Result<()> {
        let flags = if inherit { FdFlags::empty() } else { FdFlags::CLOEXEC };
        self.sockets().iter().try_for_each(|(_, copy)| Ok(fcntl_setfd(copy, flags)?))
    }

    /// The variables that name the sockets to the next program in this process.
    pub fn variables(&self) -> io::Result<[(&'static str, String); 3]> {
        let all = self.sockets();
        let sockets: Vec<_> = all.iter().map(|(kept, _)| kept).collect();
        let last = sockets.iter().map(|kept| kept.fd).max().unwrap_or_default();
        Ok([
            (VARIABLE, serde_json::to_string(&sockets)?),
            ("LISTEN_PID", std::process::id().to_string()),
            // As if all descriptors from 3 on were sockets; only those in the list are used.
            ("LISTEN_FDS", (last - FIRST + 1).to_string()),
        ])
    }
}

/// The sockets from before an upgrade of this process.
#[derive(Debug, Default)]
pub struct EarlierSockets(Vec<(KeptSocket, Socket)>);

#[derive(Debug)]
enum Socket {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

impl EarlierSockets {
    /// Call it before any other file is opened: the environment defines which descriptors are used.
    pub fn from_env() -> io::Result<Self> {
        let for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        let Some(kept) = env::var(VARIABLE).ok().filter(|_| for_us) else { return Ok(Self::default()) };
        let kept: Vec<KeptSocket> = serde_json::from_str(&kept)?;
        let mut found = ListenFd::from_env();
        let sockets = kept.into_iter().map(|kept| {
            let at = usize::try_from(kept.fd - FIRST).map_err(io::Error::other)?;
            let socket = match kept.file {
                Some(_) => found.take_unix_listener(at)?.map(Socket::Unix),
                None => found.take_tcp_listener(at)?.map(Socket::Tcp),
            };
            Ok((kept, socket.ok_or(io::ErrorKind::NotFound)?))
        });
        sockets.collect::<io::Result<_>>().map(Self)
    }

    /// The socket with this address. Its path may have been removed since: then clients need another socket. Call it within the runtime.
    pub(super) fn take(&mut self, address: &Address, rules: &Rules) -> Option<io::Result<Listener>> {
        let text = address.to_string();
        let at = self.0.iter().position(|(kept, _)| kept.address == text)?;
        match (self.0.remove(at), address) {
            ((KeptSocket { file: Some(file), .. }, Socket::Unix(socket)), Address::Unix(path)) => {
                let socket = path.exists().then(|| UnixListener::from_std(socket))?;
                Some(socket.map(|socket| {
                    Listener::Unix(UnixSocket::kept(socket, path.clone(), file, rules.access.clone()))
                }))
            }
            ((_, Socket::Tcp(socket)), Address::Tcp(_)) => {
                Some(TcpListener::from_std(socket).map(Listener::Tcp))
            }
            _ => None,
        }
    }
}

/// The first descriptor that the protocol of systemd can pass.
const FIRST: i32 = 3;
