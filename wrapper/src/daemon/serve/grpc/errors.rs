//! The gRPC status of a rejected request.

use tonic::Status;

use crate::daemon::control::{ControlError, Kind};

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
