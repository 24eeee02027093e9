//! `InitForcefulShutdown`: the runner aborts its jobs and ends, or is killed. Returns when that is under way.
//!
//! A client that goes away cancels nothing. Asking again changes nothing: a second SIGTERM would skip the runner's clean-up.

use std::sync::Arc;

use grit_proto::runner_wrapper::InitForcefulShutdownResponse;
use tonic::Status;

use super::Upstream;
use crate::{
    daemon::{
        audit::{Asker, Change},
        grpc::{errors, messages},
    },
    supervise::{DrainId, Mode, Stop},
};

pub(super) async fn init_forceful_shutdown(
    upstream: Upstream,
    asker: Asker,
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
