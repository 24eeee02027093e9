//! `InitForcefulShutdown`: the runner aborts its jobs and exits, or is killed. Returns without waiting for the exit.
//!
//! It is executed even if the client disconnects. A repeated call changes nothing, because a second SIGTERM would skip the runner's
//! cleanup.

use std::sync::Arc;

use grit_proto::runner_wrapper::InitForcefulShutdownResponse;
use tonic::Status;

use super::Upstream;
use crate::{
    daemon::{
        audit::{Change, Requester},
        grpc::{errors, messages},
    },
    supervise::{DrainId, Mode, Stop},
};

pub(super) async fn init_forceful_shutdown(
    upstream: Upstream,
    asker: Requester,
) -> Result<InitForcefulShutdownResponse, Status> {
    let supervisor = &upstream.supervisor;
    let stop =
        Stop { requested_by: Arc::from(asker.to_string()), ..Stop::new(DrainId::Upstream, Mode::Forceful) };
    let answer = supervisor.stop(stop).await.map_err(|error| errors::from_handle_error(&error))?;
    let accepted = Change {
        action: "drain",
        outcome: "started",
        mode: Some(Mode::Forceful.name()),
        id: Some(DrainId::Upstream.as_str()),
        ..Change::default()
    };
    accepted.answered(&answer).log(asker);
    let (status, failure_reason) = messages::upstream(&supervisor.now());
    Ok(InitForcefulShutdownResponse { status: status.into(), failure_reason })
}
