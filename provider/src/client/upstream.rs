//! The calls of upstream's API, which all wrappers support.

use grit_proto::runner_wrapper::{self as wire, process_wrapper_client::ProcessWrapperClient};

use super::{
    channel::Channel,
    connection::{WrapperClient, origin},
    error::ClientError,
    snapshot::{ShutdownCallback, StatusReport},
};

impl WrapperClient {
    pub async fn check_status(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move { grpc(channel).check_status(wire::CheckStatusRequest {}).await };
        let wire::CheckStatusResponse { status, failure_reason } = self.call("CheckStatus", call).await?;
        Ok(StatusReport { status: status.into(), failure_reason })
    }

    /// Requests a graceful shutdown: the runner accepts no further jobs, and exits after its last one. Returns when the wrapper has
    /// accepted the request. Repeating it is harmless.
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

    /// Requests a forceful shutdown: running jobs are aborted. Returns when the wrapper has accepted the request.
    pub async fn init_forceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        let call = |channel| async move {
            grpc(channel).init_forceful_shutdown(wire::InitForcefulShutdownRequest {}).await
        };
        let wire::InitForcefulShutdownResponse { status, failure_reason } =
            self.call("InitForcefulShutdown", call).await?;
        Ok(StatusReport { status: status.into(), failure_reason })
    }
}

pub(super) fn grpc(channel: Channel) -> ProcessWrapperClient<Channel> {
    ProcessWrapperClient::with_origin(channel, origin())
}
