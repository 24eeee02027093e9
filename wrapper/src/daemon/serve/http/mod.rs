//! HTTP server for monitoring: `GET /metrics` for Prometheus, `GET /health/live` and `GET /health/ready` for orchestrators and load balancers, and
//! `GET /status`, the JSON output of `grit-wrapper status`. Off unless an address is set.
//!
//! There is no authentication and no request that changes something. Clients on other hosts can read the metrics and the health only.

mod exposition;
mod metrics;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use grit_proto::{json::short, wrapper_v1::Level};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, Uri,
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

use super::{LEVELS, limits::LogRateLimiter, listen::Address};
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

/// The wrapper serves. A drained runner changes nothing.
const LIVE: &str = "/health/live";

/// The runner has a level: `?level=polling`.
const READY: &str = "/health/ready";

/// How long the supervisor may need to respond: longer than a slow write of the state file.
const LIVE_LIMIT: Duration = Duration::from_secs(20);

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
                let service = service_fn(async |request: Request<Incoming>| {
                    Ok::<_, Infallible>(server.respond(peer, request.method(), request.uri()).await)
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

    async fn respond(&self, client: SocketAddr, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        let path = uri.path();
        if !is_allowed(client.ip(), path) {
            let why = "other hosts can read /metrics and /health only; connect on this host, or by SSH";
            return error(StatusCode::FORBIDDEN, why);
        }
        if !matches!(path, "/metrics" | "/status" | LIVE | READY) {
            let why = "path not found; available: /metrics, /status, /health/live and /health/ready";
            return error(StatusCode::NOT_FOUND, why);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            return response;
        }
        match path {
            "/metrics" => response(StatusCode::OK, PROMETHEUS, metrics::page(&self.control, &self.counters)),
            LIVE => self.live().await,
            READY => self.ready(uri.query()),
            _ => response(StatusCode::OK, JSON, status::json(&self.control.status())),
        }
    }

    /// Whether the supervisor of the runner responds, as for the watchdog of systemd.
    async fn live(&self) -> Response<Full<Bytes>> {
        match timeout(LIVE_LIMIT, self.control.responds()).await {
            Ok(true) => response(StatusCode::OK, JSON, "{\"live\":true}\n".to_owned()),
            Ok(false) | Err(_) => {
                error(StatusCode::SERVICE_UNAVAILABLE, "the supervisor of the runner does not respond")
            }
        }
    }

    /// Whether the runner has at least the level of the query.
    fn ready(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        let Some(wanted) = wanted_level(query) else {
            return error(
                StatusCode::BAD_REQUEST,
                "query: expected level=process, ready, polling or working",
            );
        };
        let health = self.control.status().health.unwrap_or_default();
        let level = health.level();
        let status = if level >= wanted { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = serde_json::json!({ "level": short(level.as_str_name()), "reasons": health.reasons });
        response(status, JSON, format!("{body}\n"))
    }
}

/// The level of the query.
fn wanted_level(query: Option<&str>) -> Option<Level> {
    match query {
        None | Some("") => Some(Level::Polling),
        Some(query) => {
            let name = query.strip_prefix("level=")?;
            LEVELS.into_iter().find(|level| short(level.as_str_name()) == name)
        }
    }
}

/// Whether a client may request this path. A client on loopback is on this host, or uses a tunnel to it.
fn is_allowed(client: IpAddr, path: &str) -> bool {
    client.to_canonical().is_loopback() || matches!(path, "/metrics" | LIVE | READY)
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
    fn remote_clients_get_only_metrics_and_health() {
        for client in
            ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7", "0.0.0.0"].map(|ip| ip.parse().unwrap())
        {
            for path in ["/status", "/", "/metrics/", "//metrics", "/health", "/health/live/"] {
                assert!(!is_allowed(client, path), "{client} {path}");
            }
            for path in ["/metrics", LIVE, READY] {
                assert!(is_allowed(client, path), "{client} {path}");
            }
        }
        for client in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"].map(|ip| ip.parse().unwrap()) {
            assert!(is_allowed(client, "/status"), "{client}");
        }
    }

    #[test]
    fn query_names_one_level() {
        let name = |query| wanted_level(query).map(|level| short(level.as_str_name()));
        assert_eq!(
            [None, Some(""), Some("level=working")].map(|query| name(query).unwrap()),
            ["polling", "polling", "working"]
        );
        for query in ["level=", "level=none", "level=POLLING", "polling", "level=ready&level=process"] {
            assert_eq!(name(Some(query)), None, "{query}");
        }
    }
}
