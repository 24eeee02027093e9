//! The ledger of the job queue: the state of each job. Pure: no clock, no network.
//!
//! A job is queued, offered to a runner, accepted by it (as in GitLab's two-phase job commit: an offer that is not
//! accepted is withdrawn, so that a cancelled poll loses no job), and then finished or lost. The last two are final:
//! later reports have no effect, so each job counts exactly once. For a runner without this commit (before 18.5), the offer
//! is accepted when it is made: if the poll is cancelled, the job is lost when the process exits.

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
    Offered { to: RunnerProcess },
    Running { on: RunnerProcess },
    Finished { on: RunnerProcess },
    Lost { on: RunnerProcess, why: String },
}

/// Number of jobs in each state. The sum is the number of submitted jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub queued: usize,
    pub offered: usize,
    pub running: usize,
    pub finished: usize,
    pub lost: usize,
}

impl Tally {
    /// Jobs that have not ended.
    pub fn open(&self) -> usize {
        self.queued + self.offered + self.running
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
    runners: BTreeMap<String, RunnerStats>,
}

impl Ledger {
    /// A new job at the end of the queue.
    pub fn submit(&mut self) -> JobId {
        let id = self.jobs.len() as JobId + 1;
        self.jobs.insert(id, JobState::Queued);
        id
    }

    /// Offers the oldest queued job, if there is one; counts as a successful poll in both cases.
    pub fn offer(&mut self, to: &RunnerProcess) -> Option<JobId> {
        self.runner(&to.system_id).polls += 1;
        let (id, state) = self.jobs.iter_mut().find(|(_, state)| **state == JobState::Queued)?;
        *state = JobState::Offered { to: to.clone() };
        Some(*id)
    }

    /// Whether a job waits for a runner.
    pub fn has_queued(&self) -> bool {
        self.jobs.values().any(|state| *state == JobState::Queued)
    }

    /// Withdraws an offer, unless it was accepted.
    pub fn withdraw(&mut self, job: JobId) -> bool {
        match self.jobs.get_mut(&job) {
            Some(state @ JobState::Offered { .. }) => {
                *state = JobState::Queued;
                true
            }
            _ => false,
        }
    }

    /// The runner accepts the offer: the job runs there now.
    pub fn accept(&mut self, job: JobId, by: &RunnerProcess) -> Result<(), LedgerError> {
        self.step(job, |state| match state {
            JobState::Offered { to } if to == by => Some(JobState::Running { on: by.clone() }),
            _ => None,
        })?;
        self.runner(&by.system_id).running += 1;
        Ok(())
    }

    /// The runner reports success.
    pub fn finish(&mut self, job: JobId, by: &RunnerProcess) -> Result<(), LedgerError> {
        self.step(job, |state| match state {
            JobState::Running { on } if on == by => Some(JobState::Finished { on: by.clone() }),
            _ => None,
        })?;
        let stats = self.runner(&by.system_id);
        stats.running -= 1;
        stats.finished += 1;
        Ok(())
    }

    /// The runner reports that the job failed or was aborted: it is lost.
    pub fn fail(&mut self, job: JobId, by: &RunnerProcess, why: &str) -> Result<(), LedgerError> {
        self.step(job, |state| match state {
            JobState::Running { on } if on == by => {
                Some(JobState::Lost { on: by.clone(), why: why.to_owned() })
            }
            _ => None,
        })?;
        let stats = self.runner(&by.system_id);
        stats.running -= 1;
        stats.lost += 1;
        Ok(())
    }

    /// Removes the processes that `gone` selects: their running jobs are lost (and returned), their offers are withdrawn.
    pub fn vanish(&mut self, gone: impl Fn(&RunnerProcess) -> bool, why: &str) -> Vec<(JobId, String)> {
        let mut lost = Vec::new();
        for (id, state) in &mut self.jobs {
            match state {
                JobState::Offered { to } if gone(to) => *state = JobState::Queued,
                JobState::Running { on } if gone(on) => {
                    lost.push((*id, on.system_id.clone()));
                    *state = JobState::Lost { on: on.clone(), why: why.to_owned() };
                }
                _ => {}
            }
        }
        for (_, system_id) in &lost {
            let stats = self.runner(system_id);
            stats.running -= 1;
            stats.lost += 1;
        }
        lost
    }

    /// A job request was refused.
    pub fn refuse(&mut self, who: &RunnerProcess) {
        self.runner(&who.system_id).refused += 1;
    }

    pub fn tally(&self) -> Tally {
        self.jobs.values().fold(Tally::default(), |mut tally, state| {
            *match state {
                JobState::Queued => &mut tally.queued,
                JobState::Offered { .. } => &mut tally.offered,
                JobState::Running { .. } => &mut tally.running,
                JobState::Finished { .. } => &mut tally.finished,
                JobState::Lost { .. } => &mut tally.lost,
            } += 1;
            tally
        })
    }

    /// Statistics by system id.
    pub fn runners(&self) -> &BTreeMap<String, RunnerStats> {
        &self.runners
    }

    /// The state of one job.
    pub fn job(&self, job: JobId) -> Option<&JobState> {
        self.jobs.get(&job)
    }

    fn runner(&mut self, system_id: &str) -> &mut RunnerStats {
        self.runners.entry(system_id.to_owned()).or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn process(system_id: &str, pid: u32) -> RunnerProcess {
        RunnerProcess { system_id: system_id.to_owned(), pid }
    }

    #[test]
    fn repeatedly_reported_job_counts_once() {
        let mut ledger = Ledger::default();
        let a = process("a", 1);
        let job = ledger.submit();
        assert_eq!(ledger.offer(&a), Some(job));
        assert_eq!(ledger.offer(&a), None, "an offered job is not offered twice");
        ledger.accept(job, &a).unwrap();
        ledger.finish(job, &a).unwrap();
        ledger.finish(job, &a).unwrap_err();
        ledger.fail(job, &a, "late").unwrap_err();
        assert!(ledger.vanish(|who| *who == a, "gone").is_empty());
        assert_eq!(ledger.tally(), Tally { finished: 1, ..Tally::default() });
        assert_eq!(ledger.runners()["a"], RunnerStats { polls: 2, finished: 1, ..RunnerStats::default() });
    }

    #[test]
    fn vanished_process_loses_running_jobs_returns_offers() {
        let mut ledger = Ledger::default();
        let (old, new) = (process("a", 1), process("a", 2));
        let (first, second) = (ledger.submit(), ledger.submit());
        ledger.offer(&old).unwrap();
        ledger.accept(first, &old).unwrap();
        ledger.offer(&old).unwrap();
        assert_eq!(ledger.vanish(|who| *who == old, "killed"), [(first, "a".to_owned())]);
        ledger.finish(first, &old).unwrap_err();
        assert_eq!(ledger.offer(&new), Some(second), "the offer went back to the queue");
        ledger.accept(second, &old).unwrap_err();
        ledger.accept(second, &new).unwrap();
        assert_eq!(ledger.tally(), Tally { running: 1, lost: 1, ..Tally::default() });
    }

    #[test]
    fn withdrawn_offer_cannot_be_accepted() {
        let mut ledger = Ledger::default();
        let a = process("a", 1);
        let job = ledger.submit();
        ledger.offer(&a).unwrap();
        assert!(ledger.withdraw(job));
        ledger.accept(job, &a).unwrap_err();
        assert!(!ledger.withdraw(job));
        assert_eq!(ledger.tally().queued, 1);
    }
}
