//! The service `grit.wrapper.v1.Wrapper`: one file per call.

mod cancel;
mod drain;
mod get_status;
mod list_jobs;
mod messages;
mod start;
mod watch;

use grit_proto::wrapper_v1::{
    self as v1, CancelRequest, CancelResponse, DrainRequest, DrainResponse, GetStatusRequest,
    ListJobsRequest, ListJobsResponse, StartRequest, StartResponse, WatchRequest, wrapper_server::Wrapper,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::authorization::Authorizer;
use crate::daemon::{access::Rights, control::Control};

/// The service of one runner.
#[derive(Clone, Debug)]
pub struct WrapperV1 {
    control: Control,
    authorizer: Authorizer,
}

impl WrapperV1 {
    #[must_use]
    pub fn new(control: Control, authorizer: Authorizer) -> Self {
        Self { control, authorizer }
    }
}

#[tonic::async_trait]
impl Wrapper for WrapperV1 {
    async fn get_status(&self, request: Request<GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        let GetStatusRequest {} = self.authorizer.open(Rights::Read, request)?;
        Ok(Response::new(get_status::get_status(&self.control)))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        let WatchRequest {} = self.authorizer.open(Rights::Read, request)?;
        Ok(Response::new(watch::watch(&self.control)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        let (request, requester) = self.authorizer.open_control(request)?;
        drain::drain(&self.control, request, requester).await.map(Response::new)
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let (request, requester) = self.authorizer.open_control(request)?;
        cancel::cancel(&self.control, &request, requester).await.map(Response::new)
    }

    async fn start(&self, request: Request<StartRequest>) -> Result<Response<StartResponse>, Status> {
        let (StartRequest {}, requester) = self.authorizer.open_control(request)?;
        start::start(&self.control, requester).await.map(Response::new)
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let ListJobsRequest {} = self.authorizer.open(Rights::Read, request)?;
        list_jobs::list_jobs(&self.control).await.map(Response::new)
    }
}
