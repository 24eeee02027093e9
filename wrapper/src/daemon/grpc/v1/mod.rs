//! The service `grit.wrapper.v1.Wrapper`: one file per method.

mod cancel;
mod drain;
mod get_status;
mod list_jobs;
mod start;
mod watch;

use grit_proto::wrapper_v1::{
    self as v1, CancelRequest, CancelResponse, DrainRequest, DrainResponse, GetStatusRequest,
    ListJobsRequest, ListJobsResponse, StartRequest, StartResponse, WatchRequest, wrapper_server::Wrapper,
};
use tokio::sync::watch::Receiver;
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::{Authorizer, detached::carry_out, messages};
use crate::{
    daemon::{
        access::Rights,
        health::{Health, Prober},
    },
    supervise::{Handle, Supervision},
};

/// The `grit.wrapper.v1` service.
#[derive(Clone, Debug)]
pub struct WrapperV1 {
    supervisor: Handle,
    health: Receiver<Health>,
    prober: Prober,
    guard: Authorizer,
}

impl WrapperV1 {
    #[must_use]
    pub fn new(supervisor: Handle, health: Receiver<Health>, prober: Prober, guard: Authorizer) -> Self {
        Self { supervisor, health, prober, guard }
    }

    pub(crate) fn now(&self) -> Supervision {
        self.supervisor.now()
    }

    pub(crate) fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    pub(crate) fn status(&self) -> v1::Status {
        messages::own(&self.supervisor.now(), &self.health.borrow())
    }
}

#[tonic::async_trait]
impl Wrapper for WrapperV1 {
    async fn get_status(&self, request: Request<GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        let GetStatusRequest {} = self.guard.open(Rights::Read, request)?;
        Ok(Response::new(get_status::get_status(self)))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        let WatchRequest {} = self.guard.open(Rights::Read, request)?;
        Ok(Response::new(watch::watch(self)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        let (request, asker) = self.guard.open_control(request)?;
        carry_out(drain::drain(self.clone(), request, asker)).await.map(Response::new)
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let (request, asker) = self.guard.open_control(request)?;
        carry_out(cancel::cancel(self.clone(), request, asker)).await.map(Response::new)
    }

    async fn start(&self, request: Request<StartRequest>) -> Result<Response<StartResponse>, Status> {
        let (StartRequest {}, asker) = self.guard.open_control(request)?;
        carry_out(start::start(self.clone(), asker)).await.map(Response::new)
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let ListJobsRequest {} = self.guard.open(Rights::Read, request)?;
        list_jobs::list_jobs(self).await.map(Response::new)
    }
}
