//! Counting calls by what they were answered with.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use crate::daemon::counters::Counters;

/// Puts [`Counted`] around a service.
#[derive(Clone, Debug)]
pub(super) struct Counting(pub(super) Arc<Counters>);

/// A service whose answers are counted, when they begin: a stream counts once, as what it began with.
#[derive(Clone, Debug)]
pub(super) struct Counted<S> {
    inner: S,
    counters: Arc<Counters>,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counters: Arc::clone(&self.0) }
    }
}

impl<S, B, R> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let counters = Arc::clone(&self.counters);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // An error is in the head of the answer; a success is told behind the message, which is of no interest here.
            let code =
                Status::from_header_map(answer.headers()).map_or(tonic::Code::Ok, |status| status.code());
            counters.answered(&path, code);
            Ok(answer)
        })
    }
}
