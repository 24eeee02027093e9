//! The part of GitLab's REST API that shows whether a drain has lost a job.
//!
//! The token is sent to the configured instance only, whatever a host reports, and never to a redirect's target.

mod answer;
mod any;
mod error;
mod https;
mod instance;

use std::{fmt, sync::Arc};

use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};

pub use answer::Answer;
pub use any::{Connections, SimulatedGitlab};
pub use error::GitlabError;
use grit_ssh::Secret;
pub(crate) use https::certificates;
pub(crate) use instance::Instance;

/// GitLab's maximum for a page.
const PAGE: usize = 100;

/// A runner manager of grit has at most some hundred jobs.
const MAX_PAGES: usize = 20;

/// A GitLab instance and a token for its API. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Gitlab(Arc<Shared>);

struct Shared {
    instance: Instance,
    token: HeaderValue,
    connection: any::Connection,
}

/// A job that GitLab lists.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Job {
    pub id: u64,
    #[serde(rename = "web_url", default)]
    pub url: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    project: Project,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
struct Project {
    id: u64,
}

/// Has no token.
impl fmt::Debug for Gitlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gitlab").field("instance", &self.0.instance).finish_non_exhaustive()
    }
}

impl Gitlab {
    /// Opens no connection, and reads no file. `None`: the token is no header value.
    pub(crate) fn new(
        instance: Instance,
        token: &Secret,
        ca_certificate: Option<String>,
        connections: &Connections,
    ) -> Option<Self> {
        let mut token = HeaderValue::from_str(token.expose()).ok()?;
        token.set_sensitive(true);
        let connection = connections.connection(ca_certificate);
        Some(Self(Arc::new(Shared { instance, token, connection })))
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.0.instance
    }

    /// The jobs that GitLab believes to run on this manager of this runner.
    ///
    /// Needs a token of an owner of the runner or of an administrator, with the scope `read_api`. GitLab leaves out jobs of projects in which the user
    /// is less than a Reporter.
    pub(crate) async fn running_jobs(&self, runner: u64, system_id: &str) -> Result<Vec<Job>, GitlabError> {
        let mut jobs = Vec::new();
        for page in 1..=MAX_PAGES {
            let path = format!(
                "/runners/{runner}/jobs?status=running&system_id={system_id}&order_by=id&per_page={PAGE}&page={page}"
            );
            let answer = self.call(Method::GET, &path).await?;
            // Otherwise these would be the jobs of all managers of the runner.
            if answer.has_total {
                return Err(GitlabError::NoSystemIds);
            }
            let found: Vec<Job> = read(&answer)?;
            let is_last = match answer.next_page.as_deref() {
                Some(next) => next.is_empty(),
                None => found.len() < PAGE,
            };
            // A proxy or an older GitLab may ignore the parameter.
            jobs.extend(found.into_iter().filter(|job| job.status == "running"));
            if is_last {
                return Ok(jobs);
            }
        }
        Err(GitlabError::TooManyJobs)
    }

    /// Whether the log of the job has any text. A job that no runner has received has none.
    pub(crate) async fn has_log(&self, job: &Job) -> Result<bool, GitlabError> {
        let answer = self.call(Method::GET, &format!("{}/trace", path(job))).await?;
        Ok(!answer.body.is_empty())
    }

    pub(crate) async fn cancel(&self, job: &Job) -> Result<(), GitlabError> {
        self.call(Method::POST, &format!("{}/cancel", path(job))).await.map(drop)
    }

    /// Queues the job again. Returns the new job.
    pub(crate) async fn retry(&self, job: &Job) -> Result<Job, GitlabError> {
        read(&self.call(Method::POST, &format!("{}/retry", path(job))).await?)
    }

    async fn call(&self, method: Method, path: &str) -> Result<Answer, GitlabError> {
        let Shared { instance, token, connection } = &*self.0;
        let answer = connection.call(instance, method, format!("{instance}/api/v4{path}"), token).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => Ok(answer),
            status => Err(GitlabError::Status(status)),
        }
    }
}

fn path(job: &Job) -> String {
    format!("/projects/{}/jobs/{}", job.project.id, job.id)
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, GitlabError> {
    serde_json::from_slice(&answer.body).map_err(|_| GitlabError::NotGitlab)
}

#[cfg(test)]
mod tests;
