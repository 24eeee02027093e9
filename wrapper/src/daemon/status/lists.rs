//! The lists in a status, and the list of jobs. Their sizes are limited, so that a status has less than 64 KiB and every client can read it.

use grit_proto::wrapper_v1::{Job, ListJobsResponse, Registration};

use super::text::{MAX_NAME, shortened};
use crate::runner::{self, RunnerConfig};

const MAX_INSTANCES: usize = 20;
const MAX_RUNNER_IDS: usize = 1000;
/// A list of jobs. gRPC clients accept 4 MiB by default.
const MAX_JOBS: usize = 3 * 1024 * 1024;
/// The size of a job in a gRPC message, without its texts.
const JOB_OVERHEAD: usize = 48;

/// The sections by GitLab instance. Two instances of one host with different paths are one.
pub(super) fn registrations(config: &RunnerConfig) -> Vec<Registration> {
    let mut found: Vec<Registration> = Vec::new();
    let mut ids = 0;
    for section in &config.sections {
        let Some(url) = section.gitlab.as_deref().filter(|url| url.len() <= MAX_NAME) else { continue };
        let at = found.iter().position(|known| known.url == url).unwrap_or(found.len());
        if at == MAX_INSTANCES {
            continue;
        }
        if at == found.len() {
            let system_id = config.system_id.clone();
            found.push(Registration { url: url.to_owned(), system_id, ..Registration::default() });
        }
        match section.id.filter(|_| ids < MAX_RUNNER_IDS) {
            // A runner can have several sections.
            Some(id) if found[at].runner_ids.contains(&id) => {}
            Some(id) => {
                ids += 1;
                found[at].runner_ids.push(id);
            }
            None => found[at].sections_without_id += 1,
        }
    }
    found
}

/// As many of the oldest jobs as a gRPC message can have.
pub(crate) fn job_list(mut jobs: Vec<runner::Job>) -> ListJobsResponse {
    jobs.sort_by_key(|job| std::cmp::Reverse(job.duration));
    let total = jobs.len();
    let mut size = 0;
    let fits = |job: &Job| {
        size += JOB_OVERHEAD + job.state.len() + job.stage.len() + job.executor_stage.len();
        size <= MAX_JOBS
    };
    let message = |job: &runner::Job| Job {
        id: job.id(),
        state: shortened(&job.state, MAX_NAME),
        stage: shortened(&job.stage, MAX_NAME),
        executor_stage: shortened(&job.executor_stage, MAX_NAME),
        age: job.duration.try_into().ok(),
    };
    let jobs: Vec<_> = jobs.iter().map(message).take_while(fits).collect();
    let left_out = u32::try_from(total - jobs.len()).unwrap_or(u32::MAX);
    ListJobsResponse { jobs, left_out }
}
