//! The REST API: the methods of `grit.wrapper.v1` in JSON.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, Request, State},
    http::{
        HeaderName, StatusCode,
        header::{CONTENT_TYPE, ORIGIN},
    },
    response::{IntoResponse, Response},
};
use grit_proto::wrapper_v1::{
    Callback, CancelRequest, DrainRequest, ListJobsRequest, Mode, StartRequest, wrapper_server::Wrapper,
};
use serde::Deserialize;
use tonic::{Code, Status};

use super::{HttpServer, Json, error, json};
use crate::{
    cli::view,
    daemon::{audit::HttpPeer, duration},
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

/// The body of `POST /cancel`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    id: String,
}

pub(super) async fn status(State(server): State<Arc<HttpServer>>) -> Json {
    json(view::status_json(&server.service.status()))
}

pub(super) async fn jobs(State(server): State<Arc<HttpServer>>) -> Result<Response, Refused> {
    let answer = server.service.list_jobs(tonic::Request::new(ListJobsRequest {})).await?.into_inner();
    let mut response = json(view::jobs_json(&answer.jobs)).into_response();
    if answer.left_out > 0 {
        response.headers_mut().insert(LEFT_OUT, answer.left_out.into());
    }
    Ok(response)
}

pub(super) async fn drain(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, Refused> {
    let drain: Drain = post.parse()?;
    let deadline = drain.deadline.as_deref().map(duration::parse_limit).transpose();
    let deadline = deadline.map_err(|why| Status::invalid_argument(format!("deadline: {why}")))?;
    let request = DrainRequest {
        id: drain.id,
        mode: if drain.force { Mode::Forceful } else { Mode::Graceful }.into(),
        reason: drain.reason,
        deadline: deadline.and_then(|deadline| deadline.try_into().ok()),
        callback: drain.callback.map(|callback| Callback {
            url: callback.url,
            method: callback.method,
            headers: callback.headers,
        }),
        job_url: drain.job_url,
    };
    Ok(json(view::drained_json(server.service.drain(post.request(request)).await?.get_ref())))
}

pub(super) async fn cancel(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, Refused> {
    let cancel: Cancel = if post.body.is_empty() { Cancel::default() } else { post.parse()? };
    let answer = server.service.cancel(post.request(CancelRequest { id: cancel.id })).await?.into_inner();
    Ok(json(view::status_json(&answer.status.unwrap_or_default())))
}

pub(super) async fn start(State(server): State<Arc<HttpServer>>, post: Post) -> Result<Json, Refused> {
    let answer = server.service.start(post.request(StartRequest {})).await?.into_inner();
    Ok(json(view::status_json(&answer.status.unwrap_or_default())))
}

/// A request for a change, if this server accepts those.
pub(super) struct Post {
    body: Bytes,
    peer: HttpPeer,
}

impl FromRequest<Arc<HttpServer>> for Post {
    type Rejection = Response;

    async fn from_request(request: Request, server: &Arc<HttpServer>) -> Result<Self, Response> {
        let Some(peer) = request.extensions().get().copied() else {
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
        let too_large = "the request body is incomplete, or larger than 64 KiB";
        let body = to_bytes(request.into_body(), MAX_BODY).await;
        let body = body.map_err(|_| error(StatusCode::PAYLOAD_TOO_LARGE, too_large))?;
        Ok(Self { body, peer })
    }
}

impl Post {
    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Status> {
        let parsed = serde_json::from_slice(&self.body);
        parsed.map_err(|error| Status::invalid_argument(format!("request body: {error}")))
    }

    /// Converts a request for the gRPC service.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.extensions_mut().insert(self.peer);
        request
    }
}

/// The answer when the gRPC service refuses a request.
pub(super) struct Refused(Status);

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = match self.0.code() {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::FailedPrecondition => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error(code, self.0.message())
    }
}
