//! Whether the runner is of use: a ladder of four rungs, each of which says more than the one below.
//!
//! | rung | what holds |
//! | --- | --- |
//! | process | it has lived for a while, is not on its way out, and was not restarted just now |
//! | ready | its configuration has runners, and it says that it is ready (`/health/ready`, else its process state, else its metrics) |
//! | polling | GitLab answered the job requests of every `[[runners]]` section with a 2xx |
//!
//! [`prober`] asks the runner from time to time and publishes a [`Health`]; [`level`] decides on what it found and is pure. Nothing here
//! changes what the supervisor does: health is told, not acted upon.
//!
//! What cannot be known is said to be unknown: a count of jobs that is absent is not zero, and zero jobs is not the runner's end.

mod config_reader;
mod http_client;
mod job_list;
mod level;
mod prober;
mod runner_config;
mod runner_metrics;

use std::time::Duration;

use tokio::time::Instant;

use crate::supervise::{ChildInfo, Phase, State};

#[cfg(test)]
pub(crate) use self::job_list::parse as parse_jobs;
pub use self::{
    job_list::Job,
    prober::{Prober, Settings},
    runner_config::{ConfigError, RunnerConfig, Section, Source},
};

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Not even the process can be relied on.
    #[default]
    None,
    Process,
    Ready,
    Polling,
}

impl Level {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
        }
    }
}

/// What is known about the runner beyond its process. What may be told of it now is in [`Health::of`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The child that was looked at; `None` before the first look, and while there is none.
    pub child: Option<ChildInfo>,
    pub level: Level,
    /// The highest rung on which this runner can be seen at all; `None` before the first probe.
    pub goal: Level,
    /// Why the next rung is not reached, for people.
    pub reasons: Vec<String>,
    /// The child was stopped (SIGSTOP), and has not ended.
    pub suspended: bool,
    /// What the runner says its version is.
    pub version: Option<String>,
    pub revision: Option<String>,
    /// What the runner says it is doing, from 19.1 on.
    pub process_state: Option<String>,
    /// `[[runners]]` sections of its configuration, and how many of them poll.
    pub sections: Option<usize>,
    pub polling_sections: Option<usize>,
    /// Jobs that run now; `None` when the runner does not say.
    pub jobs: Option<usize>,
    /// The job that has run longest, when the runner lists its jobs and has one.
    pub oldest: Option<Oldest>,
    /// When the jobs were last seen to become fewer; `None` when that was not seen of this runner.
    pub fewer_jobs: Option<Instant>,
    /// When GitLab was last seen to have answered a job request well, whichever section's; `None` when that was not seen of this runner.
    pub last_poll: Option<Instant>,
}

/// The job that has run longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oldest {
    pub started: Instant,
    pub stage: String,
}

impl Oldest {
    /// How long the job has run by now.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Health {
    /// What is true of the runner in this state. A probe takes seconds, and a child may have ended or been told to stop since it began: what
    /// was found about another child is left out, and so is a level that was found before the stop.
    #[must_use]
    pub fn of(&self, state: &State) -> Self {
        let none = |reason: &str| Self { reasons: vec![reason.to_owned()], ..Self::default() };
        match state {
            State::Idle => none("the runner has not been started yet"),
            State::Starting { .. } => none("the runner is starting"),
            State::Backoff { .. } => none("the runner exited unexpectedly and is waiting for its restart"),
            State::Exited { .. } => none("the runner is not running"),
            State::Running { child, .. } if self.child == Some(*child) => self.clone(),
            State::Running { child, .. } if child.started.elapsed() < JUST_STARTED => {
                none("the runner is starting and has not been probed yet")
            }
            State::Running { .. } => none("the runner has not been probed yet"),
            State::Stopping { child, phase, .. } => {
                let known = if self.child == Some(*child) { self.clone() } else { Self::default() };
                let reason = match phase {
                    _ if known.suspended => SUSPENDED,
                    Phase::Holding { .. } | Phase::Draining { .. } => {
                        "the runner is draining: it accepts no new jobs and exits after its last job"
                    }
                    Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => {
                        "the runner is being stopped forcefully: its jobs are aborted"
                    }
                };
                Self { level: Level::None, reasons: vec![reason.to_owned()], ..known }
            }
        }
    }
}

/// A drain does not even begin then: SIGQUIT waits as well.
const SUSPENDED: &str =
    "the runner's process is suspended (SIGSTOP or a debugger) and does nothing until it receives SIGCONT";

/// A child without a probe is called one that starts for so long. One that was adopted is older.
const JUST_STARTED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{End, Mode, Stop, process::Exit};

    fn child(pid: u32) -> ChildInfo {
        ChildInfo { pid, started: Instant::now() }
    }

    fn polling(child: ChildInfo) -> Health {
        let (level, goal) = (Level::Polling, Level::Polling);
        Health { child: Some(child), level, goal, jobs: Some(3), ..Health::default() }
    }

    #[test]
    fn health_of_previous_child_is_not_reported_for_next() {
        let first = child(7);
        let health = polling(first);
        assert_eq!(health.of(&State::Running { child: first, reload: None }), health);
        let later = ChildInfo { started: first.started + Duration::from_secs(1), ..first };
        for other in [child(8), later] {
            let told = health.of(&State::Running { child: other, reload: None });
            let reasons = vec!["the runner is starting and has not been probed yet".to_owned()];
            assert_eq!(told, Health { reasons, ..Health::default() });
        }
        let phase = Phase::Draining { since: Instant::now() };
        let stop = Stop::new("d", Mode::Graceful);
        let told = health.of(&State::Stopping { child: child(8), stop, phase });
        assert_eq!((told.level, told.jobs), (Level::None, None));
    }

    #[test]
    fn state_without_health_has_one_reason() {
        let child = child(7);
        let health = Health { reasons: vec!["one".to_owned(), "two".to_owned()], ..polling(child) };
        let stopping = |phase| State::Stopping { child, stop: Stop::new("d", Mode::Graceful), phase };
        let now = Instant::now();
        let end = End::Exited { pid: 7, exit: Exit::Code(1), killed: false };
        for (state, reason, jobs) in [
            (State::Idle, "not been started yet", None),
            (State::Starting { stop: None }, "is starting", None),
            (State::Backoff { until: now, end: end.clone() }, "waiting for its restart", None),
            (State::Exited { end, stop: None }, "is not running", None),
            (stopping(Phase::Holding { until: now, told: None }), "is draining", Some(3)),
            (stopping(Phase::Draining { since: now }), "is draining", Some(3)),
            (stopping(Phase::Spacing { until: now }), "stopped forcefully", Some(3)),
            (stopping(Phase::Killed), "stopped forcefully", Some(3)),
        ] {
            let told = health.of(&state);
            assert!(told.reasons.len() == 1 && told.reasons[0].contains(reason), "{told:?}");
            assert_eq!((told.level, told.jobs), (Level::None, jobs), "{state:?}");
        }
        let suspended = Health { suspended: true, ..health };
        let told = suspended.of(&stopping(Phase::Draining { since: now }));
        assert_eq!(told.reasons, [SUSPENDED], "it does not drain");
    }
}
