//! HTTP client for the runner's HTTP server.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use thiserror::Error;
use tokio::time::timeout;

/// Larger than the metrics of a runner with hundreds of sections.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The runner responds from memory, on this host.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);

/// Why there is no response.
#[derive(Debug, Error)]
pub(super) enum GetError {
    #[error("invalid HTTP address")]
    Address,
    #[error("no response within {RESPONSE_LIMIT:?}")]
    Timeout,
    #[error("connection failed")]
    Connect,
    #[error("the response is incomplete or too large")]
    Body,
}

/// A client that keeps its connection open between requests.
#[derive(Clone, Debug)]
pub(super) struct Http(Client<HttpConnector, Empty<Bytes>>);

impl Http {
    pub(super) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build_http())
    }

    pub(super) async fn get(&self, endpoint: &str, path: &str) -> Result<(StatusCode, String), GetError> {
        let request = Request::get(format!("http://{endpoint}{path}"))
            .body(Empty::new())
            .map_err(|_| GetError::Address)?;
        let answer = async {
            let answer = self.0.request(request).await.map_err(|_| GetError::Connect)?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), MAX_BODY).collect().await.map_err(|_| GetError::Body)?;
            Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        timeout(RESPONSE_LIMIT, answer).await.map_err(|_| GetError::Timeout)?
    }
}
