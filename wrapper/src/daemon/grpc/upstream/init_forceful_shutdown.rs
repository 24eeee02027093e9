//! `InitForcefulShutdown`: starts a forceful drain, and returns when it is in progress. A repeated call changes nothing: a second SIGTERM would
//! skip the runner's clean-up.

use grit_proto::runner_wrapper::InitForcefulShutdownResponse;
use tonic::Status;

use super::check_status::current;
use crate::{
    daemon::{audit::Requester, control::Control},
    supervise::Mode,
};

pub(super) async fn init_forceful_shutdown(
    control: &Control,
    requester: Requester,
) -> Result<InitForcefulShutdownResponse, Status> {
    control.upstream_drain(Mode::Forceful, None, requester).await?;
    let (status, failure_reason) = current(control);
    Ok(InitForcefulShutdownResponse { status: status.into(), failure_reason })
}
