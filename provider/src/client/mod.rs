//! Typed client of a wrapper: the calls of upstream's service, each with its deadline, over a tunnel that comes back when it is lost.

mod channel;
mod error;
mod v1;

pub use error::ClientError;
pub use v1::{Detail, DrainInfo, DrainOutcome, DrainRequest, ExitKind, Level, Look, RunnerExit, Start};

use crate::transport::{Connector, Target, Witness};
use channel::Channel;
use grit_proto::runner_wrapper::{self as wire, process_wrapper_client::ProcessWrapperClient};
use std::{
    collections::HashMap,
    error::Error as _,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};
use tokio::{sync::Mutex, time::Instant};
use tonic::codegen::http::Uri;

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
    live: Mutex<Option<Live>>,
    /// A [`v1::Kind`], found out over the tunnel that is open.
    kind: AtomicU8,
    watch: Mutex<Option<tonic::Streaming<grit_proto::wrapper_v1::Status>>>,
}

/// A tunnel with gRPC on it.
#[derive(Clone)]
struct Live {
    channel: Channel,
    witness: Arc<dyn Witness>,
}

impl Connector {
    /// A client of this manager's wrapper. Connects to nothing yet.
    pub fn client(&self, target: Target) -> WrapperClient {
        let (live, watch) = (Mutex::new(None), Mutex::new(None));
        let kind = AtomicU8::new(v1::Kind::NotKnown as u8);
        WrapperClient {
            shared: Arc::new(Shared { target, connector: self.clone(), live, kind, watch }),
            deadline: None,
        }
    }
}

impl WrapperClient {
    /// The same client, whose calls and connections end at this moment at the latest.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline: Some(deadline) }
    }

    /// The manager it talks to.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// What the runner process does now.
    pub async fn check_status(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move { grpc(channel).check_status(wire::CheckStatusRequest {}).await };
        let wire::CheckStatusResponse { status, failure_reason } = self.call("CheckStatus", call).await?;
        Ok(StatusReport { status: status.into(), failure_reason })
    }

    /// Asks for a graceful shutdown: no new jobs, the running ones finish, then the process ends. Returns when the wrapper has taken the
    /// order, long before the end. Asking again is harmless.
    pub async fn init_graceful_shutdown(
        &self,
        callback: Option<ShutdownCallback>,
    ) -> Result<StatusReport, ClientError> {
        let shutdown_callback = callback
            .map(|ShutdownCallback { url, method, headers }| wire::ShutdownCallback { url, method, headers });
        let request = wire::InitGracefulShutdownRequest { shutdown_callback };
        let call = |channel| async move { grpc(channel).init_graceful_shutdown(request).await };
        let wire::InitGracefulShutdownResponse { status, failure_reason } =
            self.call("InitGracefulShutdown", call).await?;
        Ok(StatusReport { status: status.into(), failure_reason })
    }

    /// Asks for a forceful shutdown: running jobs are aborted. Returns when the wrapper has taken the order.
    pub async fn init_forceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move {
            grpc(channel).init_forceful_shutdown(wire::InitForcefulShutdownRequest {}).await
        };
        let wire::InitForcefulShutdownResponse { status, failure_reason } =
            self.call("InitForcefulShutdown", call).await?;
        Ok(StatusReport { status: status.into(), failure_reason })
    }

    /// Makes one call, with its limit; a tunnel that broke is forgotten, and its witness heard.
    async fn call<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let live = self.live().await?;
        let route = || Box::new(live.witness.route().clone());
        let limit = self.shared.connector.limits().call + live.witness.patience();
        let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.map_or(limit, |left| left.min(limit));
        let answer = tokio::time::timeout(limit, call(live.channel.clone())).await;
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // Only errors that were made on our side have a source: the tunnel broke, or what came out of it was no gRPC.
            Ok(Err(status)) if status.source().is_some() => {
                self.forget(&live).await;
                match live.witness.testimony().await {
                    Some(error) => Err(error.into()),
                    None => Err(ClientError::status(method, &status, route())),
                }
            }
            Ok(Err(status)) => Err(ClientError::status(method, &status, route())),
            Err(_) => {
                self.forget(&live).await;
                if let Some(error) = live.witness.silence(limit) {
                    return Err(error.into());
                }
                let silent = live.witness.transcript().first().is_empty();
                Err(ClientError::NoAnswer { method, limit, silent, route: route() })
            }
        }
    }

    /// The tunnel that is open, or a new one. Calls that come meanwhile wait for it.
    async fn live(&self) -> Result<Live, ClientError> {
        let mut live = self.shared.live.lock().await;
        if let Some(live) = &*live {
            return Ok(live.clone());
        }
        let tunnel = self.shared.connector.open(&self.shared.target, self.deadline).await?;
        let channel = match Channel::over(tunnel.stream).await {
            Ok(channel) => channel,
            Err(error) => {
                let told = tunnel.witness.testimony().await;
                return Err(told.map_or_else(
                    || {
                        ClientError::status(
                            "connect",
                            &error.into(),
                            Box::new(tunnel.witness.route().clone()),
                        )
                    },
                    ClientError::from,
                ));
            }
        };
        Ok(live.insert(Live { channel, witness: tunnel.witness }).clone())
    }

    /// Lets the next call open a new tunnel, unless somebody did already.
    async fn forget(&self, broken: &Live) {
        let mut live = self.shared.live.lock().await;
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.witness, &broken.witness)) {
            *live = None;
            self.shared.kind.store(v1::Kind::NotKnown as u8, Ordering::Relaxed);
        }
    }
}

fn grpc(channel: Channel) -> ProcessWrapperClient<Channel> {
    ProcessWrapperClient::with_origin(channel, origin())
}

/// What HTTP wants to read; the stream leads to the wrapper already.
fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapperClient").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The answer of every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    pub status: RunnerStatus,
    /// Why the process ended or could not be started, in the wrapper's words; empty when there is nothing to tell.
    pub failure_reason: String,
}

/// What the runner process does, as far as the wrapper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunnerStatus {
    Running,
    /// A shutdown has begun and the process still lives.
    InShutdown,
    /// The process has ended.
    Stopped,
    /// The wrapper does not know (0), or says something that this version has no word for (the number). Never to be taken for stopped.
    Unknown(i32),
}

impl From<i32> for RunnerStatus {
    fn from(number: i32) -> Self {
        match wire::Status::try_from(number) {
            Ok(wire::Status::Running) => Self::Running,
            Ok(wire::Status::InShutdown) => Self::InShutdown,
            Ok(wire::Status::Stopped) => Self::Stopped,
            Ok(wire::Status::Unknown) | Err(_) => Self::Unknown(number),
        }
    }
}

impl fmt::Display for RunnerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::InShutdown => f.write_str("in_shutdown"),
            Self::Stopped => f.write_str("stopped"),
            Self::Unknown(0) => f.write_str("unknown"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

/// An HTTP request that the wrapper makes once the runner process has ended. Its headers may hold credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ShutdownCallback {
    pub url: String,
    pub method: String,
    pub headers: HashMap<String, String>,
}

impl fmt::Debug for ShutdownCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownCallback").field("method", &self.method).finish_non_exhaustive()
    }
}
