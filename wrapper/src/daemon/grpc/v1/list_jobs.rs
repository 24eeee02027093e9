//! `ListJobs`: reads the runner's job list. Cancelled if the client disconnects.

use grit_proto::wrapper_v1::ListJobsResponse;
use tonic::Status;

use super::WrapperV1;
use crate::daemon::grpc::{errors, messages};

pub(super) async fn list_jobs(service: &WrapperV1) -> Result<ListJobsResponse, Status> {
    Ok(messages::jobs(service.prober.jobs().await.ok_or_else(errors::no_jobs)?))
}
