//! The connection to one wrapper: a tunnel that comes back when it is lost, and calls with their limits over it.

use std::{
    error::Error as _,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::{sync::Mutex, time::Instant};
use tonic::codegen::http::Uri;

use super::{channel::Channel, error::ClientError};
use crate::transport::{Connector, Target, TunnelMonitor};

/// Talks to the wrapper of one runner manager. Cheap to clone; clones share the connection.
///
/// Nothing is connected before the first call. A call that finds the tunnel broken reports why, and the next call opens a new one, on
/// the same SSH session where that still lives. Calls may run side by side.
///
/// Dropping a call's future abandons the call and leaves the connection to the others; a shutdown that the wrapper has read goes on.
#[derive(Debug, Clone)]
pub struct WrapperClient {
    shared: Arc<Shared>,
    /// When the operation ends that the calls belong to.
    deadline: Option<Instant>,
}

struct Shared {
    target: Target,
    connector: Connector,
    live: Mutex<Option<OpenConnection>>,
    /// An [`Api`], found out over the tunnel that is open.
    api: AtomicU8,
    watch: Mutex<Option<Watch>>,
}

/// Statuses, one for each change.
pub(super) type Watch = tonic::Streaming<grit_proto::wrapper_v1::Status>;

/// A tunnel with gRPC on it.
#[derive(Clone)]
struct OpenConnection {
    channel: Channel,
    monitor: Arc<dyn TunnelMonitor>,
}

/// Which API the wrapper at the end of the tunnel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Api {
    NotKnown = 0,
    Upstream = 1,
    V1 = 2,
}

impl WrapperClient {
    /// A client of this manager's wrapper. Connects to nothing yet.
    pub fn new(connector: Connector, target: Target) -> Self {
        let (live, watch) = (Mutex::new(None), Mutex::new(None));
        let api = AtomicU8::new(Api::NotKnown as u8);
        Self { shared: Arc::new(Shared { target, connector, live, api, watch }), deadline: None }
    }

    pub(super) fn with_deadline(&self, deadline: Instant) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline: Some(deadline) }
    }

    /// The key of the runner manager.
    pub(super) fn manager(&self) -> &str {
        &self.shared.target.manager
    }

    /// What was found out over this tunnel; the wrapper behind the next one may be another.
    pub(super) fn api(&self) -> Api {
        match self.shared.api.load(Ordering::Relaxed) {
            1 => Api::Upstream,
            2 => Api::V1,
            _ => Api::NotKnown,
        }
    }

    pub(super) fn found(&self, api: Api) {
        self.shared.api.store(api as u8, Ordering::Relaxed);
    }

    /// The stream of changes that is open; calls that wait for changes take turns.
    pub(super) fn watch(&self) -> &Mutex<Option<Watch>> {
        &self.shared.watch
    }

    /// Makes one call, with its limit; a tunnel that broke is forgotten, and its monitor asked why.
    pub(super) async fn call<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let live = self.live().await?;
        let route = || Box::new(live.monitor.route().clone());
        let limit = self.shared.connector.limits().call + live.monitor.extra_time();
        let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.map_or(limit, |left| left.min(limit));
        let answer = tokio::time::timeout(limit, call(live.channel.clone())).await;
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // Only errors that were made on our side have a source: the tunnel broke, or what came out of it was no gRPC.
            Ok(Err(status)) if status.source().is_some() => {
                self.forget(&live).await;
                match live.monitor.close_reason().await {
                    Some(error) => Err(error.into()),
                    None => Err(ClientError::status(method, &status, route())),
                }
            }
            Ok(Err(status)) => Err(ClientError::status(method, &status, route())),
            Err(_) => {
                self.forget(&live).await;
                if let Some(error) = live.monitor.no_answer(limit) {
                    return Err(error.into());
                }
                let silent = live.monitor.transcript().first().is_empty();
                Err(ClientError::NoAnswer { method, limit, silent, route: route() })
            }
        }
    }

    /// The tunnel that is open, or a new one. Calls that come meanwhile wait for it.
    async fn live(&self) -> Result<OpenConnection, ClientError> {
        let mut live = self.shared.live.lock().await;
        if let Some(live) = &*live {
            return Ok(live.clone());
        }
        let tunnel = self.shared.connector.open(&self.shared.target, self.deadline).await?;
        let channel = match Channel::over(tunnel.stream).await {
            Ok(channel) => channel,
            Err(error) => {
                let told = tunnel.monitor.close_reason().await;
                return Err(told.map_or_else(
                    || {
                        ClientError::status(
                            "connect",
                            &error.into(),
                            Box::new(tunnel.monitor.route().clone()),
                        )
                    },
                    ClientError::from,
                ));
            }
        };
        Ok(live.insert(OpenConnection { channel, monitor: tunnel.monitor }).clone())
    }

    /// Lets the next call open a new tunnel, unless another caller has opened one.
    async fn forget(&self, broken: &OpenConnection) {
        let mut live = self.shared.live.lock().await;
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.monitor, &broken.monitor)) {
            *live = None;
            self.found(Api::NotKnown);
        }
    }
}

/// What HTTP wants to read; the stream leads to the wrapper already.
pub(super) fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapperClient").field("target", &self.target).finish_non_exhaustive()
    }
}
