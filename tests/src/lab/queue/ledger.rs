//! The ledger of the job queue: the state of each job. Pure: no clock, no network.
//!
//! A job is queued, assigned to a runner, running since the first report of this runner, and then finished or lost. The last two are
//! final: later reports have no effect, so each job counts exactly once. A job that is assigned to a process that exits is lost, also if
//! the process has never received the response with the job. Only with GitLab's two-phase job commit is it merely offered until the
//! runner confirms it: an offer that is not confirmed is withdrawn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of a job, from 1.
pub type JobId = u64;

/// One process of a runner on one host. A restarted runner is a new process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunnerProcess {
    /// As in GitLab: identifies the host, and survives restarts.
    pub system_id: String,
    pub pid: u32,
}

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    Queued,
    /// Two-phase job commit: assigned if the runner confirms it.
    Offered {
        to: RunnerProcess,
    },
    /// It is in the response to a job request, and the runner has reported nothing about it.
    Assigned {
        to: RunnerProcess,
    },
    Running {
        on: RunnerProcess,
    },
    Finished {
        on: RunnerProcess,
    },
    Lost {
        on: RunnerProcess,
        loss: Loss,
    },
}

/// How a job was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The runner has reported its failure.
    Reported,
    /// The runner is gone; it has reported that the job runs. GitLab shows the job as running.
    Unfinished,
    /// The runner is gone; it has reported nothing about the job. GitLab shows the job as running.
    NeverStarted,
}

/// A job whose end GitLab never receives, because the process that it was assigned to is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostJob {
    pub id: JobId,
    pub on: RunnerProcess,
    /// Whether the runner had reported that the job runs.
    pub was_running: bool,
    /// The job that GitLab's API created from it.
    pub retried_as: Option<JobId>,
}

/// Number of jobs in each state. The sum is the number of submitted jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub queued: usize,
    /// Offered or assigned: the runner has reported nothing about them.
    pub assigned: usize,
    pub running: usize,
    pub finished: usize,
    pub lost: usize,
}

impl Tally {
    /// Jobs that have not ended.
    pub fn open(&self) -> usize {
        self.queued + self.assigned + self.running
    }
}

/// Statistics of one system id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerStats {
    /// Successful job requests, with or without a job.
    pub polls: usize,
    /// Job requests rejected with 403.
    pub refused: usize,
    pub running: usize,
    pub finished: usize,
    pub lost: usize,
}

/// A report that contradicts the ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    #[error("job {job} is {state:?}")]
    Refused { job: JobId, state: JobState },
}

/// The state of all jobs and runners.
#[derive(Debug, Default)]
pub struct Ledger {
    jobs: BTreeMap<JobId, JobState>,
    /// The system ids of the only hosts that may run a job, as with GitLab's tags.
    only_on: BTreeMap<JobId, String>,
    /// Canceled by the API. The status of a job is `canceling` for as long as GitLab waits for a runner that can end a job gracefully.
    canceled: BTreeMap<JobId, &'static str>,
    /// The jobs that the API created from others.
    retried: BTreeMap<JobId, JobId>,
    /// The numbers of requests, by system id.
    runners: BTreeMap<String, RunnerStats>,
}

impl Ledger {
    /// A new job at the end of the queue, for every host or for one.
    pub fn submit(&mut self, only_on: Option<&str>) -> JobId {
        let id = self.jobs.len() as JobId + 1;
        self.jobs.insert(id, JobState::Queued);
        self.only_on.extend(only_on.map(|host| (id, host.to_owned())));
        id
    }

    /// Assigns the oldest queued job for this host, if there is one. With a two-phase commit it is only offered.
    pub fn assign(&mut self, to: &RunnerProcess, two_phase: bool) -> Option<JobId> {
        let to = to.clone();
        let is_for_it = |id| self.only_on.get(id).is_none_or(|host| *host == to.system_id);
        let mut queued = self.jobs.iter_mut().filter(|(_, state)| **state == JobState::Queued);
        let (id, state) = queued.find(|(id, _)| is_for_it(*id))?;
        *state = if two_phase { JobState::Offered { to } } else { JobState::Assigned { to } };
        Some(*id)
    }

    /// Withdraws an offer, unless it was confirmed.
    pub fn withdraw(&mut self, job: JobId) -> bool {
        match self.jobs.get_mut(&job) {
            Some(state @ JobState::Offered { .. }) => {
                *state = JobState::Queued;
                true
            }
            _ => false,
        }
    }

    /// The first report of the runner: the job runs there. This confirms an offer.
    pub fn start(&mut self, job: JobId, by: &RunnerProcess) -> Result<(), LedgerError> {
        self.step(job, |state| match state {
            JobState::Offered { to } | JobState::Assigned { to } if to == by => {
                Some(JobState::Running { on: by.clone() })
            }
            _ => None,
        })
    }

    /// The runner reports success. Its first report may have been lost.
    pub fn finish(&mut self, job: JobId, by: &RunnerProcess) -> Result<(), LedgerError> {
        self.step(job, |state| is_on(state, by).then(|| JobState::Finished { on: by.clone() }))
    }

    /// The runner reports that the job failed or was aborted: it is lost.
    pub fn fail(&mut self, job: JobId, by: &RunnerProcess) -> Result<(), LedgerError> {
        self.step(job, |state| {
            is_on(state, by).then(|| JobState::Lost { on: by.clone(), loss: Loss::Reported })
        })
    }

    /// Removes the processes that `gone` selects: their jobs are lost (and returned), their offers are withdrawn.
    pub fn vanish(&mut self, gone: impl Fn(&RunnerProcess) -> bool) -> Vec<LostJob> {
        let mut lost = Vec::new();
        for (id, state) in &mut self.jobs {
            let (on, loss) = match state {
                JobState::Offered { to } if gone(to) => {
                    *state = JobState::Queued;
                    continue;
                }
                JobState::Assigned { to } if gone(to) => (to.clone(), Loss::NeverStarted),
                JobState::Running { on } if gone(on) => (on.clone(), Loss::Unfinished),
                _ => continue,
            };
            let was_running = loss == Loss::Unfinished;
            lost.push(LostJob { id: *id, on: on.clone(), was_running, retried_as: None });
            *state = JobState::Lost { on, loss };
        }
        lost
    }

    /// All jobs whose end GitLab never receives, because the process that they were assigned to is gone.
    pub fn lost(&self) -> Vec<LostJob> {
        let lost = |(id, state): (&JobId, &JobState)| match state {
            JobState::Lost { on, loss } if *loss != Loss::Reported => {
                let (was_running, retried_as) = (*loss == Loss::Unfinished, self.retried.get(id).copied());
                Some(LostJob { id: *id, on: on.clone(), was_running, retried_as })
            }
            _ => None,
        };
        self.jobs.iter().filter_map(lost).collect()
    }

    /// All jobs, in the order of their submission.
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// The status of a job in GitLab's API.
    pub fn status(&self, job: JobId) -> Option<&'static str> {
        if let Some(status) = self.canceled.get(&job) {
            return Some(status);
        }
        Some(match self.jobs.get(&job)? {
            JobState::Queued | JobState::Offered { .. } => "pending",
            JobState::Finished { .. } => "success",
            JobState::Lost { loss: Loss::Reported, .. } => "failed",
            JobState::Assigned { .. } | JobState::Running { .. } | JobState::Lost { .. } => "running",
        })
    }

    /// The system id of the runner manager that a job was assigned to.
    pub fn system_id(&self, job: JobId) -> Option<&str> {
        match self.jobs.get(&job)? {
            JobState::Queued | JobState::Offered { .. } => None,
            JobState::Assigned { to: on }
            | JobState::Running { on }
            | JobState::Finished { on }
            | JobState::Lost { on, .. } => Some(&on.system_id),
        }
    }

    /// Cancels a job whose status is `running`. A job of a live process is lost by this: the process is returned. A job with another status stays as
    /// it is, which is no error. `is_graceful`: the runner can end a job gracefully. GitLab waits for it, also if it is gone.
    pub fn cancel(&mut self, job: JobId, is_graceful: bool) -> Result<Option<RunnerProcess>, LedgerError> {
        let state = self.jobs.get_mut(&job).ok_or(LedgerError::NoSuchJob(job))?;
        let on = match state {
            JobState::Lost { loss: Loss::Unfinished | Loss::NeverStarted, .. } => None,
            JobState::Assigned { to: on } | JobState::Running { on } => Some(on.clone()),
            _ => return Ok(None),
        };
        if let Some(on) = on.clone() {
            *state = JobState::Lost { on, loss: Loss::Reported };
        }
        let status = if is_graceful && on.is_none() { "canceling" } else { "canceled" };
        self.canceled.entry(job).or_insert(status);
        Ok(on)
    }

    /// A new job at the end of the queue, for every host, from one that is over and was not retried before.
    pub fn retry(&mut self, job: JobId) -> Result<JobId, LedgerError> {
        let state = self.jobs.get(&job).ok_or(LedgerError::NoSuchJob(job))?;
        let is_over = matches!(self.status(job), Some("success" | "failed" | "canceled" | "canceling"));
        if !is_over || self.retried.contains_key(&job) {
            return Err(LedgerError::Refused { job, state: state.clone() });
        }
        let next = self.submit(None);
        self.retried.insert(job, next);
        Ok(next)
    }

    /// A job request was answered with or without a job.
    pub fn polled(&mut self, who: &RunnerProcess) {
        self.requests_of(who).polls += 1;
    }

    /// A job request was refused.
    pub fn refuse(&mut self, who: &RunnerProcess) {
        self.requests_of(who).refused += 1;
    }

    pub fn tally(&self) -> Tally {
        self.jobs.values().fold(Tally::default(), |mut tally, state| {
            *match state {
                JobState::Queued => &mut tally.queued,
                JobState::Offered { .. } | JobState::Assigned { .. } => &mut tally.assigned,
                JobState::Running { .. } => &mut tally.running,
                JobState::Finished { .. } => &mut tally.finished,
                JobState::Lost { .. } => &mut tally.lost,
            } += 1;
            tally
        })
    }

    /// Statistics of one system id; all zero without requests.
    pub fn runner(&self, system_id: &str) -> RunnerStats {
        let mut stats = self.runners.get(system_id).copied().unwrap_or_default();
        for state in self.jobs.values() {
            match state {
                JobState::Running { on } if on.system_id == system_id => stats.running += 1,
                JobState::Finished { on } if on.system_id == system_id => stats.finished += 1,
                JobState::Lost { on, .. } if on.system_id == system_id => stats.lost += 1,
                _ => {}
            }
        }
        stats
    }

    /// The state of one job.
    pub fn job(&self, job: JobId) -> Option<&JobState> {
        self.jobs.get(&job)
    }

    fn requests_of(&mut self, who: &RunnerProcess) -> &mut RunnerStats {
        self.runners.entry(who.system_id.clone()).or_default()
    }

    fn step(
        &mut self,
        job: JobId,
        next: impl FnOnce(&JobState) -> Option<JobState>,
    ) -> Result<(), LedgerError> {
        let state = self.jobs.get_mut(&job).ok_or(LedgerError::NoSuchJob(job))?;
        *state = next(state).ok_or_else(|| LedgerError::Refused { job, state: state.clone() })?;
        Ok(())
    }
}

/// Whether the job was assigned to this process and is open.
fn is_on(state: &JobState, process: &RunnerProcess) -> bool {
    matches!(state, JobState::Assigned { to: on } | JobState::Running { on } if on == process)
}

#[cfg(test)]
mod tests;
