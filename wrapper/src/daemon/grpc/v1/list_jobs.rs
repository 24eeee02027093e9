//! `ListJobs`: the current jobs of the runner.

use grit_proto::wrapper_v1::{Job, ListJobsResponse};
use tonic::Status;

use crate::daemon::control::Control;

pub(super) async fn list_jobs(control: &Control) -> Result<ListJobsResponse, Status> {
    let list = control.jobs().await?;
    Ok(ListJobsResponse { jobs: list.jobs.into_iter().map(Job::from).collect(), left_out: list.left_out })
}
