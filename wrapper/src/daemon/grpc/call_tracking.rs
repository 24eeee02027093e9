//! Telling a connection's place of the calls that are open over it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    body::{Body, Bytes, Frame, SizeHint},
    http::{Extensions, Request, Response},
};
use tonic::{
    Status,
    transport::server::{TcpConnectInfo, UdsConnectInfo},
};
use tower::{Layer, Service};

use super::connection_limits::{Call, Places, Seat, TooManyWatches};

/// What a call knows of its connection: what tonic tells of a peer, and the place.
#[derive(Clone, Debug)]
pub(super) struct Peer<I> {
    pub(super) info: I,
    pub(super) seat: Arc<Seat>,
    pub(super) places: Places,
}

/// Methods whose calls last as long as their client wants: ours, that of gRPC's health service, and reflection.
const LASTING: [&str; 2] = ["/Watch", "/ServerReflectionInfo"];

/// Puts [`Seated`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seating;

/// A service whose calls are open from their request to the end of their answer, which a watch may put off for days.
#[derive(Clone, Debug)]
pub(super) struct Seated<S>(S);

impl<S> Layer<S> for Seating {
    type Service = Seated<S>;

    fn layer(&self, inner: S) -> Seated<S> {
        Seated(inner)
    }
}

impl<S, B, R> Service<Request<B>> for Seated<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: Default,
{
    type Response = Response<Open<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let is_watch = LASTING.iter().any(|method| request.uri().path().ends_with(method));
        let extensions = request.extensions_mut();
        let call = match call::<UdsConnectInfo>(extensions, is_watch) {
            Ok(None) => call::<TcpConnectInfo>(extensions, is_watch),
            call => call,
        };
        let call = match call {
            Ok(call) => call,
            Err(TooManyWatches { limit }) => {
                let refusal = Status::resource_exhausted(format!(
                    "this user has reached its limit of {limit} connections with open Watch calls; the \
                     remaining connections are reserved for short calls. Cancel some of the waits; the \
                     operations that they wait for continue"
                ));
                return Box::pin(async move {
                    Ok(refusal.into_http::<R>().map(|body| Open { body, _call: None }))
                });
            }
        };
        let answer = self.0.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Open { body, _call: call })) })
    }
}

/// Unpacks the peer, so that the services find what tonic would have told them.
fn call<I: Clone + Send + Sync + 'static>(
    extensions: &mut Extensions,
    is_watch: bool,
) -> Result<Option<Call>, TooManyWatches> {
    let Some(Peer { info, seat, places }) = extensions.remove::<Peer<I>>() else { return Ok(None) };
    extensions.insert(info);
    if is_watch { places.watch(&seat).map(Some) } else { Ok(Some(seat.call())) }
}

/// The body of an answer that is not at its end.
#[derive(Debug)]
pub(super) struct Open<R> {
    body: R,
    _call: Option<Call>,
}

impl<R: Body<Data = Bytes> + Unpin> Body for Open<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
