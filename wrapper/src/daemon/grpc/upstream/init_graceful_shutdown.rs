//! `InitGracefulShutdown`: the runner finishes its jobs and exits. Returns without waiting for the exit.
//!
//! It is executed even if the client disconnects. A repeated call joins the shutdown in progress, and can add a callback.

use std::sync::Arc;

use grit_proto::runner_wrapper::{InitGracefulShutdownRequest, InitGracefulShutdownResponse};
use tonic::Status;

use super::Upstream;
use crate::{
    daemon::{
        audit::{Change, Requester},
        grpc::{errors, messages},
    },
    supervise::{DrainId, Mode, Stop, callback::Callback},
};

pub(super) async fn init_graceful_shutdown(
    upstream: Upstream,
    request: InitGracefulShutdownRequest,
    asker: Requester,
) -> Result<InitGracefulShutdownResponse, Status> {
    let (supervisor, access) = (&upstream.supervisor, &upstream.guard.access);
    let mut stop =
        Stop { requested_by: Arc::from(asker.to_string()), ..Stop::new(DrainId::Upstream, Mode::Graceful) };
    // Upstream's client always sends the message; an empty URL means "no callback".
    if let Some(callback) = request.shutdown_callback.filter(|callback| !callback.url.is_empty()) {
        let callback = Callback::new(&callback.url, &callback.method, &callback.headers)
            .map_err(|error| errors::from_callback_error(&error))?;
        access.check_callback(&callback).map_err(errors::from_callback_refused)?;
        stop.callbacks.push(callback);
    }
    let accepted = Change {
        action: "drain",
        outcome: "started",
        mode: Some(Mode::Graceful.name()),
        id: Some(DrainId::Upstream.as_str()),
        callbacks: (!stop.callbacks.is_empty()).then_some(stop.callbacks.len()),
        ..Change::default()
    };
    let answer = supervisor.stop(stop).await.map_err(|error| errors::from_handle_error(&error))?;
    accepted.answered(&answer).log(asker);
    let (status, failure_reason) = messages::upstream(&supervisor.now());
    Ok(InitGracefulShutdownResponse { status: status.into(), failure_reason })
}
