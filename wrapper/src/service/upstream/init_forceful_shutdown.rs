//! `InitForcefulShutdown`: the runner aborts its jobs and ends, or is killed. Returns when that is under way.
//!
//! A client that goes away cancels nothing. Asking again changes nothing: a second SIGTERM would skip the runner's clean-up.

use grit_proto::runner_wrapper::InitForcefulShutdownResponse;
use tonic::Status;

use crate::{
    service::{publish, status},
    supervisor::{Handle, Mode, Stop},
};

pub(super) async fn init_forceful_shutdown(
    supervisor: &Handle,
) -> Result<InitForcefulShutdownResponse, Status> {
    supervisor
        .stop(Stop::new(publish::UPSTREAM, Mode::Forceful))
        .await
        .map_err(|error| status::from_handle_error(&error))?;
    let (status, failure_reason) = publish::upstream(&supervisor.now());
    Ok(InitForcefulShutdownResponse { status: status.into(), failure_reason })
}
