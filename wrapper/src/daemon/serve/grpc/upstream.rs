//! The service of upstream's wrapper, `gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper`.

use grit_proto::{
    runner_wrapper::{
        CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
        InitGracefulShutdownRequest, InitGracefulShutdownResponse, ShutdownCallback, Status as RunnerStatus,
        process_wrapper_server::ProcessWrapper,
    },
    wrapper_v1::{Callback, DrainRequest, Mode},
};
use tonic::{Request, Response, Status};

use super::calls::Api;
use crate::{
    daemon::{serve::requester::Requester, status},
    supervise::{State, StopId},
};

impl Api {
    /// The status and failure reason in the terms of upstream's wrapper.
    fn current(&self) -> (i32, String) {
        let supervision = self.control.supervision();
        let status = match &supervision.state {
            // Never `stopped`, which is final: a runner may follow.
            State::Idle | State::Starting | State::Backoff { .. } => RunnerStatus::Unknown,
            // The runner is stopped as soon as it has started, and accepts no job.
            State::Stopping { .. } => RunnerStatus::InShutdown,
            State::Running { .. } => RunnerStatus::Running,
            State::Exited { .. } => RunnerStatus::Stopped,
        };
        (status.into(), status::failure(&supervision))
    }

    async fn drain(
        &self,
        mode: Mode,
        callback: Option<ShutdownCallback>,
        requester: Requester,
    ) -> Result<(i32, String), Status> {
        let callback =
            callback.map(|ShutdownCallback { url, method, headers }| Callback { url, method, headers });
        let id = StopId::Upstream.to_string();
        let request = DrainRequest { id, mode: mode.into(), callback, ..DrainRequest::default() };
        self.control.drain(request, requester).await?;
        Ok(self.current())
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Api {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        let (status, failure_reason) = self.current();
        Ok(Response::new(CheckStatusResponse { status, failure_reason }))
    }

    /// Starts a graceful drain, and returns when it is in progress. A repeated call joins it, and adds its callback.
    async fn init_graceful_shutdown(
        &self,
        request: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        let (request, requester) = self.change(request)?;
        // Upstream's client always sends the message. An empty URL means "no callback".
        let callback = request.shutdown_callback;
        let (status, failure_reason) = self.drain(Mode::Graceful, callback, requester).await?;
        Ok(Response::new(InitGracefulShutdownResponse { status, failure_reason }))
    }

    /// Starts a forceful drain, and returns when it is in progress. A repeated call changes nothing: a second SIGTERM would skip the runner's
    /// clean-up.
    async fn init_forceful_shutdown(
        &self,
        request: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        let (InitForcefulShutdownRequest {}, requester) = self.change(request)?;
        let (status, failure_reason) = self.drain(Mode::Forceful, None, requester).await?;
        Ok(Response::new(InitForcefulShutdownResponse { status, failure_reason }))
    }
}
