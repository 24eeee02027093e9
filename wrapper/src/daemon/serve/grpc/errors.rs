//! The gRPC status of a rejected request.

use tonic::Status;

use crate::{daemon::control::ControlError, supervise::HandleError};

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        match error {
            ControlError::Invalid { .. } | ControlError::Callback(_) => Self::invalid_argument(text),
            ControlError::CallbackRefused(_) => Self::permission_denied(text),
            // Also too many callbacks: a retry fails until one of them is finished.
            ControlError::SelfDrain(_)
            | ControlError::Launcher(_)
            | ControlError::Supervisor(HandleError::Refused(_)) => Self::failed_precondition(text),
            ControlError::Supervisor(HandleError::Busy) => Self::resource_exhausted(text),
            ControlError::NoJobs | ControlError::Supervisor(HandleError::Ended) => Self::unavailable(text),
            ControlError::Failed => Self::internal(text),
        }
    }
}
