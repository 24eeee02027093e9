//! Listening sockets that stay open while the wrapper executes its binary again, so that clients wait and no connection is refused.
//!
//! They are passed like the sockets of systemd, with a variable that has the descriptor and the address of each.

use std::{
    env,
    fmt::Display,
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::Listener;
use crate::supervise::log_key as key;

/// The beginning of its name keeps it from the runner.
const VARIABLE: &str = "GRIT_WRAPPER_SOCKETS";

/// Copies of the listening sockets.
#[derive(Debug, Default)]
pub struct KeptSockets(Mutex<Vec<(KeptSocket, OwnedFd)>>);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptSocket {
    pub(super) fd: i32,
    /// The address, as configured.
    pub(super) source: String,
    /// Device and inode of the path that the wrapper created.
    pub(super) file: Option<(u64, u64)>,
}

impl KeptSockets {
    /// `source`: the address, as configured.
    pub fn add(&self, source: &impl Display, listener: &Listener) {
        let (source, file) = (source.to_string(), listener.created_file());
        match listener.copy() {
            Ok(copy) => self.sockets().push((KeptSocket { fd: copy.as_raw_fd(), source, file }, copy)),
            // The next program opens it again.
            Err(error) => {
                warn!({ key::ERROR } = %error, { key::ADDRESS } = source, "an upgrade will close this socket for a moment");
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
            ("LISTEN_FDS", (last - 2).to_string()),
        ])
    }
}

/// The sockets from before an upgrade of this process; `None` if there was none.
pub(super) fn from_env() -> Option<Vec<KeptSocket>> {
    serde_json::from_str(&env::var(VARIABLE).ok()?).ok()
}
