//! The calls of `grit.wrapper.v1`, or of upstream's API if the wrapper does not support it.

use std::{future::pending, sync::Arc};

use grit_proto::wrapper_v1::{self as v1, wrapper_client::WrapperClient as Grpc};
use tokio::time::Instant;

use super::{
    channel::Channel,
    connection::{Api, WrapperClient, origin},
    error::ClientError,
    snapshot::{DrainRequest, Snapshot, Start},
    wrapper::Wrapper,
};
use crate::log_key;

impl Wrapper for WrapperClient {
    fn until(&self, deadline: Instant) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline: Some(deadline) }
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        if self.api() != Some(Api::Upstream) {
            let call = |channel| async move { grpc(channel).get_status(v1::GetStatusRequest {}).await };
            if let Some(status) = self.v1("GetStatus", call).await? {
                return Ok(status.into());
            }
            tracing::debug!(
                { log_key::MANAGER } = self.shared.target.manager,
                "the wrapper supports only upstream's API"
            );
        }
        Ok(Snapshot { report: self.check_status().await?, detail: None })
    }

    async fn changed(&self) {
        if self.api() != Some(Api::V1) {
            return pending().await;
        }
        let mut watch = self.shared.watch.lock().await;
        if watch.is_none() {
            let call = |channel| async move { grpc(channel).watch(v1::WatchRequest {}).await };
            *watch = self.v1("Watch", call).await.ok().flatten();
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
                let response = grpc(channel).drain(wire).await?;
                // The result of the request is unknown: the call of upstream's API must not follow.
                match response.get_ref().status {
                    Some(_) => Ok(response),
                    None => Err(tonic::Status::internal("the response has no status")),
                }
            };
            if let Some(v1::DrainResponse { status: Some(status), .. }) = self.v1("Drain", call).await? {
                return Ok(status.into());
            }
        }
        let report = if request.forceful {
            self.init_forceful_shutdown().await?
        } else {
            self.init_graceful_shutdown(request.callback.clone()).await?
        };
        Ok(Snapshot { report, detail: None })
    }

    async fn cancel(&self, id: &str) -> Result<Option<Snapshot>, ClientError> {
        if self.api() == Some(Api::Upstream) {
            return Ok(None);
        }
        let wire = v1::CancelRequest { id: id.to_owned() };
        let call = |channel| async move {
            let response = grpc(channel).cancel(wire).await?;
            match response.get_ref().status {
                Some(_) => Ok(response),
                None => Err(tonic::Status::internal("the response has no status")),
            }
        };
        Ok(self.v1("Cancel", call).await?.and_then(|response| response.status).map(Snapshot::from))
    }

    async fn start(&self) -> Result<Start, ClientError> {
        if self.api() == Some(Api::Upstream) {
            return Ok(Start::NotSupported);
        }
        let call = |channel| async move { grpc(channel).start(v1::StartRequest {}).await };
        Ok(self.v1("Start", call).await?.map_or(Start::NotSupported, |_| Start::Requested))
    }
}

impl WrapperClient {
    /// A call of `grit.wrapper.v1`; `None` if the wrapper does not support it, which is remembered.
    async fn v1<T, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<Option<T>, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        match self.call(method, call).await {
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
}

fn grpc(channel: Channel) -> Grpc<Channel> {
    Grpc::with_origin(channel, origin())
}
