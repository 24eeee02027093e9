//! Every gRPC error of the wrapper is made here.

use tonic::Status;
use tracing::warn;

use crate::daemon::{
    access::Rights,
    control::{ControlError, Kind},
};

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        match error.kind() {
            Kind::Invalid => Self::invalid_argument(text),
            Kind::Denied => Self::permission_denied(text),
            Kind::Precondition => Self::failed_precondition(text),
            Kind::Exhausted => Self::resource_exhausted(text),
            Kind::Unavailable => Self::unavailable(text),
            Kind::Internal => Self::internal(text),
        }
    }
}

/// The peer does not have the rights for its request. It is logged if it is named.
pub(super) fn denied(rights: Rights, peer: Option<String>) -> Status {
    if let Some(peer) = peer {
        warn!(?rights, peer, "request denied");
    }
    Status::permission_denied(rights.denial())
}
