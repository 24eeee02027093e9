//! The requests to a wrapper, as types of the provider.

use grit_proto::wrapper_v1 as v1;

/// The limits of grit-wrapper for a request, in characters.
pub(crate) const MAX_DRAIN_ID: usize = 200;
pub(crate) const MAX_REASON: usize = 1000;

/// A request to shut a runner down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainRequest {
    /// Requests with the same id are the same drain. Not sent to upstream's wrapper, like the reason and the job.
    pub id: String,
    pub reason: String,
    pub forceful: bool,
    /// `CI_JOB_URL` of the CI job that runs the provider: the wrapper refuses to drain a runner from its own job, which would wait for
    /// itself.
    pub job_url: String,
}

/// The result of a request to start a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Requested,
    /// Upstream's wrapper cannot start a runner.
    NotSupported,
}

impl From<&DrainRequest> for v1::DrainRequest {
    fn from(request: &DrainRequest) -> Self {
        let mode = if request.forceful { v1::Mode::Forceful } else { v1::Mode::Graceful };
        Self {
            id: request.id.clone(),
            mode: mode.into(),
            reason: request.reason.clone(),
            deadline: None,
            callback: None,
            job_url: request.job_url.clone(),
            by_service_manager: false,
        }
    }
}
