//! HTTP server for monitoring: `GET /metrics` for Prometheus, and `GET /status`, the JSON output of `grit-wrapper status`. Off unless an
//! address is set.
//!
//! There is no authentication and no request that changes something. Clients on other hosts can read the metrics only.

mod exposition;
mod metrics;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use super::{limits::LogRateLimiter, listen::Address};
use crate::daemon::{control::Control, counters::Counters, status};

/// The settings of the HTTP server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: Address,
    /// Whether other hosts may read the metrics. If not, the address must be on loopback.
    pub remote: bool,
    /// The flag that sets `remote`.
    pub remote_allowed_by: &'static str,
}

#[derive(Clone, Debug)]
pub struct HttpServer {
    pub control: Control,
    pub counters: Arc<Counters>,
}

/// Timeout for the head of a request. It fits one packet, so that idle connections cannot block others for long: two hundred slow clients
/// delay a request by 3.5 s.
const RECEIVE_LIMIT: Duration = Duration::from_millis(500);

/// Timeout for a request and its response. Each request uses a separate connection.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Concurrent connections. Further connections wait, and use no file descriptor.
const MAX_CONNECTIONS: usize = 32;

/// Delay after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

impl HttpServer {
    /// Serves requests; never returns.
    pub async fn serve(self, listener: TcpListener) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut failures = LogRateLimiter::per_minute(1);
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if failures.allow_log() {
                        warn!(%error, "cannot accept an HTTP connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let server = self.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let response = server.respond(peer, request.method(), request.uri().path());
                    async { Ok::<_, Infallible>(response) }
                });
                let connection = http1::Builder::new()
                    .keep_alive(false)
                    .timer(TokioTimer::new())
                    .header_read_timeout(RECEIVE_LIMIT)
                    .serve_connection(TokioIo::new(stream), service);
                match timeout(REQUEST_LIMIT, connection).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "HTTP connection failed"),
                    Err(_) => debug!("HTTP connection timed out"),
                }
                drop(permit);
            });
        }
    }

    fn respond(&self, client: SocketAddr, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !is_allowed(client.ip(), path) {
            let why = "other hosts can read /metrics only; connect on this host, or by SSH";
            return error(StatusCode::FORBIDDEN, why);
        }
        let (kind, content): (_, &dyn Fn() -> String) = match path {
            "/metrics" => (PROMETHEUS, &|| metrics::page(&self.control, &self.counters)),
            "/status" => (JSON, &|| status::json(&self.control.status())),
            _ => return error(StatusCode::NOT_FOUND, "path not found; available: /metrics and /status"),
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            return response;
        }
        response(StatusCode::OK, kind, content())
    }
}

/// Whether a client may request this path. A client on loopback is on this host, or uses a tunnel to it.
fn is_allowed(client: IpAddr, path: &str) -> bool {
    client.to_canonical().is_loopback() || path == "/metrics"
}

fn error(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    response(status, JSON, format!("{}\n", serde_json::json!({ "error": why })))
}

fn response(status: StatusCode, kind: HeaderValue, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_clients_get_only_metrics() {
        for client in
            ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7", "0.0.0.0"].map(|ip| ip.parse().unwrap())
        {
            for path in ["/status", "/", "/metrics/", "//metrics"] {
                assert!(!is_allowed(client, path), "{client} {path}");
            }
            assert!(is_allowed(client, "/metrics"));
        }
        for client in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"].map(|ip| ip.parse().unwrap()) {
            assert!(is_allowed(client, "/status"), "{client}");
        }
    }
}
