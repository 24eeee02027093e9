//! A layer around the services: counts calls by their status codes, and marks each connection as active while it has open calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http_body_util::BodyExt;
use hyper::http::{Extensions, Request, Response};
use tonic::{Status, body::Body};
use tower::Service;

use super::connection_limits::{ConnectionId, WatchLimit};
use crate::daemon::counters::Counters;

/// Methods whose calls last for as long as the client wants: our `Watch`, that of gRPC's health service, and reflection.
const WATCHES: [&str; 2] = ["/Watch", "/ServerReflectionInfo"];

/// A call is open from its request to the end of its response, which takes days for a watch. It is counted once, when its response begins.
#[derive(Clone, Debug)]
pub(super) struct TrackCalls<S> {
    pub(super) inner: S,
    pub(super) counters: Arc<Counters>,
}

impl<S> Service<Request<Body>> for TrackCalls<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let is_watch = WATCHES.iter().any(|method| path.ends_with(method));
        // The services expect the extensions of the connection where tonic would have put them.
        let connection = request.extensions_mut().remove::<Extensions>().unwrap_or_default();
        request.extensions_mut().extend(connection);
        let id = request.extensions().get::<ConnectionId>();
        let call = id.map(|id| id.begin_call(is_watch)).transpose();
        let begun = call.map(|call| (call, self.inner.call(request)));
        let counters = Arc::clone(&self.counters);
        Box::pin(async move {
            let (call, response) = match begun {
                Ok((call, response)) => (call, response.await?),
                Err(limit) => (None, too_many_watches(&limit).into_http()),
            };
            // The head of a response has the status of a failed call only.
            let status = Status::from_header_map(response.headers());
            counters.answered(&path, status.map_or(tonic::Code::Ok, |status| status.code()));
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _open = &call;
                    frame
                }))
            }))
        })
    }
}

fn too_many_watches(WatchLimit(limit): &WatchLimit) -> Status {
    Status::resource_exhausted(format!(
        "this user has reached its limit of {limit} connections with open Watch calls; the remaining connections are reserved for short \
         calls. Cancel some of the waits; the operations that they wait for continue"
    ))
}
