//! The REST API: the methods of `grit.wrapper.v1` in JSON.

use std::{collections::HashMap, net::SocketAddr};

use grit_proto::wrapper_v1::{
    Callback, CancelRequest, DrainRequest, ListJobsRequest, Mode, StartRequest, wrapper_server::Wrapper,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::HeaderName,
};
use serde::Deserialize;
use tonic::{Code, Status};

use super::{error, json};
use crate::{
    cli::view,
    daemon::{audit::HttpPeer, duration, grpc::WrapperV1},
};

/// The same limit as for gRPC requests.
const MAX_BODY: usize = 64 * 1024;

/// Number of jobs that are not in the response to `GET /jobs`; omitted if it is 0.
const LEFT_OUT: HeaderName = HeaderName::from_static("grit-jobs-left-out");

/// The body of `POST /drain`; only `id` is required.
#[derive(Debug, Deserialize)]
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

impl std::fmt::Debug for DrainCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrainCallback").field("method", &self.method).finish_non_exhaustive()
    }
}

/// The body of `POST /cancel`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    id: String,
}

pub(super) fn status(service: &WrapperV1) -> Response<Full<Bytes>> {
    json(StatusCode::OK, view::status_json(&service.status()))
}

pub(super) async fn jobs(service: &WrapperV1) -> Response<Full<Bytes>> {
    match service.list_jobs(tonic::Request::new(ListJobsRequest {})).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            let mut response = json(StatusCode::OK, view::jobs_json(&answer.jobs));
            if answer.left_out > 0 {
                response.headers_mut().insert(LEFT_OUT, answer.left_out.into());
            }
            response
        }
        Err(status) => refused(&status),
    }
}

pub(super) async fn post(
    service: &WrapperV1,
    path: &str,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response<Full<Bytes>> {
    let Ok(body) = Limited::new(request.into_body(), MAX_BODY).collect().await else {
        return error(StatusCode::PAYLOAD_TOO_LARGE, "the request body is incomplete, or larger than 64 KiB");
    };
    let peer = HttpPeer(peer);
    let result = match path {
        "/drain" => drain(service, &body.to_bytes(), peer).await,
        "/cancel" => cancel(service, &body.to_bytes(), peer).await,
        _ => start(service, peer).await,
    };
    match result {
        Ok(answer) => json(StatusCode::OK, answer),
        Err(status) => refused(&status),
    }
}

/// Converts a request for the gRPC service.
fn ask<T>(message: T, peer: HttpPeer) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(peer);
    request
}

async fn drain(service: &WrapperV1, body: &[u8], peer: HttpPeer) -> Result<String, Status> {
    let drain: Drain = parse(body)?;
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
    Ok(view::drained_json(service.drain(ask(request, peer)).await?.get_ref()))
}

async fn cancel(service: &WrapperV1, body: &[u8], peer: HttpPeer) -> Result<String, Status> {
    let cancel: Cancel = if body.is_empty() { Cancel::default() } else { parse(body)? };
    let answer = service.cancel(ask(CancelRequest { id: cancel.id }, peer)).await?.into_inner();
    Ok(view::status_json(&answer.status.unwrap_or_default()))
}

async fn start(service: &WrapperV1, peer: HttpPeer) -> Result<String, Status> {
    let answer = service.start(ask(StartRequest {}, peer)).await?.into_inner();
    Ok(view::status_json(&answer.status.unwrap_or_default()))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Status> {
    serde_json::from_slice(body).map_err(|error| Status::invalid_argument(format!("request body: {error}")))
}

fn refused(status: &Status) -> Response<Full<Bytes>> {
    let code = match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::FailedPrecondition => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error(code, status.message())
}
