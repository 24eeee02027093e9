//! go-plugin's services: end the process, and two streams that it opens but providers do not use.

use futures::StreamExt;
use grit_proto::goplugin::{
    ConnInfo, Empty, StdioData, grpc_broker_server::GrpcBroker, grpc_controller_server::GrpcController,
    grpc_stdio_server::GrpcStdio,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, codegen::BoxStream};

#[derive(Debug, Clone)]
pub(super) struct GoPlugin {
    /// Cancelled by Shutdown. Ends the streams, so that the server can end.
    pub(super) shutdown: CancellationToken,
}

impl GoPlugin {
    /// A stream without items.
    fn pending<T: Send + 'static>(&self) -> BoxStream<T> {
        let ended = self.shutdown.clone().cancelled_owned();
        Box::pin(futures::stream::pending().take_until(ended))
    }
}

#[tonic::async_trait]
impl GrpcController for GoPlugin {
    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        tracing::debug!("Terraform called Shutdown");
        self.shutdown.cancel();
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl GrpcStdio for GoPlugin {
    async fn stream_stdio(&self, _: Request<()>) -> Result<Response<BoxStream<StdioData>>, Status> {
        Ok(Response::new(self.pending()))
    }
}

#[tonic::async_trait]
impl GrpcBroker for GoPlugin {
    async fn start_stream(
        &self,
        _: Request<Streaming<ConnInfo>>,
    ) -> Result<Response<BoxStream<ConnInfo>>, Status> {
        Ok(Response::new(self.pending()))
    }
}
