//! The REST API: the methods of `grit.wrapper.v1` in JSON.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, Request, State},
    http::{
        HeaderName, StatusCode,
        header::{CONTENT_TYPE, ORIGIN},
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tokio::time::timeout;

use super::context::{ClientAddress, HttpServer, Json, error, json};
use crate::{
    daemon::{
        access::{Requester, Rights},
        control::{ControlError, Kind},
        duration,
        status::{self, Drained},
    },
    supervise::{Answer, Mode, Stop, callback::Callback},
};

/// The same limit as for gRPC requests.
const MAX_BODY: usize = 64 * 1024;

/// A client that sends its body slowly has a connection that others need.
const BODY_LIMIT: Duration = Duration::from_secs(2);

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

/// The body of `POST /cancel`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    id: String,
}

pub(super) async fn status(State(server): State<Arc<HttpServer>>) -> Json {
    json(server.control.status().json())
}

pub(super) async fn jobs(State(server): State<Arc<HttpServer>>) -> Result<Response, ControlError> {
    let list = server.control.jobs().await?;
    let mut response = json(status::json(&list.jobs)).into_response();
    if list.left_out > 0 {
        response.headers_mut().insert(LEFT_OUT, list.left_out.into());
    }
    Ok(response)
}

pub(super) async fn drain(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, ControlError> {
    let drain: Drain = post.parse()?;
    let deadline = drain.deadline.as_deref().map(duration::parse_limit).transpose();
    let deadline = deadline.map_err(|why| ControlError::invalid("deadline", why))?;
    let callbacks = drain.callback.map(|callback| {
        Callback::list(&callback.url, &callback.method, &callback.headers).map_err(ControlError::from)
    });
    let stop = Stop {
        reason: Arc::from(drain.reason),
        deadline: deadline.map(Stop::deadline_in),
        callbacks: callbacks.transpose()?.unwrap_or_default(),
        ..Stop::new(drain.id.as_str(), if drain.force { Mode::Forceful } else { Mode::Graceful })
    };
    let answer = server.control.drain(stop, drain.job_url, post.requester).await?;
    Ok(json(status::json(&Drained {
        status: server.control.status(),
        joined: answer != Answer::Done,
        joined_id: answer.joined_id(),
    })))
}

pub(super) async fn cancel(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, ControlError> {
    let cancel: Cancel = if post.body.is_empty() { Cancel::default() } else { post.parse()? };
    server.control.cancel(&cancel.id, post.requester).await?;
    Ok(json(server.control.status().json()))
}

pub(super) async fn start(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, ControlError> {
    server.control.start(post.requester).await?;
    Ok(json(server.control.status().json()))
}

/// A request for a change, if this server accepts those.
pub(super) struct Post {
    body: Bytes,
    requester: Requester,
}

impl FromRequest<Arc<HttpServer>> for Post {
    type Rejection = Response;

    async fn from_request(request: Request, server: &Arc<HttpServer>) -> Result<Self, Response> {
        let Some(ClientAddress(peer)) = request.extensions().get().copied() else {
            return Err(error(StatusCode::INTERNAL_SERVER_ERROR, "the client's address is unknown"));
        };
        let kind = request.headers().get(CONTENT_TYPE);
        if !server.settings.control {
            return Err(error(
                StatusCode::FORBIDDEN,
                "this HTTP endpoint is read-only; start the wrapper with --http-allow-control",
            ));
        }
        if request.headers().contains_key(ORIGIN) {
            return Err(error(
                StatusCode::FORBIDDEN,
                "requests from web pages (with an Origin header) are not allowed",
            ));
        }
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected content type application/json"));
        }
        let rights = server.access.of_unknown_user();
        if rights < Rights::Control {
            server.counters.denied.add();
            return Err(error(StatusCode::FORBIDDEN, rights.denial()));
        }
        let body = timeout(BODY_LIMIT, to_bytes(request.into_body(), MAX_BODY)).await;
        let body =
            body.map_err(|_| error(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in 2 s"))?;
        let too_large = "the request body is incomplete, or larger than 64 KiB";
        let body = body.map_err(|_| error(StatusCode::PAYLOAD_TOO_LARGE, too_large))?;
        Ok(Self { body, requester: Requester::Http(peer) })
    }
}

impl Post {
    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ControlError> {
        let invalid = |error: serde_json::Error| ControlError::invalid("request body", error.to_string());
        serde_json::from_slice(&self.body).map_err(invalid)
    }
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
