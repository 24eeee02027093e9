//! The supervisor's states in upstream's words.

use grit_proto::runner_wrapper::Status;

use crate::supervisor::{State, Supervision};

/// Upstream's status and failure reason for a state.
pub(super) fn upstream(supervision: &Supervision) -> (Status, String) {
    match &supervision.state {
        // Nothing is known to run yet. Never `stopped`: a child may still come.
        State::Idle | State::Starting { stop: None } => (Status::Unknown, String::new()),
        // The child that comes will be stopped at once, and will take no job.
        State::Starting { stop: Some(_) } => (Status::InShutdown, String::new()),
        // None runs, and one will. Not `stopped`: that is final.
        State::Backoff { end, .. } => {
            let why = end.failure().unwrap_or_else(|| "exit status 0".to_owned());
            let times = supervision.failures;
            (
                Status::Unknown,
                format!("waiting to start the runner again after {times} failures in a row; the last: {why}"),
            )
        }
        State::Running { .. } => (Status::Running, String::new()),
        // Held, draining, forced or killed: all will end, and none has.
        State::Stopping { .. } => (Status::InShutdown, String::new()),
        State::Exited { end, .. } => (Status::Stopped, end.failure().unwrap_or_default()),
    }
}
