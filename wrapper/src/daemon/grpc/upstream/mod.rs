//! The service of upstream's wrapper, `gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper`: one file per call.

mod check_status;
mod init_forceful_shutdown;
mod init_graceful_shutdown;

use grit_proto::runner_wrapper::{
    CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
    InitGracefulShutdownRequest, InitGracefulShutdownResponse, process_wrapper_server::ProcessWrapper,
};
use tonic::{Request, Response, Status};

use super::authorization::Authorizer;
use crate::daemon::{access::Rights, control::Control};

/// The service of one runner.
#[derive(Clone, Debug)]
pub struct Upstream {
    control: Control,
    authorizer: Authorizer,
}

impl Upstream {
    #[must_use]
    pub fn new(control: Control, authorizer: Authorizer) -> Self {
        Self { control, authorizer }
    }

    pub(super) fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Upstream {
    async fn check_status(
        &self,
        request: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        let CheckStatusRequest {} = self.authorizer.open(Rights::Read, request)?;
        Ok(Response::new(check_status::check_status(&self.control)))
    }

    async fn init_graceful_shutdown(
        &self,
        request: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        let (request, requester) = self.authorizer.open_control(request)?;
        let response = init_graceful_shutdown::init_graceful_shutdown(&self.control, request, requester);
        response.await.map(Response::new)
    }

    async fn init_forceful_shutdown(
        &self,
        request: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        let (InitForcefulShutdownRequest {}, requester) = self.authorizer.open_control(request)?;
        let response = init_forceful_shutdown::init_forceful_shutdown(&self.control, requester);
        response.await.map(Response::new)
    }
}
