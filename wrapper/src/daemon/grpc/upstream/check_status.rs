//! `CheckStatus`: the current status.

use grit_proto::runner_wrapper::{CheckStatusResponse, Status};

use crate::{
    daemon::{control::Control, status},
    supervise::State,
};

pub(super) fn check_status(control: &Control) -> CheckStatusResponse {
    let (status, failure_reason) = current(control);
    CheckStatusResponse { status: status.into(), failure_reason }
}

/// The status and failure reason in the terms of upstream's wrapper.
pub(super) fn current(control: &Control) -> (Status, String) {
    let supervision = control.supervision();
    let status = match &supervision.state {
        // Never `stopped`, which is final: a runner may follow.
        State::Idle | State::Starting { stop: None } | State::Backoff { .. } => Status::Unknown,
        // The runner is stopped as soon as it has started, and accepts no job.
        State::Starting { stop: Some(_) } | State::Stopping { .. } => Status::InShutdown,
        State::Running { .. } => Status::Running,
        State::Exited { .. } => Status::Stopped,
    };
    (status, status::failure(&supervision))
}
