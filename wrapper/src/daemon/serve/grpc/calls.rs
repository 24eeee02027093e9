//! What every call passes: a layer that counts it by its status code, and the check of the client's rights.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::http::{Request, Response};
use tonic::{Status, body::Body};
use tower::Service;
use tracing::warn;

use crate::{
    daemon::{
        counters::Counters,
        serve::{
            access::{Access, Requester, Rights},
            limits::CallLogLimit,
        },
    },
    supervise::log_key as key,
};

/// A call is counted once, when its response begins.
#[derive(Clone, Debug)]
pub(super) struct CountCalls<S> {
    pub(super) inner: S,
    pub(super) counters: Arc<Counters>,
}

impl<S> Service<Request<Body>> for CountCalls<S>
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let response = self.inner.call(request);
        let counters = Arc::clone(&self.counters);
        Box::pin(async move {
            let response = response.await?;
            // The head of a response has the status of a failed call only.
            let status = Status::from_header_map(response.headers());
            counters.answered(&path, status.map_or(tonic::Code::Ok, |status| status.code()));
            Ok(response)
        })
    }
}

/// Accepts requests whose sender has the rights, and counts the others.
#[derive(Clone, Debug)]
pub struct Authorizer {
    access: Access,
    counters: Arc<Counters>,
    log_limit: CallLogLimit,
}

impl Authorizer {
    pub fn new(access: Access, counters: Arc<Counters>) -> Self {
        Self { access, counters, log_limit: CallLogLimit::default() }
    }

    /// The message of a request, and its sender.
    /// Fails with `PERMISSION_DENIED`, which is counted, and logged up to a limit.
    pub(super) fn open<T>(
        &self,
        needed: Rights,
        request: tonic::Request<T>,
    ) -> Result<(T, Requester), Status> {
        let requester = request.extensions().get::<Requester>().copied();
        let requester = requester.ok_or_else(|| Status::internal("the client of the request is unknown"))?;
        let rights = self.access.of(requester);
        if rights < needed {
            self.counters.denied.add();
            if self.log_limit.allow_log() {
                let (uid, gid, pid) = requester.ids();
                warn!(
                    ?rights,
                    { key::PEER } = %requester,
                    { key::UID } = uid,
                    { key::GID } = gid,
                    { key::PID } = pid,
                    "request denied"
                );
            }
            return Err(Status::permission_denied(rights.denial()));
        }
        Ok((request.into_inner(), requester))
    }
}
