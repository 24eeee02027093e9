//! Health of the runner: four levels, each of which includes the levels below it.
//!
//! | level | condition |
//! | --- | --- |
//! | process | it has been running for the minimum uptime (or polls), is not stopping, and was not restarted recently |
//! | ready | its configuration has `[[runners]]` sections, and it reports that it is ready (`/health/ready`, else its process state, else its metrics) |
//! | polling | GitLab sent a 2xx response to job requests of as many sections as the configuration has, or the job router completed them. A paused runner polls, too |
//! | working | at least one job has ended successfully since the start of the process |
//!
//! [`prober`] probes the runner periodically and publishes a [`Health`]; [`level`] computes the level without I/O. Health is reported
//! only; the supervisor does not act on it.
//!
//! A wrapper that does not listen on all its addresses is below `ready`, whatever its runner does.
//!
//! Unknown values are reported as unknown: an absent number of jobs is not 0, and a runner with 0 jobs has not exited.

mod config_reader;
mod http_client;
mod job_list;
mod level;
mod memory;
mod polls;
mod prober;
mod quit_problem;
mod request_gap;
mod runner_config;
mod runner_metrics;
mod runner_source;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::supervise::{ChildInfo, Moment, Observation, State};

#[cfg(test)]
pub(crate) use self::job_list::parse as parse_jobs;
pub(crate) use self::quit_problem::waits_for;
pub use self::{
    job_list::Job,
    level::Level,
    prober::Prober,
    quit_problem::QuitProblem,
    runner_config::{ConfigError, RunnerConfig, Section},
    runner_metrics::{CircuitBreaker, JobRouter},
    runner_source::Source,
    settings::Settings,
};
use self::{level::SUSPENDED, quit_problem::drain_reasons};

/// The result of a probe. [`Health::of`] combines it with the current state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The probed child; `None` before the first probe, and without a child.
    pub child: Option<ChildInfo>,
    pub level: Level,
    /// The maximum level of this runner; `None` before the first probe.
    pub level_max: Level,
    /// Human-readable reasons why the next level is not reached.
    pub reasons: Vec<String>,
    /// The child is suspended (SIGSTOP).
    pub suspended: bool,
    /// Why SIGQUIT does not make the child drain.
    pub quit_problem: Option<QuitProblem>,
    /// Version reported by the runner.
    pub version: Option<String>,
    pub revision: Option<String>,
    /// Process state reported by the runner, from 19.1 on.
    pub process_state: Option<String>,
    /// Number of `[[runners]]` sections, and number of polling sections.
    pub sections: Option<usize>,
    pub polling_sections: Option<usize>,
    /// Number of sections whose token GitLab rejects.
    pub rejected_sections: Option<usize>,
    /// Number of running jobs; `None` if unknown.
    pub jobs: Option<usize>,
    /// The oldest running job, if the job list has one.
    pub oldest: Option<Oldest>,
    /// Time of the last decrease of the number of jobs; `None` if none was observed for this runner.
    pub fewer_jobs: Option<Moment>,
    /// Jobs that have ended since the start of the runner's process; `None` if unknown.
    pub ended_jobs: Option<EndedJobs>,
    /// Maximum number of running jobs, from the configuration.
    pub concurrent: Option<u64>,
    /// The result of boot-verify; `None` if it is not enabled in all sections.
    pub verified: Option<bool>,
    /// The job router, if a section uses it.
    pub job_router: Option<JobRouter>,
    /// The autoscaling groups of the sections, sorted.
    pub worker_groups: Vec<String>,
    /// Time of the last accepted job request of any section; `None` if none was observed for this runner.
    pub last_poll: Option<Moment>,
    /// The runner was seen to abort its jobs during a drain.
    pub aborts_jobs: bool,
    /// The runner's limit for its cleanup after SIGTERM, from its configuration.
    pub shutdown_timeout: Option<Duration>,
    /// The configuration of the runner, also without a child; `None` if it could not be read.
    pub config: Option<Arc<RunnerConfig>>,
    /// The addresses on which the wrapper does not listen, and why. Not from a probe.
    pub unbound: BTreeMap<String, String>,
}

/// Jobs that have ended since the start of the runner's process, from its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedJobs {
    pub succeeded: u64,
    pub failed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oldest {
    pub started: Instant,
    pub stage: String,
}

impl Oldest {
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Health {
    /// What the supervisor needs of the probe.
    pub fn observation(&self) -> Observation {
        Observation { aborts_jobs: self.aborts_jobs, shutdown_timeout: self.shutdown_timeout }
    }

    /// The health in this state.
    pub fn of(&self, state: &State) -> Self {
        let mut health = Self { config: self.config.clone(), ..self.of_runner(state) };
        if !self.unbound.is_empty() {
            health.level = health.level.min(Level::Process);
            let reasons =
                self.unbound.values().map(|error| format!("the wrapper does not listen on {error}"));
            // The first one is about the state of the runner, and only some are shown.
            let second = health.reasons.len().min(1);
            health.reasons.splice(second..second, reasons);
            health.unbound.clone_from(&self.unbound);
        }
        health
    }

    /// The health of the runner in this state. A probe takes seconds, during which the child may exit or start stopping: results for
    /// another child are dropped, and so is a level from before the stop.
    fn of_runner(&self, state: &State) -> Self {
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
            State::Stopping { child, stop, phase } => {
                let known = if self.child == Some(*child) { self.clone() } else { Self::default() };
                let ((reason, problem), aborts_jobs) = if phase.is_forceful() {
                    let reason = "the runner is being stopped forcefully: its jobs are aborted";
                    ((reason.to_owned(), None), false)
                } else {
                    (drain_reasons(phase, known.quit_problem), known.aborts_jobs || stop.aborts_jobs)
                };
                let problems = [(known.suspended, SUSPENDED), (aborts_jobs, ABORTS_JOBS)];
                let problems =
                    problems.into_iter().filter_map(|(is_present, text)| is_present.then_some(text));
                let problems = problem.into_iter().chain(problems).map(str::to_owned);
                let reasons = [reason].into_iter().chain(problems).collect();
                Self { level: Level::None, reasons, ..known }
            }
        }
    }
}

const ABORTS_JOBS: &str =
    "the runner aborts its jobs: a process other than the wrapper sent SIGTERM or SIGINT to it";

/// For this time after its start, an unprobed child is reported as starting. An adopted child is older.
const JUST_STARTED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{End, Mode, Phase, Stop, process::Exit};

    fn child(pid: u32) -> ChildInfo {
        ChildInfo::example(pid)
    }

    fn polling(child: ChildInfo) -> Health {
        let (level, level_max) = (Level::Polling, Level::Polling);
        Health { child: Some(child), level, level_max, jobs: Some(3), ..Health::default() }
    }

    #[test]
    fn health_of_previous_child_is_not_reported_for_next() {
        let first = child(7);
        let health = polling(first);
        assert_eq!(health.of(&State::Running { child: first, reload: None }), health);
        let later = ChildInfo { started: first.started + Duration::from_secs(1), ..first };
        for other in [child(8), later] {
            let found = health.of(&State::Running { child: other, reload: None });
            let reasons = vec!["the runner is starting and has not been probed yet".to_owned()];
            assert_eq!(found, Health { reasons, ..Health::default() });
        }
        let phase = Phase::draining(Moment::now());
        let stop = Stop::new("d", Mode::Graceful);
        let found = health.of(&State::Stopping { child: child(8), stop, phase });
        assert_eq!((found.level, found.jobs), (Level::None, None));
    }

    #[test]
    fn state_without_health_has_one_reason() {
        let child = child(7);
        let health = Health { reasons: vec!["one".to_owned(), "two".to_owned()], ..polling(child) };
        let stopping = |phase| State::Stopping { child, stop: Stop::new("d", Mode::Graceful), phase };
        let now = Moment::now();
        let end = End::Exited { pid: 7, exit: Exit::Code(1), killed: false };
        for (state, reason, jobs) in [
            (State::Idle, "not been started yet", None),
            (State::Starting { child: None }, "is starting", None),
            (State::Backoff { until: now, end: end.clone() }, "waiting for its restart", None),
            (State::Exited { end, stop: None }, "is not running", None),
            (stopping(Phase::Holding { until: now, quit_sent_at: None }), "is draining", Some(3)),
            (stopping(Phase::draining(now)), "is draining", Some(3)),
            (stopping(Phase::Spacing { until: now }), "stopped forcefully", Some(3)),
            (stopping(Phase::Killed { refused: None }), "stopped forcefully", Some(3)),
        ] {
            let found = health.of(&state);
            assert!(found.reasons.len() == 1 && found.reasons[0].contains(reason), "{found:?}");
            assert_eq!((found.level, found.jobs), (Level::None, jobs), "{state:?}");
        }
        let of_problem = |phase, problem| {
            let health = Health { quit_problem: Some(problem), ..health.clone() };
            health.of(&stopping(phase)).reasons.join("; ")
        };
        let (holding, draining) = (Phase::Holding { until: now, quit_sent_at: None }, Phase::draining(now));
        for (phase, problem, reason) in [
            (holding, QuitProblem::Ignored, "is held back for some seconds; the process ignores SIGQUIT"),
            (
                draining.clone(),
                QuitProblem::Ignored,
                "the process ignores it, so that the drain may have no effect",
            ),
            (draining.clone(), QuitProblem::Pending, "the process blocks it and has not received it"),
            (draining, QuitProblem::NoEffect, "still reports the process state `running`"),
        ] {
            let found = of_problem(phase, problem);
            assert!(found.contains(reason) && found.contains("with `exec`"), "{found}");
        }
        let suspended = Health { suspended: true, ..health };
        let found = suspended.of(&stopping(Phase::draining(now)));
        assert!(found.reasons[0].contains("is draining"));
        assert_eq!(found.reasons[1..], [SUSPENDED], "a problem follows");
    }

    #[test]
    fn wrapper_without_its_addresses_is_below_ready() {
        let child = child(7);
        let running = State::Running { child, reload: None };
        let unbound = BTreeMap::from([("tcp://a:1".to_owned(), "tcp://a:1: in use".to_owned())]);
        let health = Health { unbound, ..polling(child) };
        let found = health.of(&running);
        assert_eq!(
            (found.level, found.reasons.as_slice()),
            (Level::Process, &["the wrapper does not listen on tcp://a:1: in use".to_owned()][..])
        );
        let found = health.of(&State::Idle);
        assert!(found.level == Level::None && found.reasons.len() == 2, "{found:?}");
    }

    #[test]
    fn abort_of_jobs_is_a_reason_only_while_draining() {
        let child = child(7);
        let health = Health { aborts_jobs: true, ..polling(child) };
        let of = |phase| health.of(&State::Stopping { child, stop: Stop::new("d", Mode::Graceful), phase });
        let now = Moment::now();
        assert_eq!(of(Phase::draining(now)).reasons[1..], [ABORTS_JOBS]);
        assert_eq!(of(Phase::Terminating { until: now, refused: None }).reasons.len(), 1);
        assert!(health.observation().aborts_jobs);
    }
}
