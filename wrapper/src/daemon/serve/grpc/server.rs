//! Serving the services on the listeners, within limits.

use std::{future::pending, io, time::Duration};

use futures::stream::{Stream, select_all};
use grit_proto::{
    json::short, runner_wrapper::process_wrapper_server::ProcessWrapperServer,
    wrapper_v1::wrapper_server::WrapperServer,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    service::{Routes, RoutesBuilder},
    transport::Server,
};
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};

use super::{
    calls::Api,
    connection::{Connection, KEEPALIVE, incoming},
};
use crate::daemon::{
    control::Control,
    serve::{LEVELS, limits::CALL_LIMIT, listen::Listener},
};

/// The largest request is a callback with its headers. Responses have no limit here, because a response that cannot be encoded would hide
/// the result of a change: [`status`](crate::daemon::status) limits its texts.
const MAX_REQUEST: usize = 64 * 1024;

/// Concurrent calls on one connection. Each can hold an incomplete message in memory.
const MAX_STREAMS: u32 = 8;

/// How long a server that shuts down waits for open calls.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Why serving ended before it was stopped.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot serve gRPC: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("the gRPC listeners ended")]
    Ended,
}

/// Serves the `listeners`, and `status` for reading only, until `stop` is cancelled, then waits for open calls, at most [`SHUTDOWN_LIMIT`].
/// A connection that fails ends alone.
pub async fn serve(
    listeners: Vec<Listener>,
    status: Option<Listener>,
    api: Api,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let control = listeners.into_iter().map(|listener| (listener, false));
    let all = control.chain(status.map(|listener| (listener, true)));
    let connections =
        select_all(all.map(|(listener, is_read_only)| Box::pin(incoming(listener, is_read_only))));
    serve_connections(connections, api, stop).await
}

/// Serves these connections.
pub(crate) async fn serve_connections<S>(
    connections: impl Stream<Item = io::Result<Connection<S>>>,
    api: Api,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (reporter, health) = health_reporter();
    reporter.set_serving::<ProcessWrapperServer<Api>>().await;
    reporter.set_serving::<WrapperServer<Api>>().await;
    let levels = report_levels(api.control.clone(), reporter);
    let server = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .timeout(CALL_LIMIT)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .add_routes(routes(api, health))
        .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
    let drained = async {
        stop.cancelled().await;
        sleep(SHUTDOWN_LIMIT).await;
    };
    tokio::select! {
        biased;
        ended = server => ended?,
        () = drained => {}
        () = levels => {}
    }
    if stop.is_cancelled() { Ok(()) } else { Err(ServeError::Ended) }
}

/// Reports whether the runner has each level, as the service of this name; never returns. Other services are served while the wrapper runs.
async fn report_levels(control: Control, reporter: HealthReporter) {
    let mut changes = control.changes();
    loop {
        let level = changes.status().health.unwrap_or_default().level();
        for wanted in LEVELS {
            let status = if level >= wanted { ServingStatus::Serving } else { ServingStatus::NotServing };
            reporter.set_service_status(short(wanted.as_str_name()), status).await;
        }
        if changes.next().await.is_none() {
            return pending().await;
        }
    }
}

fn routes(api: Api, health: HealthServer<impl Health>) -> Routes {
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(WrapperServer::new(api.clone()).max_decoding_message_size(MAX_REQUEST))
        .add_service(health)
        .add_service(ProcessWrapperServer::new(api).max_decoding_message_size(MAX_REQUEST));
    routes.routes()
}
