//! Serving the services on the listeners, within limits.

use std::{sync::Arc, time::Duration};

use grit_proto::{
    reflection::server_reflection_server::ServerReflectionServer,
    runner_wrapper::process_wrapper_server::ProcessWrapperServer, wrapper_v1::wrapper_server::WrapperServer,
};
use thiserror::Error;
use tokio::{
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    server::NamedService,
    transport::{Server, server::Router},
};
use tonic_health::server::health_reporter;
use tower::layer::util::{Identity, Stack};

use super::{
    Own, Upstream,
    accept::incoming,
    call_counter::Counting,
    call_tracking::Seating,
    reflection::{Older, Reflection},
};
use crate::daemon::{counters::Counters, listen::Listener};

/// The largest request is a callback with its headers. Answers have no limit here, since one that could not be encoded would hide what
/// was done: [`super::messages`] keeps them short.
const MAX_REQUEST: usize = 64 * 1024;

/// Calls at one time on one connection. Each may hold a message that has not come to its end.
const MAX_STREAMS: u32 = 8;

/// How long a call may take until its answer begins. The longest is a start, whose exec may hang for half of it.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// A connection without traffic is asked for a sign of life this often, so that the dead ones go.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long an ending server waits for the calls under way.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Why serving ended although nobody had stopped it.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot serve a listener: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("serving a listener {}", .0.as_ref().map_or_else(|| "ended".to_owned(), ToString::to_string))]
    Ended(Option<JoinError>),
}

/// What is served on every listener.
#[derive(Clone, Debug)]
pub struct Services {
    pub upstream: Upstream,
    /// Ours; left out, the wrapper looks to clients as upstream's does.
    pub own: Option<Own>,
    /// Where the calls are counted.
    pub counters: Arc<Counters>,
}

/// Answers on all `listeners` until `stop` is cancelled; then lets the calls under way end, for a moment at most.
///
/// # Errors
///
/// None is expected: a connection that fails ends alone.
pub async fn serve(
    listeners: Vec<Listener>,
    services: Services,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let mut sockets = Vec::new();
    let mut servers = JoinSet::new();
    for listener in listeners {
        let router = router(services.clone()).await;
        let counters = Arc::clone(&services.counters);
        let stop = stop.clone().cancelled_owned();
        match listener {
            Listener::Unix(mut socket) => {
                if let Some(listener) = socket.take() {
                    servers.spawn(router.serve_with_incoming_shutdown(incoming(listener, counters), stop));
                }
                // Its path goes when the server has ended.
                sockets.push(socket);
            }
            Listener::Tcp(listener) => {
                servers.spawn(router.serve_with_incoming_shutdown(incoming(listener, counters), stop));
            }
        }
    }
    let drained = async {
        stop.cancelled().await;
        sleep(DRAIN_LIMIT).await;
    };
    tokio::select! {
        result = all(&mut servers, &stop) => result,
        () = drained => Ok(()),
    }
}

/// Waits until every server was stopped. One that ends before leaves a listener that does not answer any more.
async fn all(
    servers: &mut JoinSet<Result<(), tonic::transport::Error>>,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    while let Some(ended) = servers.join_next().await {
        ended.map_err(|error| ServeError::Ended(Some(error)))??;
        if !stop.is_cancelled() {
            return Err(ServeError::Ended(None));
        }
    }
    Ok(())
}

async fn router(services: Services) -> Router<Stack<Seating, Stack<Counting, Identity>>> {
    let hidden: &[_] = if services.own.is_some() { &[] } else { &[WrapperServer::<Own>::NAME] };
    let reflection = Reflection { guard: services.upstream.guard().clone(), hidden };
    let reflection = ServerReflectionServer::new(reflection).max_decoding_message_size(MAX_REQUEST);
    let upstream = ProcessWrapperServer::new(services.upstream).max_decoding_message_size(MAX_REQUEST);
    // Health of the wrapper itself: it answers. That of the runner is what the wrapper answers.
    let (reporter, health) = health_reporter();
    reporter.set_serving::<ProcessWrapperServer<Upstream>>().await;
    let own = services.own.map(|own| WrapperServer::new(own).max_decoding_message_size(MAX_REQUEST));
    if own.is_some() {
        reporter.set_serving::<WrapperServer<Own>>().await;
    }
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .timeout(CALL_LIMIT)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .layer(Counting(services.counters))
        .layer(Seating)
        .add_service(health)
        .add_service(Older(reflection.clone()))
        .add_service(reflection)
        .add_service(upstream)
        .add_optional_service(own)
}
