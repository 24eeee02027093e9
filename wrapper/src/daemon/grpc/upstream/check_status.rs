//! `CheckStatus`: what is true now. A client that goes away cancels nothing.

use grit_proto::runner_wrapper::CheckStatusResponse;

use crate::{daemon::grpc::messages, supervise::Handle};

pub(super) fn check_status(supervisor: &Handle) -> CheckStatusResponse {
    let (status, failure_reason) = messages::upstream(&supervisor.now());
    CheckStatusResponse { status: status.into(), failure_reason }
}
