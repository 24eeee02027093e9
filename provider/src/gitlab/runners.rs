//! Whether GitLab gives jobs to a runner, and which of its managers GitLab has heard of.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde::Deserialize;

use super::{Gitlab, GitlabError, RunnerManager, read};

/// What GitLab knows about a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRunner {
    /// GitLab accepts its job requests, and gives it no jobs.
    pub is_paused: bool,
    /// The system ids of the managers that have contacted GitLab; `None` if this GitLab cannot list them.
    pub managers: Option<BTreeSet<String>>,
}

#[derive(Deserialize)]
struct Details {
    paused: bool,
}

impl RunnerManager {
    fn is_known(&self) -> bool {
        self.contacted_at.is_some() && self.status.as_deref().is_none_or(|status| status == "online")
    }
}

impl Gitlab {
    /// Needs the same token as [`Gitlab::running_jobs`].
    pub(crate) async fn runner(&self, runner: u64) -> Result<KnownRunner, GitlabError> {
        let details: Details = read(&self.call(Method::GET, &format!("/runners/{runner}")).await?)?;
        let managers = match self.managers(runner).await {
            // The runner exists, and the path does not.
            Err(GitlabError::Status(StatusCode::NOT_FOUND)) => None,
            managers => Some(managers?),
        };
        let known = |managers: Vec<RunnerManager>| {
            managers.into_iter().filter(RunnerManager::is_known).map(|manager| manager.system_id).collect()
        };
        Ok(KnownRunner { is_paused: details.paused, managers: managers.map(known) })
    }
}
