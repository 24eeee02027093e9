//! Checks whether a request is permitted.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::{Request, Status, transport::server::UdsConnectInfo};

use super::errors;
use crate::daemon::audit::Requester;
use crate::daemon::{
    access::{Access, Rights},
    counters::Counters,
    limits::LogRateLimiter,
};

/// Denied calls logged per minute. More lines would displace other lines from the journal.
const LINES: u32 = 20;

/// Accepts requests whose senders have the rights, and counts the others.
#[derive(Clone, Debug)]
pub struct Authorizer {
    pub(super) access: Access,
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

    /// The message of a request, if its sender has these rights.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED`, which is logged with the user, unless too many were logged already, and counted.
    pub(super) fn open<T>(&self, needed: Rights, request: Request<T>) -> Result<T, Status> {
        let rights = self.access.of_request(request.extensions());
        if rights < needed {
            self.counters.denied();
            let is_logged = self.log_limit.lock().unwrap_or_else(PoisonError::into_inner).allow_log();
            return Err(errors::denied(rights, is_logged.then(|| peer(&request))));
        }
        Ok(request.into_inner())
    }
}

impl Authorizer {
    /// The message of a request that changes something, and who sent it.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::open`].
    pub(super) fn open_control<T>(&self, request: Request<T>) -> Result<(T, Requester), Status> {
        let asker = Requester::of(request.extensions());
        Ok((self.open(Rights::Control, request)?, asker))
    }
}

fn peer<T>(request: &Request<T>) -> String {
    match request.extensions().get::<UdsConnectInfo>().and_then(|peer| peer.peer_cred) {
        Some(peer) => format!("uid {} gid {} pid {}", peer.uid(), peer.gid(), peer.pid().unwrap_or_default()),
        None => request.remote_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
    }
}
