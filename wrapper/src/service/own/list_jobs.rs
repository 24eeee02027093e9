//! `ListJobs`: the runner's jobs, asked for now. Dropped with the client.

use grit_proto::wrapper_v1::{Job, ListJobsResponse};
use tonic::Status;

use super::Own;
use crate::service::{publish, status};

pub(super) async fn list_jobs(own: &Own) -> Result<ListJobsResponse, Status> {
    let jobs = own.prober.jobs().await.ok_or_else(status::no_jobs)?;
    let job = |job: &crate::health::Job| Job {
        id: job.id(),
        state: job.state.clone(),
        stage: job.stage.clone(),
        executor_stage: job.executor_stage.clone(),
        age: publish::duration(job.duration),
    };
    Ok(ListJobsResponse { jobs: jobs.iter().map(job).collect() })
}
