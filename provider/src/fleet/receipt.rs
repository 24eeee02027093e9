//! The receipt of a drain: GitLab's own word that no job of the runner manager is left.
//!
//! GitLab can have assigned a job to a request that the runner cancelled, and a runner can fail to report the end of a job. GitLab lists such a job
//! as running, after its runner has exited.

mod fate;
mod listed;
mod retried;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::fate::OnLostJobs;
pub(crate) use self::fate::{Fate, NotCancelled};
use self::{
    listed::{Listed, Question, Times},
    retried::Retries,
};
use crate::{
    client::{Registration, Snapshot},
    gitlab::{Gitlab, GitlabError, Job},
};

/// More registrations of a host are not asked for: each one is a request with the token for each question.
pub(crate) const MAX_QUESTIONS: usize = 50;

/// What GitLab says about the jobs of a runner manager whose runner has exited. Without both, it lists no running job.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    /// The jobs that GitLab still lists as running, and what became of each.
    pub lost: Vec<(Job, Fate)>,
    /// Why there is no answer for the runner or for some of its sections.
    pub missing: Vec<NoReceipt>,
}

impl Receipt {
    pub(crate) fn is_empty_list(&self) -> bool {
        self.lost.is_empty() && self.missing.is_empty()
    }

    /// Puts the jobs of an earlier receipt of this manager first. If both have a job, the receipt counts that has changed it, or the later one.
    pub(super) fn add_earlier(&mut self, earlier: Receipt) {
        let is_in = |job: &Job, jobs: &[(Job, Fate)]| jobs.iter().any(|(known, _)| known.id == job.id);
        let mut before = earlier.lost;
        before.retain(|(job, fate)| fate.is_change() || !is_in(job, &self.lost));
        self.lost.retain(|(job, _)| !is_in(job, &before));
        self.lost.splice(0..0, before);
    }
}

impl From<NoReceipt> for Receipt {
    fn from(why: NoReceipt) -> Self {
        Self { lost: Vec::new(), missing: vec![why] }
    }
}

/// Why there is no receipt.
#[derive(Debug)]
pub(crate) enum NoReceipt {
    /// The `gitlab` object of the provider block has no token.
    NoToken,
    /// This attribute of it became known in the apply, and is invalid.
    Invalid(&'static str),
    /// Upstream's wrapper does not report where its runner is registered.
    Upstream,
    /// The wrapper could not read the configuration of the runner, or is older.
    NotRegistered,
    /// The runner is registered at another instance, to which the token is not sent.
    OtherInstance {
        url: String,
        instance: String,
    },
    /// The configuration has no id for this number of sections.
    NoId {
        sections: u32,
    },
    NoSystemId,
    /// The host reports this number of registrations, and the provider asks for fewer.
    TooManyIds {
        ids: usize,
    },
    /// This GitLab cannot list the managers of a runner.
    NoManagers,
    /// Jobs of other sections have all slots, so that the section of this runner sends no job request.
    NoFreeSlot {
        runner: u64,
    },
    /// `gitlab`: the instance, and the proxy on the way to it.
    Failed {
        gitlab: String,
        error: GitlabError,
    },
    Interrupted,
}

/// Asks GitLab until it lists no running job of this manager, for at most a minute, or until `deadline` (see [`Times`]). The jobs of the last
/// complete answer stay listed, whatever ends this.
pub(crate) async fn ask(
    manager: &str,
    gitlab: &Gitlab,
    snapshot: &Snapshot,
    on_lost_jobs: OnLostJobs,
    deadline: Instant,
    stop: &CancellationToken,
) -> Receipt {
    let (questions, mut missing) = questions(gitlab, snapshot);
    let mut listed = Listed::new(questions, on_lost_jobs);
    if !listed.questions.is_empty() {
        let times = Times::new(has_no_open_request(snapshot), on_lost_jobs, deadline);
        let failed = tokio::select! {
            biased;
            () = stop.cancelled() => Some(NoReceipt::Interrupted),
            error = listed.until_empty(manager, gitlab, times) => {
                error.map(|error| NoReceipt::Failed { gitlab: gitlab.named(), error })
            }
        };
        missing.extend(failed);
    }
    let lost = match on_lost_jobs {
        OnLostJobs::Warn => listed.jobs.into_iter().map(|listed| (listed.job, Fate::Kept)).collect(),
        OnLostJobs::Retry => Retries::new(gitlab, stop).run(listed).await,
    };
    Receipt { lost, missing }
}

/// Whether the runner had no job request open at SIGQUIT.
fn has_no_open_request(snapshot: &Snapshot) -> bool {
    snapshot.drain().is_some_and(|drain| drain.open_requests == Some(0))
}

/// The runners to ask for, with the system id of this manager, and what cannot be asked.
pub(super) fn questions(gitlab: &Gitlab, snapshot: &Snapshot) -> (Vec<Question>, Vec<NoReceipt>) {
    let (mut questions, mut missing) = (Vec::new(), Vec::new());
    let Some(detail) = snapshot.detail.as_deref() else { return (questions, vec![NoReceipt::Upstream]) };
    let instance = gitlab.instance();
    for Registration { url, system_id, runner_ids, sections_without_id } in &detail.registrations {
        if !instance.is_at(url) {
            missing.push(NoReceipt::OtherInstance { url: url.clone(), instance: instance.to_string() });
            continue;
        }
        if *sections_without_id > 0 {
            missing.push(NoReceipt::NoId { sections: *sections_without_id });
        }
        match system_id {
            Some(system_id) => questions.extend(runner_ids.iter().map(|id| (*id, system_id.clone()))),
            // Without it, GitLab would list the jobs of other managers.
            None => missing.push(NoReceipt::NoSystemId),
        }
    }
    questions.sort_unstable();
    questions.dedup();
    if questions.len() > MAX_QUESTIONS {
        missing.push(NoReceipt::TooManyIds { ids: questions.len() });
        questions.clear();
    }
    if questions.is_empty() && missing.is_empty() {
        missing.push(NoReceipt::NotRegistered);
    }
    (questions, missing)
}

#[cfg(test)]
mod tests;
