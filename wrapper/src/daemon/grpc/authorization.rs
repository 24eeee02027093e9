//! Whether a request may be served.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::{
    Extensions, Request, Status,
    transport::server::{TcpConnectInfo, UdsConnectInfo},
};

use super::errors;
use crate::daemon::audit::Requester;
use crate::daemon::{
    access::{Access, Rights},
    counters::Counters,
    limits::LogRateLimiter,
};

/// Refusals that are logged in a minute. More would push the rest out of the journal, and the runner's lines with it.
const LINES: u32 = 20;

/// Lets requests through whose senders have the rights, and counts those that have not.
#[derive(Clone, Debug)]
pub struct Authorizer {
    access: Access,
    counters: Arc<Counters>,
    log_limit: Arc<Mutex<LogRateLimiter>>,
}

impl Default for Authorizer {
    fn default() -> Self {
        Self::new(Access::default(), Arc::default())
    }
}

impl Authorizer {
    #[must_use]
    pub fn new(access: Access, counters: Arc<Counters>) -> Self {
        Self { access, counters, log_limit: Arc::new(Mutex::new(LogRateLimiter::per_minute(LINES))) }
    }

    fn rights(&self, extensions: &Extensions) -> Rights {
        match extensions.get::<UdsConnectInfo>() {
            Some(peer) => {
                peer.peer_cred.map_or(Rights::Nothing, |peer| self.access.of_user(peer.uid(), peer.gid()))
            }
            None => self.access.of_unknown_user(),
        }
    }

    /// The message of a request whose sender has these rights.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED`, which is logged with the user, and counted where there are too many for the log.
    pub(super) fn open<T>(&self, needed: Rights, request: Request<T>) -> Result<T, Status> {
        let rights = self.rights(request.extensions());
        if rights < needed {
            self.counters.denied();
            let is_logged = self.log_limit.lock().unwrap_or_else(PoisonError::into_inner).allow_log();
            return Err(errors::denied(rights, is_logged.then(|| peer(&request))));
        }
        Ok(request.into_inner())
    }

    /// The message of a request that changes something, and who sent it.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::open`].
    pub(super) fn open_control<T>(&self, request: Request<T>) -> Result<(T, Requester), Status> {
        let requester = requester(request.extensions());
        Ok((self.open(Rights::Control, request)?, requester))
    }
}

/// The client of a request.
fn requester(extensions: &Extensions) -> Requester {
    match extensions.get::<UdsConnectInfo>().and_then(|peer| peer.peer_cred) {
        Some(peer) => Requester::Unix { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() },
        None => Requester::Tcp(extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr)),
    }
}

fn peer<T>(request: &Request<T>) -> String {
    match request.extensions().get::<UdsConnectInfo>().and_then(|peer| peer.peer_cred) {
        Some(peer) => format!("uid {} gid {} pid {}", peer.uid(), peer.gid(), peer.pid().unwrap_or_default()),
        None => request.remote_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
    }
}
