//! The part of GitLab's REST API that shows whether a drain has lost a job.
//!
//! The token is sent to the configured instance only, whatever a host reports, and never to a redirect's target.

mod error;
mod https;

use std::{fmt, sync::Arc};

use http::{HeaderValue, Method, StatusCode, Uri, uri::Scheme};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::OnceCell;

pub(crate) use error::GitlabError;
use grit_ssh::Secret;
pub(crate) use https::certificates;
use https::{Answer, Https};

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
    /// In PEM format, besides the authorities of the machine.
    ca_certificate: Option<String>,
    https: OnceCell<Https>,
}

/// The URL of a GitLab instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    origin: String,
    /// The path of an installation below a path, without a slash at its end.
    path: String,
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

impl Instance {
    /// The instance with this URL: `https` or `http`, without user, query and fragment.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let uri = url.trim().parse::<Uri>().ok()?;
        let is_plain =
            uri.query().is_none() && !url.contains('#') && !uri.authority()?.as_str().contains('@');
        let path = uri.path().trim_end_matches('/').to_owned();
        is_plain.then_some(Self { origin: origin(&uri)?, path })
    }

    /// Whether this instance has the URL that a host reports: scheme, host and port.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        url.parse::<Uri>().ok().and_then(|uri| origin(&uri)).is_some_and(|origin| origin == self.origin)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// Scheme, host and port in one notation. The default port of the scheme is left out.
fn origin(uri: &Uri) -> Option<String> {
    let (scheme, host) = (uri.scheme()?, uri.host()?.to_ascii_lowercase());
    let default = match scheme {
        scheme if *scheme == Scheme::HTTPS => 443,
        scheme if *scheme == Scheme::HTTP => 80,
        _ => return None,
    };
    let port = uri.port_u16().filter(|port| *port != default);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{host}{port}"))
}

/// Has no token.
impl fmt::Debug for Gitlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gitlab").field("instance", &self.0.instance).finish_non_exhaustive()
    }
}

impl Gitlab {
    /// Opens no connection, and reads no file. `None`: the token is no header value.
    pub(crate) fn new(instance: Instance, token: &Secret, ca_certificate: Option<String>) -> Option<Self> {
        let mut token = HeaderValue::from_str(token.expose()).ok()?;
        token.set_sensitive(true);
        Some(Self(Arc::new(Shared { instance, token, ca_certificate, https: OnceCell::new() })))
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
        let Shared { instance, token, ca_certificate, https } = &*self.0;
        let https =
            https.get_or_try_init(|| Https::new(instance.uses_tls(), ca_certificate.as_deref())).await?;
        let answer = https.call(method, &format!("{instance}/api/v4{path}"), token).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => Ok(answer),
            status => Err(GitlabError::Status(status)),
        }
    }
}

impl Instance {
    fn uses_tls(&self) -> bool {
        self.origin.starts_with("https://")
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
