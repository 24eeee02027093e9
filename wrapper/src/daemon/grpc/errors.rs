//! All gRPC errors of the wrapper.

use tonic::Status;
use tracing::warn;

use crate::supervise::log_key as key;
use crate::{
    daemon::access::{CallbackRefused, Rights},
    supervise::{HandleError, Refusal, callback::CallbackError},
};

pub(super) fn from_handle_error(error: &HandleError) -> Status {
    warn!({ key::ERROR } = %error, "request rejected");
    match error {
        HandleError::Busy => Status::resource_exhausted(error.to_string()),
        HandleError::Ended => Status::unavailable(error.to_string()),
        HandleError::Refused(refusal) => match refusal {
            Refusal::TooManyCallbacks => Status::resource_exhausted(refusal.to_string()),
            Refusal::Stopping
            | Refusal::Leaving
            | Refusal::NotStopping
            | Refusal::OtherStop
            | Refusal::NoStateFile
            | Refusal::TooLate => Status::failed_precondition(refusal.to_string()),
        },
    }
}

pub(super) fn from_callback_error(error: &CallbackError) -> Status {
    warn!({ key::ERROR } = %error, "shutdown request rejected");
    Status::invalid_argument(format!("shutdownCallback: {error}; the runner was not stopped"))
}

pub(super) fn from_callback_refused(error: CallbackRefused) -> Status {
    warn!({ key::ERROR } = %error, "shutdown request rejected");
    Status::permission_denied(format!("callback: {error}; the runner was not stopped"))
}

/// The peer has no permission. Logged if `peer` is given.
pub(super) fn denied(rights: Rights, peer: Option<String>) -> Status {
    if let Some(peer) = peer {
        warn!({ key::RIGHTS } = ?rights, { key::PEER } = peer, "request denied");
    }
    match rights {
        Rights::Nothing => Status::permission_denied("this user has no access"),
        Rights::Read | Rights::Control => {
            Status::permission_denied("this user has read-only access; not in --allow-control")
        }
    }
}

/// A field of a request is invalid.
pub(super) fn wrong(field: &str, why: &str) -> Status {
    warn!({ key::FIELD } = field, { key::REASON } = why, "request rejected");
    Status::invalid_argument(format!("{field}: {why}; the runner was not stopped"))
}

pub(super) fn self_drain(job: Option<u64>) -> Status {
    let job = job.map(|id| format!(" ({id})")).unwrap_or_default();
    warn!({ key::JOB } = job, "drain rejected: it was requested by a job of this runner");
    Status::failed_precondition(format!(
        "the drain was requested by a job{job} of this runner, so it would wait indefinitely for its own \
         job; run it on another runner"
    ))
}

pub(super) fn no_jobs() -> Status {
    Status::unavailable(
        "job list unavailable: the runner is not running, or has no HTTP server (listen_address)",
    )
}
