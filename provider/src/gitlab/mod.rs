//! The part of GitLab's REST API that shows whether a runner gets jobs, and whether a drain has lost a job.
//!
//! The token is sent to the configured instance only, whatever a host reports, and never to a redirect's target.

mod answer;
mod any;
mod error;
mod https;
mod instance;
mod proxy;
mod runners;

use std::{fmt, sync::Arc};

use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};

pub use answer::Answer;
use answer::Body;
pub use any::{Connections, SimulatedGitlab};
pub use error::GitlabError;
use grit_ssh::Secret;
pub(crate) use https::certificates;
pub(crate) use instance::Instance;
pub(crate) use proxy::Proxy;
pub(crate) use runners::KnownRunner;

/// GitLab's maximum for a page.
const PAGE: usize = 100;

/// A runner manager has at most some hundred jobs.
pub(crate) const MAX_JOBS: usize = 2000;
const MAX_PAGES: usize = MAX_JOBS / PAGE;

/// A GitLab instance and a token for its API. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Gitlab(Arc<Shared>);

struct Shared {
    instance: Instance,
    token: HeaderValue,
    proxy_name: Option<String>,
    connection: any::Connection,
}

/// A job that GitLab lists.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Job {
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

/// A runner manager that GitLab lists.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct RunnerManager {
    pub(crate) system_id: String,
    /// The time of its last request, in GitLab's notation.
    #[serde(default)]
    pub(crate) contacted_at: Option<String>,
    /// `online` for two hours after the last contact.
    #[serde(default)]
    status: Option<String>,
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
        proxy: Option<Proxy>,
        connections: &Connections,
    ) -> Option<Self> {
        let mut token = HeaderValue::from_str(token.expose()).ok()?;
        token.set_sensitive(true);
        let proxy_name = proxy.as_ref().map(ToString::to_string);
        let connection = connections.connection(ca_certificate, proxy);
        Some(Self(Arc::new(Shared { instance, token, proxy_name, connection })))
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.0.instance
    }

    /// The instance, and the proxy on the way to it.
    pub(crate) fn named(&self) -> String {
        let Shared { instance, proxy_name, .. } = &*self.0;
        let proxy = proxy_name.as_ref().map(|proxy| format!(" (through the proxy {proxy})"));
        format!("{instance}{}", proxy.unwrap_or_default())
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
            if found.len() > PAGE {
                return Err(GitlabError::NotGitlab);
            }
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

    /// The managers of a runner: the hosts that have used its token.
    pub(crate) async fn managers(&self, runner: u64) -> Result<Vec<RunnerManager>, GitlabError> {
        read(&self.call(Method::GET, &format!("/runners/{runner}/managers")).await?)
    }

    /// Whether the log of the job has any text. A job that no runner has received has none. Only the first bytes are read: GitLab has no request for
    /// the length of the log of a running job, and ignores `Range`.
    pub(crate) async fn has_log(&self, job: &Job) -> Result<bool, GitlabError> {
        let answer = self.ask(Method::GET, &format!("{}/trace", path(job)), Body::Start).await?;
        Ok(!answer.body.is_empty())
    }

    /// Cancels a job that runs. Returns its status: GitLab accepts the request for any job, and does not change one that has ended.
    pub(crate) async fn cancel(&self, job: &Job) -> Result<String, GitlabError> {
        let job: Job = read(&self.call(Method::POST, &format!("{}/cancel", path(job))).await?)?;
        Ok(job.status)
    }

    /// Queues the job again. Returns the new job.
    pub(crate) async fn retry(&self, job: &Job) -> Result<Job, GitlabError> {
        read(&self.call(Method::POST, &format!("{}/retry", path(job))).await?)
    }

    async fn call(&self, method: Method, path: &str) -> Result<Answer, GitlabError> {
        self.ask(method, path, Body::Whole).await
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Result<Answer, GitlabError> {
        let Shared { instance, token, connection, .. } = &*self.0;
        let url = format!("{instance}/api/v4{path}");
        let answer = connection.call(instance, method, url, token, body).await?;
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
