//! Every gRPC error of the wrapper is made here.

use tonic::Status;
use tracing::warn;

use crate::{
    daemon::access::{CallbackRefused, Rights},
    supervise::{HandleError, Refusal, callback::CallbackError},
};

pub(super) fn from_handle_error(error: &HandleError) -> Status {
    warn!(%error, "request refused");
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
    warn!(%error, "shutdown refused, nothing was stopped");
    Status::invalid_argument(format!("shutdownCallback: {error}; nothing was stopped"))
}

pub(super) fn from_callback_refused(error: CallbackRefused) -> Status {
    warn!(%error, "shutdown refused, nothing was stopped");
    Status::permission_denied(format!("callback: {error}; nothing was stopped"))
}

/// The peer may not do what it asked for. It is logged where it is named.
pub(super) fn denied(rights: Rights, peer: Option<String>) -> Status {
    if let Some(peer) = peer {
        warn!(?rights, peer, "request denied");
    }
    match rights {
        Rights::Nothing => Status::permission_denied("this user may not ask the wrapper for anything"),
        Rights::Read | Rights::Control => Status::permission_denied("this user may only look"),
    }
}

/// A field of a request is wrong.
pub(super) fn wrong(field: &str, why: &str) -> Status {
    warn!(field, why, "request refused");
    Status::invalid_argument(format!("{field}: {why}; nothing was stopped"))
}

pub(super) fn self_drain(job: Option<u64>) -> Status {
    let job = job.map(|id| format!(" ({id})")).unwrap_or_default();
    warn!(job, "drain refused: it comes from a job of this runner");
    Status::failed_precondition(format!(
        "the drain comes from a job{job} that runs on this runner, and would wait for that job, which is itself, for ever; \
         run it on another runner"
    ))
}

pub(super) fn no_jobs() -> Status {
    Status::unavailable(
        "the runner does not tell its jobs: it does not run, or has no HTTP server (listen_address) to ask",
    )
}
