//! The connection to one wrapper: it is opened by the first call, and again after it was lost.

use std::{
    error::Error as _,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;
use tonic::{Status, codegen::http::Uri};

use super::{channel::Channel, error::ClientError};
use crate::transport::{Connector, Target, TunnelMonitor};

/// The client of one wrapper. Clones share the connection.
///
/// A call that finds the connection broken reports why; the next call opens a new one. Calls may run at the same time.
///
/// Dropping the future of a call abandons the call, not the connection. A request that the wrapper has read is carried out.
#[derive(Debug, Clone)]
pub struct WrapperClient {
    pub(super) shared: Arc<Shared>,
    /// All calls end at this time.
    pub(super) deadline: Option<Instant>,
}

pub(super) struct Shared {
    pub(super) target: Target,
    connector: Connector,
    open: tokio::sync::Mutex<Option<OpenConnection>>,
    /// The API of the wrapper, once it was found out over the open connection.
    api: Mutex<Option<Api>>,
    /// The open stream of changes. The calls that wait for changes take it in turn.
    pub(super) watch: tokio::sync::Mutex<Option<Watch>>,
}

/// One status for each change.
pub(super) type Watch = tonic::Streaming<grit_proto::wrapper_v1::Status>;

/// A tunnel with a gRPC channel.
#[derive(Clone)]
struct OpenConnection {
    channel: Channel,
    monitor: Arc<dyn TunnelMonitor>,
}

/// The API that a wrapper supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Upstream,
    V1,
}

impl WrapperClient {
    /// A client of this runner manager's wrapper. Opens no connection.
    pub fn new(connector: Connector, target: Target) -> Self {
        let (open, watch) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let shared = Shared { target, connector, open, api: Mutex::default(), watch };
        Self { shared: Arc::new(shared), deadline: None }
    }

    /// Identifies the wrapper among those of this process.
    pub(crate) fn identity(&self) -> String {
        self.shared.target.identity()
    }

    /// `None`: not known yet. It is found out again for each connection, because the wrapper may have been replaced.
    pub(super) fn api(&self) -> Option<Api> {
        *self.shared.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_api(&self, api: Option<Api>) {
        *self.shared.api.lock().unwrap_or_else(PoisonError::into_inner) = api;
    }

    /// Makes one call within its time limit.
    pub(super) async fn call<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let OpenConnection { channel, monitor } = self.open().await?;
        let limit = self.shared.connector.limits().call + monitor.extra_time();
        let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.map_or(limit, |left| left.min(limit));
        match tokio::time::timeout(limit, call(channel)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // Only an error of this side has a source: the tunnel broke, or the received data was not gRPC.
            Ok(Err(status)) if status.source().is_some() => {
                self.forget(&monitor).await;
                Err(broken(&*monitor, method, &status).await)
            }
            Ok(Err(status)) => Err(ClientError::status(method, &status, monitor.route())),
            Err(_) => {
                self.forget(&monitor).await;
                let silent = monitor.transcript().first().is_empty();
                Err(monitor.no_answer(limit).map_or_else(
                    || ClientError::NoAnswer {
                        method,
                        limit,
                        silent,
                        route: Box::new(monitor.route().clone()),
                    },
                    ClientError::from,
                ))
            }
        }
    }

    /// The open connection, or a new one. Other calls wait for it.
    async fn open(&self) -> Result<OpenConnection, ClientError> {
        let mut open = self.shared.open.lock().await;
        if let Some(open) = &*open {
            return Ok(open.clone());
        }
        let tunnel = self.shared.connector.open(&self.shared.target, self.deadline).await?;
        match Channel::over(tunnel.stream).await {
            Ok(channel) => Ok(open.insert(OpenConnection { channel, monitor: tunnel.monitor }).clone()),
            Err(error) => Err(broken(&*tunnel.monitor, "connect", &error.into()).await),
        }
    }

    /// Closes a broken connection, unless another call has replaced it.
    async fn forget(&self, broken: &Arc<dyn TunnelMonitor>) {
        let mut open = self.shared.open.lock().await;
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.monitor, broken)) {
            *open = None;
            self.set_api(None);
        }
    }
}

/// Why the tunnel closed, or else the error of the call.
async fn broken(monitor: &dyn TunnelMonitor, method: &'static str, status: &Status) -> ClientError {
    match monitor.close_reason().await {
        Some(error) => error.into(),
        None => ClientError::status(method, status, monitor.route()),
    }
}

/// HTTP requires an origin, although the stream leads to one server only.
pub(super) fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapperClient").field("target", &self.target).finish_non_exhaustive()
    }
}
