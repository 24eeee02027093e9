//! The jobs that GitLab lists as running on the manager of a runner that has exited.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::fate::OnLostJobs;
use crate::gitlab::{Gitlab, GitlabError, Job, MAX_JOBS};

/// GitLab processes the last updates of the jobs within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// At the end of a drain's time, a question has at least this time after [`HANDLED_AFTER`], and a job to retry is listed for
/// `LOG_AFTER` before.
const SHORTEST: Duration = Duration::from_secs(10);
const SHORTEST_RETRY: Duration = Duration::from_secs(20);

/// GitLab can assign a job to a request that the runner has cancelled, until it has handled the request. Before that, an empty list is no evidence.
const HANDLED_AFTER: Duration = Duration::from_secs(5);

/// The pause between two questions: it doubles from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A runner, and the system id of this manager.
pub(super) type Question = (u64, String);

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From then on, an empty list is final.
    pub(super) handled: Instant,
    /// The last question ends then.
    pub(super) end: Instant,
}

impl Times {
    /// `deadline`: of the drain. A drain that has used up its time has a receipt, too.
    pub(super) fn new(is_handled: bool, on_lost_jobs: OnLostJobs, deadline: Instant) -> Self {
        let now = Instant::now();
        let shortest = match on_lost_jobs {
            OnLostJobs::Warn => SHORTEST,
            OnLostJobs::Retry => SHORTEST_RETRY,
        };
        let handled = if is_handled { now } else { now + HANDLED_AFTER };
        Self { handled, end: deadline.min(now + LIMIT).max(now + shortest) }
    }
}

/// The last complete answer of GitLab.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) questions: Vec<Question>,
    on_lost_jobs: OnLostJobs,
    pub(super) jobs: Vec<ListedJob>,
    /// Whether the last question was answered.
    pub(super) is_answered: bool,
    /// When GitLab had received the last request of each manager, read after it had handled those of the exited runner.
    pub(super) contacts: Option<Vec<Option<String>>>,
}

#[derive(Debug)]
pub(super) struct ListedJob {
    pub(super) job: Job,
    /// The index of the question whose answer lists the job.
    pub(super) question: usize,
    /// The first answer since when all questions were answered, and all answers have listed the job.
    pub(super) since: Option<Instant>,
}

impl Listed {
    pub(super) fn new(questions: Vec<Question>, on_lost_jobs: OnLostJobs) -> Self {
        Self { questions, on_lost_jobs, jobs: Vec::new(), is_answered: false, contacts: None }
    }

    /// Asks until no job is left, or until the end. Returns the error of the last question. If the end cuts this question short, the answer before
    /// it counts.
    pub(super) async fn until_empty(
        &mut self,
        manager: &str,
        gitlab: &Gitlab,
        times: Times,
    ) -> Option<GitlabError> {
        let mut pause = FIRST_PAUSE;
        // Of the last question that has ended, unless its answer came too early to be final.
        let mut last: Option<Result<(), GitlabError>> = None;
        loop {
            let asked = Instant::now();
            let found = tokio::select! {
                biased;
                found = self.ask(gitlab) => found,
                () = sleep_until(times.end) => {
                    // An answer that came too early is no response to a question that is not.
                    let waits_since = asked.min(times.handled);
                    return last.unwrap_or_else(|| Err(GitlabError::Timeout(waits_since.elapsed()))).err();
                }
            };
            let is_early = asked < times.handled;
            // An answer that comes too early is followed by a question at the first moment that is not.
            let next = || {
                let next = Instant::now() + pause;
                if is_early { next.min(times.handled) } else { next }
            };
            let is_over = || next() >= times.end;
            last = match found {
                Ok(jobs) => {
                    let is_final = !jobs.is_empty() || !is_early;
                    self.answered(jobs);
                    if !is_early {
                        self.read_contacts(gitlab, times.end).await;
                    }
                    if is_final && (is_over() || self.jobs.is_empty()) {
                        return None;
                    }
                    let left = self.jobs.len();
                    tracing::info!(
                        manager,
                        left,
                        "waiting until GitLab lists no running job of this manager"
                    );
                    is_final.then_some(Ok(()))
                }
                Err(error) => {
                    self.failed();
                    if is_over() || !error.is_transient() {
                        return Some(error);
                    }
                    tracing::info!(manager, "waiting for the list of running jobs from GitLab: {error}");
                    Some(Err(error))
                }
            };
            if !is_over() {
                sleep_until(next()).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn answered(&mut self, jobs: Vec<(usize, Job)>) {
        let now = Instant::now();
        let listed = |(question, job): (usize, Job)| {
            let known = self.jobs.iter().find(|known| known.job.id == job.id);
            let since = known.and_then(|known| known.since).unwrap_or(now);
            ListedJob { job, question, since: Some(since) }
        };
        self.jobs = jobs.into_iter().map(listed).collect();
        self.is_answered = true;
    }

    /// For a job to retry, once.
    async fn read_contacts(&mut self, gitlab: &Gitlab, end: Instant) {
        if self.on_lost_jobs == OnLostJobs::Retry && self.contacts.is_none() && !self.jobs.is_empty() {
            self.contacts =
                timeout_at(end, contacts(gitlab, &self.questions)).await.ok().and_then(Result::ok);
        }
    }

    /// In an outage, the log of a job does not arrive at GitLab either.
    fn failed(&mut self) {
        self.is_answered = false;
        self.jobs.iter_mut().for_each(|listed| listed.since = None);
    }

    async fn ask(&self, gitlab: &Gitlab) -> Result<Vec<(usize, Job)>, GitlabError> {
        let mut jobs = Vec::new();
        for (question, (runner, system_id)) in self.questions.iter().enumerate() {
            let of_runner = gitlab.running_jobs(*runner, system_id).await?;
            jobs.extend(of_runner.into_iter().map(|job| (question, job)));
            if jobs.len() > MAX_JOBS {
                return Err(GitlabError::TooManyJobs);
            }
        }
        Ok(jobs)
    }
}

/// When GitLab has last received a request of each manager; `None` for a manager that it does not list.
pub(super) async fn contacts(
    gitlab: &Gitlab,
    questions: &[Question],
) -> Result<Vec<Option<String>>, GitlabError> {
    let mut contacts = Vec::new();
    for (runner, system_id) in questions {
        let managers = gitlab.managers(*runner).await?;
        let manager = managers.into_iter().find(|manager| manager.system_id == *system_id);
        contacts.push(manager.and_then(|manager| manager.contacted_at));
    }
    Ok(contacts)
}
