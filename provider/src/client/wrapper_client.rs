//! The client of one wrapper: its connection, and the calls of `grit.wrapper.v1` or of upstream's API.
//!
//! The connection is opened by the first call, and again after it was lost. If the wrapper does not support `grit.wrapper.v1`, the calls of
//! upstream's API are used, which all wrappers support.

use std::{error::Error as _, fmt, future::pending, sync::Arc};

use grit_proto::{
    runner_wrapper::{self as upstream, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::{self as v1, wrapper_client::WrapperClient as V1Client},
};
use grit_ssh::{Target, TunnelMonitor};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::{Status, transport::Channel};

use super::{
    channel,
    connect::Connect,
    error::ClientError,
    limits::MAX_MESSAGE,
    request::{DrainRequest, Start},
    snapshot::{Snapshot, StatusReport},
    wrapper::Wrapper,
};

/// The client of one wrapper. Clones share the connection.
///
/// A call that finds the connection broken reports why; the next call opens a new one. Calls may run at the same time.
///
/// Dropping the future of a call abandons the call, not the connection. A request that the wrapper has read is carried out.
#[derive(Debug, Clone)]
pub struct WrapperClient {
    shared: Arc<Shared>,
    /// All calls end at this time.
    deadline: Option<Instant>,
}

struct Shared {
    target: Target,
    connect: Arc<dyn Connect>,
    open: tokio::sync::Mutex<Option<OpenConnection>>,
    /// The API of the wrapper, once it was found out over the open connection.
    api: Mutex<Option<Api>>,
    /// The open stream of changes. The calls that wait for changes take it in turn.
    watch: tokio::sync::Mutex<Option<Watch>>,
}

/// One status for each change.
type Watch = tonic::Streaming<grit_proto::wrapper_v1::Status>;

/// A tunnel with a gRPC channel.
#[derive(Clone)]
struct OpenConnection {
    channel: Channel,
    monitor: Arc<dyn TunnelMonitor>,
}

/// The API that a wrapper supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Upstream,
    V1,
}

impl WrapperClient {
    /// A client of this runner manager's wrapper. Opens no connection.
    pub fn new(connect: Arc<dyn Connect>, target: Target) -> Self {
        let (open, watch) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let shared = Shared { target, connect, open, api: Mutex::default(), watch };
        Self { shared: Arc::new(shared), deadline: None }
    }

    /// Shows the result of a call to a simulation.
    pub(super) fn called(&self, result: Result<Option<&Snapshot>, &ClientError>) {
        self.shared.connect.called(&self.shared.target, result);
    }

    /// `None`: not known yet. It is found out again for each connection, because the wrapper may have been replaced.
    fn api(&self) -> Option<Api> {
        *self.shared.api.lock()
    }

    fn set_api(&self, api: Option<Api>) {
        *self.shared.api.lock() = api;
    }

    /// The response of a call of `grit.wrapper.v1`; `None` if the wrapper does not support this API, which is remembered.
    fn supported<T>(&self, answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
        match answer {
            Ok(answer) => {
                self.set_api(Some(Api::V1));
                Ok(Some(answer))
            }
            Err(ClientError::Status { code: tonic::Code::Unimplemented, .. }) => {
                self.set_api(Some(Api::Upstream));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes one call within its time limit.
    async fn call<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let OpenConnection { channel, monitor } = self.open().await?;
        let limit = self.shared.connect.call_limit();
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
                Err(ClientError::NoAnswer { method, limit, route: Box::new(monitor.route().clone()) })
            }
        }
    }

    /// The open connection, or a new one. Other calls wait for it.
    async fn open(&self) -> Result<OpenConnection, ClientError> {
        let mut open = self.shared.open.lock().await;
        if let Some(open) = &*open {
            return Ok(open.clone());
        }
        let tunnel = self.shared.connect.open(&self.shared.target, self.deadline).await?;
        match channel::over(tunnel.stream).await {
            Ok(channel) => {
                tunnel.monitor.first_byte().await?;
                Ok(open.insert(OpenConnection { channel, monitor: tunnel.monitor }).clone())
            }
            Err(error) => Err(broken(&*tunnel.monitor, "connect", &Status::from_error(error.into())).await),
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

impl Wrapper for WrapperClient {
    fn until(&self, deadline: Instant) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline: Some(deadline) }
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        if self.api() != Some(Api::Upstream) {
            let call = |channel| async move { v1_client(channel).get_status(v1::GetStatusRequest {}).await };
            if let Some(status) = self.supported(self.call("GetStatus", call).await)? {
                return Ok(status.into());
            }
            tracing::debug!(manager = self.shared.target.manager, "the wrapper supports only upstream's API");
        }
        Ok(Snapshot { report: self.check_status().await?, detail: None })
    }

    async fn changed(&self) {
        if self.api() != Some(Api::V1) {
            return pending().await;
        }
        let mut watch = self.shared.watch.lock().await;
        if watch.is_none() {
            let call = |channel| async move { v1_client(channel).watch(v1::WatchRequest {}).await };
            *watch = self.supported(self.call("Watch", call).await).ok().flatten();
        }
        let is_open = match &mut *watch {
            Some(stream) => matches!(stream.message().await, Ok(Some(_))),
            None => false,
        };
        if !is_open {
            // The next read of the status reports the error.
            *watch = None;
            drop(watch);
            pending::<()>().await;
        }
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        if self.api() != Some(Api::Upstream) {
            let wire = v1::DrainRequest::from(request);
            let call = |channel| async move {
                let response = v1_client(channel).drain(wire).await?;
                // The result of the request is unknown: the call of upstream's API must not follow.
                match response.get_ref().status {
                    Some(_) => Ok(response),
                    None => Err(Status::internal("the response has no status")),
                }
            };
            if let Some(v1::DrainResponse { status: Some(status), .. }) =
                self.supported(self.call("Drain", call).await)?
            {
                return Ok(status.into());
            }
        }
        let report = if request.forceful {
            self.init_forceful_shutdown().await?
        } else {
            self.init_graceful_shutdown().await?
        };
        Ok(Snapshot { report, detail: None })
    }

    async fn running_jobs(&self) -> Result<Vec<u64>, ClientError> {
        if self.api() == Some(Api::Upstream) {
            return Ok(Vec::new());
        }
        let call = |channel| async move { v1_client(channel).list_jobs(v1::ListJobsRequest {}).await };
        let jobs = self.supported(self.call("ListJobs", call).await)?.map(|list| list.jobs);
        Ok(jobs.into_iter().flatten().filter_map(|job| job.id).collect())
    }

    async fn start(&self) -> Result<Start, ClientError> {
        if self.api() == Some(Api::Upstream) {
            return Ok(Start::NotSupported);
        }
        let call = |channel| async move { v1_client(channel).start(v1::StartRequest {}).await };
        Ok(self.supported(self.call("Start", call).await)?.map_or(Start::NotSupported, |_| Start::Requested))
    }
}

/// Upstream's API.
impl WrapperClient {
    pub async fn check_status(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move {
            upstream_client(channel).check_status(upstream::CheckStatusRequest {}).await
        };
        let upstream::CheckStatusResponse { status, failure_reason } = self.call("CheckStatus", call).await?;
        Ok(StatusReport::new(status, failure_reason))
    }

    /// Requests a graceful shutdown: the runner accepts no further jobs, and exits after its last one. Returns when the wrapper has
    /// accepted the request. Repeating it is harmless.
    pub async fn init_graceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        let request = upstream::InitGracefulShutdownRequest { shutdown_callback: None };
        let call = |channel| async move { upstream_client(channel).init_graceful_shutdown(request).await };
        let upstream::InitGracefulShutdownResponse { status, failure_reason } =
            self.call("InitGracefulShutdown", call).await?;
        Ok(StatusReport::new(status, failure_reason))
    }

    /// Requests a forceful shutdown: running jobs are aborted. Returns when the wrapper has accepted the request.
    pub async fn init_forceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move {
            upstream_client(channel).init_forceful_shutdown(upstream::InitForcefulShutdownRequest {}).await
        };
        let upstream::InitForcefulShutdownResponse { status, failure_reason } =
            self.call("InitForcefulShutdown", call).await?;
        Ok(StatusReport::new(status, failure_reason))
    }
}

fn v1_client(channel: Channel) -> V1Client<Channel> {
    V1Client::new(channel).max_decoding_message_size(MAX_MESSAGE)
}

fn upstream_client(channel: Channel) -> ProcessWrapperClient<Channel> {
    ProcessWrapperClient::new(channel).max_decoding_message_size(MAX_MESSAGE)
}

/// Why the tunnel closed, or else the error of the call.
async fn broken(monitor: &dyn TunnelMonitor, method: &'static str, status: &Status) -> ClientError {
    match monitor.close_reason().await {
        Some(error) => error.into(),
        None => ClientError::status(method, status, monitor.route()),
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapperClient").field("target", &self.target).finish_non_exhaustive()
    }
}
