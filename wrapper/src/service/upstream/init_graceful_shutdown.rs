//! `InitGracefulShutdown`: the runner finishes its jobs and ends. Returns when that is under way.
//!
//! A client that goes away cancels nothing. Asking again joins the shutdown that is under way, with a further callback if it brings one.

use grit_proto::runner_wrapper::{InitGracefulShutdownRequest, InitGracefulShutdownResponse};
use tonic::Status;

use crate::{
    access::Access,
    callback::Callback,
    service::{publish, status},
    supervisor::{Handle, Mode, Stop},
};

pub(super) async fn init_graceful_shutdown(
    supervisor: &Handle,
    access: &Access,
    request: InitGracefulShutdownRequest,
) -> Result<InitGracefulShutdownResponse, Status> {
    let mut stop = Stop::new(publish::UPSTREAM, Mode::Graceful);
    // Upstream's client always sends the message, and means "no callback" by an empty URL.
    if let Some(callback) = request.shutdown_callback.filter(|callback| !callback.url.is_empty()) {
        let callback = Callback::new(&callback.url, &callback.method, &callback.headers)
            .map_err(|error| status::from_callback_error(&error))?;
        access.check_callback(&callback).map_err(status::from_callback_refused)?;
        stop.callbacks.push(callback);
    }
    supervisor.stop(stop).await.map_err(|error| status::from_handle_error(&error))?;
    let (status, failure_reason) = publish::upstream(&supervisor.now());
    Ok(InitGracefulShutdownResponse { status: status.into(), failure_reason })
}
