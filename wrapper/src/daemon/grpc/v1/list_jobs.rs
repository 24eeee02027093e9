//! `ListJobs`: the runner's jobs, asked for now. Dropped with the client.

use grit_proto::wrapper_v1::ListJobsResponse;
use tonic::Status;

use super::Own;
use crate::daemon::grpc::{errors, messages};

pub(super) async fn list_jobs(own: &Own) -> Result<ListJobsResponse, Status> {
    Ok(messages::jobs(own.prober.jobs().await.ok_or_else(errors::no_jobs)?))
}
