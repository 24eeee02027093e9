//! The receipt of a drain: GitLab's own word that no job of the runner manager is left.
//!
//! GitLab can have assigned a job to a request that the runner cancelled, and a runner can fail to report the end of a job. GitLab lists such a job
//! as running, after its runner has exited.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Registration, Snapshot},
    gitlab::{Gitlab, GitlabError, Job},
};

/// GitLab processes the last updates of the jobs within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// At the end of a drain's time, one question has at least this time, and a lost job is listed for [`LOG_AFTER`].
const SHORTEST: Duration = Duration::from_secs(20);

/// GitLab can assign a job to a request that the runner has cancelled, until it has handled the request. Before that, an empty list is no evidence.
const HANDLED_AFTER: Duration = Duration::from_secs(5);

/// A job that a live runner has received has a log within this time after GitLab lists it: the response to the job request takes up to 5 s, and the
/// runner sends the first lines of the log after 3 s.
const LOG_AFTER: Duration = Duration::from_secs(10);

/// More jobs are only named.
const MAX_RETRIED: usize = 100;

/// The pause between two questions: it doubles from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What happens to a job that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLostJobs {
    Warn,
    /// It is cancelled, and queued again.
    Retry,
}

/// What GitLab says about the jobs of a runner manager whose runner has exited. Without both, it lists no running job.
#[derive(Debug, Default)]
pub struct Receipt {
    /// The jobs that GitLab still lists as running, and what became of each.
    pub lost: Vec<(Job, Fate)>,
    /// Why there is no answer for the runner or for some of its sections.
    pub missing: Vec<NoReceipt>,
}

impl Receipt {
    pub(crate) fn is_empty_list(&self) -> bool {
        self.lost.is_empty() && self.missing.is_empty()
    }

    /// Puts the jobs of an earlier receipt of this manager first. What became of a job is in the receipt that named it first.
    pub(super) fn add_earlier(&mut self, earlier: Vec<(Job, Fate)>) {
        self.lost.retain(|(job, _)| !earlier.iter().any(|(known, _)| known.id == job.id));
        self.lost.splice(0..0, earlier);
    }
}

impl From<NoReceipt> for Receipt {
    fn from(why: NoReceipt) -> Self {
        Self { lost: Vec::new(), missing: vec![why] }
    }
}

/// What became of a lost job.
#[derive(Debug)]
pub enum Fate {
    /// It stays as it is.
    Kept,
    /// It was cancelled and queued again as the job with this URL.
    Retried(String),
    /// It has a log, so that a runner runs it, or has run it.
    HasLog,
    /// GitLab has listed it for less than [`LOG_AFTER`]: a runner may have received it.
    New,
    /// GitLab refused to cancel it, or to queue it again.
    NotRetried { cancelled: bool, error: GitlabError },
}

/// Why there is no receipt.
#[derive(Debug)]
pub enum NoReceipt {
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
    Failed {
        instance: String,
        error: GitlabError,
    },
    Interrupted,
}

/// Asks GitLab until it lists no running job of this manager, for at most a minute, or until `deadline`.
pub(crate) async fn ask(
    manager: &str,
    gitlab: &Gitlab,
    snapshot: &Snapshot,
    on_lost_jobs: OnLostJobs,
    deadline: Instant,
    stop: &CancellationToken,
) -> Receipt {
    let (questions, mut missing) = questions(gitlab, snapshot);
    let now = Instant::now();
    let times = Times {
        handled: if has_no_open_request(snapshot) { now } else { now + HANDLED_AFTER },
        end: deadline.min(now + LIMIT).max(now + SHORTEST),
    };
    let answer = async {
        if questions.is_empty() {
            (Listed::default(), None)
        } else {
            until_empty(manager, gitlab, &questions, times).await
        }
    };
    let jobs = tokio::select! {
        biased;
        () = stop.cancelled() => {
            missing.push(NoReceipt::Interrupted);
            Listed::default()
        }
        (jobs, error) = answer => {
            let failed = |error| NoReceipt::Failed { instance: gitlab.instance().to_string(), error };
            missing.extend(error.map(failed));
            jobs
        }
    };
    // A retry is completed also if Terraform stops.
    Receipt { lost: fates(gitlab, jobs, on_lost_jobs).await, missing }
}

/// Whether the runner had no job request open at SIGQUIT.
fn has_no_open_request(snapshot: &Snapshot) -> bool {
    snapshot.drain().is_some_and(|drain| drain.open_requests == Some(0))
}

/// The runners to ask for, with the system id of this manager, and what cannot be asked.
fn questions(gitlab: &Gitlab, snapshot: &Snapshot) -> (Vec<(u64, String)>, Vec<NoReceipt>) {
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
    if questions.is_empty() && missing.is_empty() {
        missing.push(NoReceipt::NotRegistered);
    }
    (questions, missing)
}

#[derive(Clone, Copy)]
struct Times {
    /// From then on, an empty list is final.
    handled: Instant,
    end: Instant,
}

/// The jobs of the last answer, each with the time of the first answer since when all have listed it.
type Listed = Vec<(Job, Instant)>;

/// The jobs that are left at the end, or the error of the last question. If the end cuts this question short, the answer before it counts.
async fn until_empty(
    manager: &str,
    gitlab: &Gitlab,
    questions: &[(u64, String)],
    times: Times,
) -> (Listed, Option<GitlabError>) {
    let (mut pause, mut listed) = (FIRST_PAUSE, Listed::default());
    loop {
        let asked = Instant::now();
        let found = tokio::select! {
            biased;
            found = all(gitlab, questions) => found,
            () = sleep_until(times.end) => {
                let error = listed.is_empty().then_some(GitlabError::Timeout(LIMIT));
                return (listed, error);
            }
        };
        let is_over = Instant::now() + pause >= times.end;
        match found {
            Ok(jobs) if is_over || jobs.is_empty() && asked >= times.handled => {
                return (relisted(&listed, jobs), None);
            }
            Ok(jobs) => {
                tracing::info!(
                    manager,
                    left = jobs.len(),
                    "waiting until GitLab lists no running job of this manager"
                );
                listed = relisted(&listed, jobs);
            }
            Err(error) if is_over || !error.is_transient() => return (Listed::default(), Some(error)),
            Err(error) => {
                listed.clear();
                tracing::info!(manager, "waiting for the list of running jobs from GitLab: {error}");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn relisted(before: &Listed, jobs: Vec<Job>) -> Listed {
    let now = Instant::now();
    let listed = |job: Job| {
        let known = before.iter().find(|(known, _)| known.id == job.id);
        let since = known.map_or(now, |(_, since)| *since);
        (job, since)
    };
    jobs.into_iter().map(listed).collect()
}

async fn all(gitlab: &Gitlab, questions: &[(u64, String)]) -> Result<Vec<Job>, GitlabError> {
    let mut jobs = Vec::new();
    for (runner, system_id) in questions {
        jobs.extend(gitlab.running_jobs(*runner, system_id).await?);
    }
    Ok(jobs)
}

async fn fates(gitlab: &Gitlab, jobs: Listed, on_lost_jobs: OnLostJobs) -> Vec<(Job, Fate)> {
    let mut fates = Vec::new();
    for (job, since) in jobs {
        let fate = match on_lost_jobs {
            OnLostJobs::Retry if since.elapsed() < LOG_AFTER => Fate::New,
            OnLostJobs::Retry if fates.len() < MAX_RETRIED => retried(gitlab, &job).await,
            OnLostJobs::Retry | OnLostJobs::Warn => Fate::Kept,
        };
        fates.push((job, fate));
    }
    fates
}

/// A job can be one of a process that runs: two runner processes of one host can have the same system id, and a runner can be started again after its
/// drain. Such a job has a log, or GitLab has listed it for less than [`LOG_AFTER`].
async fn retried(gitlab: &Gitlab, job: &Job) -> Fate {
    let failed = |cancelled| move |error| Fate::NotRetried { cancelled, error };
    let outcome = async {
        if gitlab.has_log(job).await.map_err(failed(false))? {
            return Ok(Fate::HasLog);
        }
        gitlab.cancel(job).await.map_err(failed(false))?;
        gitlab.retry(job).await.map(|next| Fate::Retried(next.url)).map_err(failed(true))
    };
    outcome.await.unwrap_or_else(|fate| fate)
}

#[cfg(test)]
mod tests;
