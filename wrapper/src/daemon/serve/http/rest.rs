//! The REST API: methods of `grit.wrapper.v1` in JSON.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    body::to_bytes,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{CONTENT_TYPE, ORIGIN},
    },
    response::{IntoResponse, Response},
};
use grit_proto::wrapper_v1::{Callback, DrainRequest, Mode};
use serde::Deserialize;
use tokio::time::timeout;

use super::context::{ClientAddress, HttpServer, Json, RECEIVE_LIMIT, error, json};
use crate::{
    daemon::{
        control::{ControlError, Kind},
        serve::access::{Requester, Rights},
        status,
    },
    text::duration,
};

/// The same limit as for gRPC requests.
const MAX_BODY: usize = 64 * 1024;

/// Number of jobs that are not in the response to `GET /jobs`; omitted if it is 0.
const LEFT_OUT: HeaderName = HeaderName::from_static("grit-jobs-left-out");

/// The body of `POST /drain`; only `id` is required.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    id: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    reason: String,
    /// As on the command line: `2h30m`.
    deadline: Option<String>,
    callback: Option<DrainCallback>,
    #[serde(default)]
    job_url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainCallback {
    url: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    headers: HashMap<String, String>,
}

pub(super) async fn status(State(server): State<Arc<HttpServer>>) -> Json {
    json(status::json(&server.control.status()))
}

pub(super) async fn jobs(State(server): State<Arc<HttpServer>>) -> Result<Response, ControlError> {
    let list = server.control.jobs().await?;
    let mut response = json(status::json_list(&list.jobs)).into_response();
    if list.left_out > 0 {
        response.headers_mut().insert(LEFT_OUT, list.left_out.into());
    }
    Ok(response)
}

pub(super) async fn drain(
    State(server): State<Arc<HttpServer>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    request: Request,
) -> Result<Json, Response> {
    if let Some((status, why)) = refusal(&server, request.headers()) {
        return Err(error(status, why));
    }
    let body = timeout(RECEIVE_LIMIT, to_bytes(request.into_body(), MAX_BODY)).await;
    let body =
        body.map_err(|_| error(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time"))?;
    let too_large = "the request body is incomplete, or larger than 64 KiB";
    let body = body.map_err(|_| error(StatusCode::PAYLOAD_TOO_LARGE, too_large))?;
    let answer = match parse(&body) {
        Ok(drain) => server.control.drain(drain, Requester::Http(peer)).await,
        Err(invalid) => Err(invalid),
    };
    Ok(json(status::json(&answer.map_err(ControlError::into_response)?)))
}

/// Why this server does not accept a request for a change.
fn refusal(server: &HttpServer, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    if !server.settings.control {
        let why = "this HTTP endpoint is read-only; start the wrapper with --http-allow-control";
        return Some((StatusCode::FORBIDDEN, why));
    }
    if headers.contains_key(ORIGIN) {
        let why = "requests from web pages (with an Origin header) are not allowed";
        return Some((StatusCode::FORBIDDEN, why));
    }
    if !headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected content type application/json"));
    }
    let rights = server.access.of_unknown_user();
    if rights < Rights::Control {
        server.counters.denied.add();
        return Some((StatusCode::FORBIDDEN, rights.denial()));
    }
    None
}

/// The request in the form of gRPC.
fn parse(body: &[u8]) -> Result<DrainRequest, ControlError> {
    let drain: Drain = serde_json::from_slice(body)
        .map_err(|error| ControlError::invalid("request body", error.to_string()))?;
    let deadline = drain.deadline.as_deref().map(duration::parse).transpose();
    let deadline = deadline.map_err(|why| ControlError::invalid("deadline", why))?;
    let deadline = deadline.map(prost_types::Duration::try_from).transpose();
    let deadline = deadline.map_err(|why| ControlError::invalid("deadline", why.to_string()))?;
    let mode = if drain.force { Mode::Forceful } else { Mode::Graceful };
    let callback =
        drain.callback.map(|DrainCallback { url, method, headers }| Callback { url, method, headers });
    Ok(DrainRequest {
        id: drain.id,
        mode: mode.into(),
        reason: drain.reason,
        deadline,
        callback,
        job_url: drain.job_url,
    })
}

/// The answer to a rejected request.
impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let code = match self.kind() {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::Precondition => StatusCode::CONFLICT,
            Kind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error(code, &self.to_string())
    }
}
