//! `InitGracefulShutdown`: starts a graceful drain, and returns when it is in progress. A repeated call joins it, and adds its callback.

use grit_proto::runner_wrapper::{InitGracefulShutdownRequest, InitGracefulShutdownResponse};
use tonic::Status;

use super::check_status::current;
use crate::{
    daemon::{audit::Requester, control::Control},
    supervise::{Mode, callback::Callback},
};

pub(super) async fn init_graceful_shutdown(
    control: &Control,
    request: InitGracefulShutdownRequest,
    requester: Requester,
) -> Result<InitGracefulShutdownResponse, Status> {
    // Upstream's client always sends the message. An empty URL means "no callback".
    let callback = request.shutdown_callback.filter(|callback| !callback.url.is_empty());
    let callback = callback.map(|callback| Callback::new(&callback.url, &callback.method, &callback.headers));
    control.upstream_drain(Mode::Graceful, callback, requester).await?;
    let (status, failure_reason) = current(control);
    Ok(InitGracefulShutdownResponse { status: status.into(), failure_reason })
}
