//! The calls of both services: the client of a call, and whether it may change anything.

use std::sync::Arc;

use tonic::Status;
use tracing::warn;

use crate::daemon::{
    control::Control,
    counters::Counters,
    serve::{limits::CallLogLimit, requester::Requester},
};

/// The client of a connection, among the extensions of each of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(super) requester: Requester,
    /// The address is for the status only.
    pub(super) is_read_only: bool,
}

/// Both services of one runner. They accept calls that change something, except those on the address for the status, which are counted.
#[derive(Clone, Debug)]
pub struct Api {
    pub(super) control: Control,
    counters: Arc<Counters>,
    log_limit: CallLogLimit,
}

impl Api {
    pub fn new(control: Control, counters: Arc<Counters>) -> Self {
        Self { control, counters, log_limit: CallLogLimit::default() }
    }

    /// The message of a request that changes something, and its sender.
    /// Fails with `PERMISSION_DENIED`, which is counted, and logged up to a limit.
    pub(super) fn change<T>(&self, request: tonic::Request<T>) -> Result<(T, Requester), Status> {
        let client = request.extensions().get::<Client>().copied();
        let Client { requester, is_read_only } =
            client.ok_or_else(|| Status::internal("the client of the request is unknown"))?;
        if is_read_only {
            self.counters.denied.add();
            if self.log_limit.allow_log() {
                let (uid, gid, pid) = requester.ids();
                warn!(
                    peer = %requester,
                    uid,
                    gid,
                    pid,
                    "request denied"
                );
            }
            return Err(Status::permission_denied(
                "this address of the wrapper is read-only (--status-listen)",
            ));
        }
        Ok((request.into_inner(), requester))
    }
}
