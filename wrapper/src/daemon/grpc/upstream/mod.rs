//! Upstream's service, `gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper`: one file per method.

mod check_status;
mod init_forceful_shutdown;
mod init_graceful_shutdown;

use grit_proto::runner_wrapper::{
    CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
    InitGracefulShutdownRequest, InitGracefulShutdownResponse, process_wrapper_server::ProcessWrapper,
};
use tonic::{Request, Response, Status};

use super::{Authorizer, detached::carry_out};
use crate::{daemon::access::Rights, supervise::Handle};

/// Upstream's service.
#[derive(Clone, Debug)]
pub struct Upstream {
    supervisor: Handle,
    guard: Authorizer,
}

impl Upstream {
    #[must_use]
    pub fn new(supervisor: Handle, guard: Authorizer) -> Self {
        Self { supervisor, guard }
    }

    pub(super) fn guard(&self) -> &Authorizer {
        &self.guard
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Upstream {
    async fn check_status(
        &self,
        request: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        let CheckStatusRequest {} = self.guard.open(Rights::Read, request)?;
        Ok(Response::new(check_status::check_status(&self.supervisor)))
    }

    async fn init_graceful_shutdown(
        &self,
        request: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        let (request, asker) = self.guard.open_control(request)?;
        carry_out(init_graceful_shutdown::init_graceful_shutdown(self.clone(), request, asker))
            .await
            .map(Response::new)
    }

    async fn init_forceful_shutdown(
        &self,
        request: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        let (InitForcefulShutdownRequest {}, asker) = self.guard.open_control(request)?;
        carry_out(init_forceful_shutdown::init_forceful_shutdown(self.clone(), asker))
            .await
            .map(Response::new)
    }
}
