//! Whether a request may be served.

use std::sync::Arc;

use tonic::{Request, Status, transport::server::UdsConnectInfo};

use super::status;
use crate::{
    access::{Access, Rights},
    counters::Counters,
};

/// Lets requests through whose senders have the rights, and counts those that have not.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    pub(super) access: Access,
    counters: Arc<Counters>,
}

impl Guard {
    #[must_use]
    pub fn new(access: Access, counters: Arc<Counters>) -> Self {
        Self { access, counters }
    }

    /// The message of a request whose sender has these rights.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED`, which is logged with the user.
    pub(super) fn open<T>(&self, needed: Rights, request: Request<T>) -> Result<T, Status> {
        let rights = self.access.of_request(request.extensions());
        if rights < needed {
            self.counters.denied();
            return Err(status::denied(rights, &peer(&request)));
        }
        Ok(request.into_inner())
    }
}

fn peer<T>(request: &Request<T>) -> String {
    match request.extensions().get::<UdsConnectInfo>().and_then(|peer| peer.peer_cred) {
        Some(peer) => format!("uid {} gid {} pid {}", peer.uid(), peer.gid(), peer.pid().unwrap_or_default()),
        None => request.remote_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
    }
}
