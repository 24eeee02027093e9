//! `on_lost_jobs = "retry"`: lost jobs are cancelled and queued again.
//!
//! A job can be one of a process that runs: two runner processes of one host can have the same system id, a runner can be started again after its
//! drain, and a host can report the ids of another manager. So a job is only cancelled if GitLab has listed it for [`LOG_AFTER`], it has no log, and
//! GitLab has received no request of the manager since the exit of the runner.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    fate::{Fate, NotCancelled},
    listed::{Listed, ListedJob, contacts},
};
use crate::gitlab::{Gitlab, GitlabError, Job};

/// A job that a live runner has received has a log within this time after GitLab lists it: the response to the job request takes up to 5 s, and the
/// runner sends the first lines of the log after 3 s.
pub(super) const LOG_AFTER: Duration = Duration::from_secs(10);

/// For all jobs. The cancel and the retry of one job are completed together.
const LIMIT: Duration = Duration::from_secs(60);

/// The time to complete them, also after an interruption by Terraform.
const PAIR_LIMIT: Duration = Duration::from_secs(30);
const PAIR_LIMIT_INTERRUPTED: Duration = Duration::from_secs(10);

/// How long GitLab is asked again to queue a job that it refuses, and the pause before that.
const QUEUE_LIMIT: Duration = Duration::from_secs(10);
const QUEUE_PAUSE: Duration = Duration::from_secs(1);

/// The status of a job that its runner is to stop. GitLab waits for the runner, which is gone.
const CANCELING: &str = "canceling";

pub(super) struct Retries<'a> {
    gitlab: &'a Gitlab,
    stop: &'a CancellationToken,
    end: Instant,
}

impl<'a> Retries<'a> {
    pub(super) fn new(gitlab: &'a Gitlab, stop: &'a CancellationToken) -> Self {
        Self { gitlab, stop, end: Instant::now() + LIMIT }
    }

    /// What became of each job.
    pub(super) async fn run(&self, listed: Listed) -> Vec<(Job, Fate)> {
        if listed.jobs.is_empty() {
            return Vec::new();
        }
        let refusal = self.without_contact(&listed).await.err();
        let mut fates = Vec::new();
        for ListedJob { job, since, .. } in listed.jobs {
            let is_new = since.is_none_or(|since| since.elapsed() < LOG_AFTER);
            let refusal = refusal.clone().or(is_new.then_some(NotCancelled::New));
            let fate = match refusal {
                Some(why) => Fate::NotCancelled(why),
                None => self.retried(&job).await.unwrap_or_else(Fate::NotCancelled),
            };
            fates.push((job, fate));
        }
        fates
    }

    /// GitLab answers, and has received no request of the manager of the exited runner since the first look.
    async fn without_contact(&self, listed: &Listed) -> Result<(), NotCancelled> {
        if self.stop.is_cancelled() {
            return Err(NotCancelled::Interrupted);
        }
        let Some(before) = listed.contacts.as_ref().filter(|_| listed.is_answered) else {
            return Err(NotCancelled::NoAnswer);
        };
        let now = self.ask(contacts(self.gitlab, &listed.questions)).await?;
        // GitLab may not have received a request of each runner of the manager.
        let is_known = |job: &ListedJob| now.get(job.question).is_some_and(Option::is_some);
        let is_silent = *before == now && listed.jobs.iter().all(is_known);
        if is_silent { Ok(()) } else { Err(NotCancelled::InContact) }
    }

    async fn retried(&self, job: &Job) -> Result<Fate, NotCancelled> {
        if self.ask(self.gitlab.has_log(job)).await? {
            return Err(NotCancelled::HasLog);
        }
        let limit = self.pair_limit();
        tokio::pin!(limit);
        let cancelled = tokio::select! {
            cancelled = self.gitlab.cancel(job) => cancelled,
            () = &mut limit => Err(GitlabError::Timeout(PAIR_LIMIT)),
        };
        let is_canceling = match cancelled {
            Ok(status) if status == CANCELING => true,
            Ok(status) if status == "canceled" => false,
            // GitLab does not refuse to cancel a job that has ended, and does not change the job. A retry would run it twice.
            Ok(status) => return Err(NotCancelled::Ended(status)),
            Err(error) if error.may_have_arrived() => return Ok(Fate::MayBeCancelled(error)),
            Err(error) => return Err(NotCancelled::Failed(error)),
        };
        let queued = tokio::select! {
            queued = self.queue(job, is_canceling) => queued,
            () = &mut limit => Err(GitlabError::Timeout(PAIR_LIMIT)),
        };
        Ok(queued.map_or_else(Fate::NotQueued, |next| Fate::Retried(next.url)))
    }

    /// A GitLab that does not accept a job whose status is `canceling` may accept it later.
    async fn queue(&self, job: &Job, is_canceling: bool) -> Result<Job, GitlabError> {
        let end = Instant::now() + QUEUE_LIMIT;
        loop {
            let queued = self.gitlab.retry(job).await;
            let may_change = match &queued {
                Err(GitlabError::Status(StatusCode::TOO_MANY_REQUESTS)) => true,
                Err(GitlabError::Status(StatusCode::FORBIDDEN)) => is_canceling,
                _ => false,
            };
            if !may_change || Instant::now() + QUEUE_PAUSE >= end {
                return queued;
            }
            sleep(QUEUE_PAUSE).await;
        }
    }

    /// Asks before anything is changed.
    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, GitlabError>>,
    ) -> Result<T, NotCancelled> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(NotCancelled::Interrupted),
            answer = timeout_at(self.end, question) => {
                answer.map_err(|_| NotCancelled::NoTime)?.map_err(NotCancelled::Failed)
            }
        }
    }

    async fn pair_limit(&self) {
        let interrupted = async {
            self.stop.cancelled().await;
            sleep(PAIR_LIMIT_INTERRUPTED).await;
        };
        tokio::select! {
            () = sleep(PAIR_LIMIT) => {}
            () = interrupted => {}
        }
    }
}
