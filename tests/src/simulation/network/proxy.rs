//! What responds in place of the wrapper: a proxy that answers each call with the same gRPC status.

use std::convert::Infallible;

use http_body_util::Empty;
use hyper::{Request, Response, body::Bytes, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tonic::Status;

use super::{Failure, wire::End};

pub(super) fn serve(end: End, failure: Failure) {
    let answer = move |_: Request<_>| async move {
        let status = Status::new(failure.code().unwrap_or(tonic::Code::Unknown), format!("{failure:?}"));
        Ok::<Response<Empty<Bytes>>, Infallible>(status.into_http())
    };
    tokio::spawn(async move {
        let server = http2::Builder::new(TokioExecutor::new()).timer(TokioTimer::new()).clone();
        // It ends with its connection.
        let _closed = server.serve_connection(TokioIo::new(end), service_fn(answer)).await;
    });
}
