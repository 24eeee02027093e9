//! GitLab's word at the start: the runner of a manager is not paused, and GitLab has heard of the manager.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex, Semaphore},
    time::Instant,
};

use crate::{
    client::Snapshot,
    fleet::receipt::{NoReceipt, questions},
    gitlab::{Gitlab, KnownRunner},
};

/// The maximum number of runners that GitLab is asked about at the same time.
const PARALLEL: usize = 8;

/// An answer is shared by all managers of a runner for this time.
const FRESH: Duration = Duration::from_secs(2);

/// The word of one GitLab instance for one health check.
#[derive(Debug)]
pub(crate) struct GitlabWord {
    gitlab: Gitlab,
    slots: Semaphore,
    answers: std::sync::Mutex<BTreeMap<u64, Arc<Mutex<Option<Answer>>>>>,
}

#[derive(Debug, Clone)]
struct Answer {
    at: Instant,
    found: Result<Arc<KnownRunner>, Doubt>,
}

/// Why GitLab does not confirm a runner manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It has not answered yet.
    Pending {
        instance: String,
    },
    Paused {
        runner: u64,
    },
    /// GitLab has not heard of this manager of the runner.
    Unknown {
        runner: u64,
        system_id: String,
    },
    /// There is no answer. `is_permanent`: more time does not change this.
    NoAnswer {
        runner: u64,
        instance: String,
        error: String,
        is_permanent: bool,
        is_refusal: bool,
    },
}

impl Doubt {
    /// Whether more time changes nothing.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::NoAnswer { is_permanent: true, .. })
    }
}

/// As a clause.
impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { instance } => write!(f, "GitLab at {instance} has not answered yet"),
            Self::Paused { runner } => write!(f, "runner {runner} is paused in GitLab"),
            Self::Unknown { runner, system_id } => {
                write!(f, "GitLab has not heard of manager {system_id} of runner {runner}")
            }
            Self::NoAnswer { runner, instance, error, .. } => {
                write!(f, "GitLab at {instance} did not return runner {runner}: {error}")
            }
        }
    }
}

impl GitlabWord {
    pub(crate) fn new(gitlab: Gitlab) -> Self {
        Self { gitlab, slots: Semaphore::new(PARALLEL), answers: Default::default() }
    }

    pub(super) fn pending(&self) -> Doubt {
        Doubt::Pending { instance: self.gitlab.instance().to_string() }
    }

    /// Asks about each section of the runner. Returns what GitLab could not be asked.
    pub(super) async fn ask(&self, snapshot: &Snapshot) -> Result<Vec<NoReceipt>, Doubt> {
        let (questions, mut missing) = questions(&self.gitlab, snapshot);
        for (runner, system_id) in questions {
            let known = self.known(runner).await?;
            if known.is_paused {
                return Err(Doubt::Paused { runner });
            }
            match &known.managers {
                Some(managers) if managers.contains(&system_id) => {}
                Some(_) if snapshot.has_no_free_slot() => missing.push(NoReceipt::NoFreeSlot { runner }),
                Some(_) => return Err(Doubt::Unknown { runner, system_id }),
                None => missing.push(NoReceipt::NoManagers),
            }
        }
        Ok(missing)
    }

    /// What GitLab knows about a runner, at most [`FRESH`] ago.
    async fn known(&self, runner: u64) -> Result<Arc<KnownRunner>, Doubt> {
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(runner).or_default())
        };
        let mut answer = answer.lock().await;
        if let Some(fresh) = answer.as_ref().filter(|answer| answer.at.elapsed() < FRESH) {
            return fresh.found.clone();
        }
        // It is never closed.
        let _slot = self.slots.acquire().await;
        let found = self.gitlab.runner(runner).await.map(Arc::new).map_err(|error| Doubt::NoAnswer {
            runner,
            instance: self.gitlab.instance().to_string(),
            is_permanent: !error.is_transient(),
            is_refusal: error.is_refusal(),
            error: error.to_string(),
        });
        *answer = Some(Answer { at: Instant::now(), found: found.clone() });
        found
    }
}

#[cfg(test)]
mod tests;
