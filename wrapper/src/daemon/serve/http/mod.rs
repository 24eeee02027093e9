//! HTTP server: `/metrics` for Prometheus, and a small REST API. Off unless an address is set.
//!
//! | request | response |
//! | --- | --- |
//! | `GET /metrics` | the metrics, also while no runner is running |
//! | `GET /status`, `GET /jobs` | the JSON output of the commands |
//! | `POST /drain` | as the command; only with `--http-allow-control` |
//!
//! There is no authentication, so it is read-only by default, and clients on other hosts can read the metrics only. A web page in a
//! browser on this host cannot send the POST request: it is rejected with an `Origin` header, and without the content type
//! `application/json`.

mod context;
mod exposition;
mod metrics;
mod rest;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    http::StatusCode,
    middleware::{Next, from_fn},
    routing::{get, post},
};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tower::ServiceExt;
use tracing::{debug, warn};

use self::context::{ClientAddress, RECEIVE_LIMIT, error};
pub use self::context::{HttpServer, Settings};
use super::limits::LogRateLimiter;
use crate::supervise::log_key as key;

/// Timeout for a request and its response. Each request uses a separate connection.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Concurrent connections. Further connections wait, and use no file descriptor.
const MAX_CONNECTIONS: usize = 32;

/// Delay after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl HttpServer {
    /// Serves requests; never returns.
    pub async fn serve(self, listener: tokio::net::TcpListener) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut failures = LogRateLimiter::per_minute(1);
        let router = Arc::new(self).router();
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if failures.allow_log() {
                        warn!({ key::ERROR } = %error, "cannot accept an HTTP connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let router = router.clone();
            tokio::spawn(async move {
                let service = service_fn(|mut request: Request<Incoming>| {
                    request.extensions_mut().insert(ClientAddress(peer));
                    router.clone().oneshot(request)
                });
                let connection = http1::Builder::new()
                    .keep_alive(false)
                    .timer(TokioTimer::new())
                    .header_read_timeout(RECEIVE_LIMIT)
                    .serve_connection(TokioIo::new(stream), service);
                match timeout(REQUEST_LIMIT, connection).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!({ key::ERROR } = %error, "HTTP connection failed"),
                    Err(_) => debug!("HTTP connection timed out"),
                }
                drop(permit);
            });
        }
    }

    fn router(self: Arc<Self>) -> Router {
        let only_metrics = async |request: axum::extract::Request, next: Next| {
            let peer = request.extensions().get::<ClientAddress>();
            if peer.is_some_and(|ClientAddress(peer)| is_allowed(peer.ip(), request.uri().path())) {
                return next.run(request).await;
            }
            error(
                StatusCode::FORBIDDEN,
                "other hosts can read /metrics only; connect on this host, or by SSH",
            )
        };
        Router::new()
            .route("/metrics", get(metrics::get))
            .route("/status", get(rest::status))
            .route("/jobs", get(rest::jobs))
            .route("/drain", post(rest::drain))
            .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
            .fallback(async || {
                error(StatusCode::NOT_FOUND, "path not found; available: /metrics, /status, /jobs and /drain")
            })
            .layer(from_fn(only_metrics))
            .with_state(self)
    }
}

/// Whether a client may request this path. A client on loopback is on this host, or uses a tunnel to it.
fn is_allowed(client: IpAddr, path: &str) -> bool {
    client.to_canonical().is_loopback() || path == "/metrics"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_clients_get_only_metrics() {
        for client in
            ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7", "0.0.0.0"].map(|ip| ip.parse().unwrap())
        {
            for path in ["/status", "/jobs", "/drain", "/", "/metrics/", "//metrics"] {
                assert!(!is_allowed(client, path), "{client} {path}");
            }
            assert!(is_allowed(client, "/metrics"));
        }
        for client in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"].map(|ip| ip.parse().unwrap()) {
            assert!(is_allowed(client, "/status"), "{client}");
        }
    }
}
