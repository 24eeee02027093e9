//! The check of the client's rights, which every call passes.

use std::sync::Arc;

use tonic::Status;
use tracing::warn;

use crate::{
    daemon::{
        counters::Counters,
        serve::{
            access::{Access, Requester, Rights},
            limits::CallLogLimit,
        },
    },
    supervise::log_key as key,
};

/// Accepts requests whose sender has the rights, and counts the others.
#[derive(Clone, Debug)]
pub struct Authorizer {
    access: Access,
    counters: Arc<Counters>,
    log_limit: CallLogLimit,
}

impl Authorizer {
    pub fn new(access: Access, counters: Arc<Counters>) -> Self {
        Self { access, counters, log_limit: CallLogLimit::default() }
    }

    /// The message of a request, and its sender.
    /// Fails with `PERMISSION_DENIED`, which is counted, and logged up to a limit.
    pub(super) fn open<T>(
        &self,
        needed: Rights,
        request: tonic::Request<T>,
    ) -> Result<(T, Requester), Status> {
        let requester = request.extensions().get::<Requester>().copied();
        let requester = requester.ok_or_else(|| Status::internal("the client of the request is unknown"))?;
        let rights = self.access.of(requester);
        if rights < needed {
            self.counters.denied.add();
            if self.log_limit.allow_log() {
                let (uid, gid, pid) = requester.ids();
                warn!(
                    ?rights,
                    { key::PEER } = %requester,
                    { key::UID } = uid,
                    { key::GID } = gid,
                    { key::PID } = pid,
                    "request denied"
                );
            }
            return Err(Status::permission_denied(rights.denial()));
        }
        Ok((request.into_inner(), requester))
    }
}
