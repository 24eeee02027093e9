//! Every gRPC error of the wrapper is made here.

use tonic::Status;
use tracing::warn;

use crate::{
    callback::CallbackError,
    supervisor::{HandleError, Refusal},
};

pub(super) fn from_handle_error(error: &HandleError) -> Status {
    warn!(%error, "request refused");
    match error {
        HandleError::Busy => Status::resource_exhausted(error.to_string()),
        HandleError::Ended => Status::unavailable(error.to_string()),
        HandleError::Refused(refusal) => match refusal {
            Refusal::TooManyCallbacks => Status::resource_exhausted(refusal.to_string()),
            Refusal::Stopping | Refusal::Leaving | Refusal::NotStopping | Refusal::TooLate => {
                Status::failed_precondition(refusal.to_string())
            }
        },
    }
}

pub(super) fn from_callback_error(error: &CallbackError) -> Status {
    warn!(%error, "shutdown refused, nothing was stopped");
    Status::invalid_argument(format!("shutdownCallback: {error}; nothing was stopped"))
}
