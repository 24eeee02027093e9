//! Health of the runner: four levels, each of which includes the levels below it.
//!
//! | level | condition |
//! | --- | --- |
//! | process | it has been running for the minimum uptime (or polls), is not stopping, and was not restarted recently |
//! | ready | its configuration has `[[runners]]` sections, and it reports that it is ready (`/health/ready`, else its process state, else its metrics) |
//! | polling | GitLab sent a 2xx response to job requests of as many sections as the configuration has, or the job router completed them. A paused runner also polls |
//! | working | at least one job has ended successfully since the start of the process |
//!
//! [`prober`] probes the runner periodically and publishes a [`Health`]; [`level`] computes the level without I/O, and has all reasons. Health is
//! reported only; the supervisor does not act on it.
//!
//! A runner is below `ready`, whatever it does, while a unix socket of its wrapper is removed and cannot be created again, and while its unit does not have
//! the settings that a drain needs.
//!
//! Unknown values are reported as unknown: an absent number of jobs is not 0, and a runner with 0 jobs has not exited.

mod access;
mod config_reader;
mod evidence;
mod http_client;
mod job_list;
mod level;
mod polls;
mod prober;
mod request_gap;
mod runner_config;
mod runner_metrics;
mod runner_source;
mod settings;
mod unreported;

use std::{collections::BTreeMap, sync::LazyLock};

use crate::supervise::State;

pub(crate) use self::{
    access::{Access, OnLine},
    evidence::Evidence,
    http_client::{GetError, Server},
    level::{level_now, waits_for},
    runner_config::parse as parse_config,
    runner_source::Endpoint,
};
pub use grit_proto::wrapper_v1::Level;

#[cfg(test)]
pub(crate) use self::{evidence::Oldest, job_list::parse as parse_jobs};
pub use self::{
    job_list::Job,
    prober::Prober,
    runner_config::{ConfigError, RunnerConfig, Section},
    runner_source::Source,
    settings::Settings,
};

/// The result of the last probe. [`level_now`] combines it with the current state.
#[derive(Clone, Debug)]
pub struct Health {
    pub level: Level,
    /// The maximum level of this runner; `Unspecified` before the first probe.
    pub level_max: Level,
    /// Human-readable reasons why the next level is not reached.
    pub reasons: Vec<String>,
    pub(crate) evidence: Evidence,
    /// What is wrong with the wrapper's sockets and with the runner's unit, by socket or setting. Not from a probe.
    pub faults: BTreeMap<String, String>,
}

impl Default for Health {
    fn default() -> Self {
        let (level, level_max) = (Level::None, Level::Unspecified);
        let (reasons, evidence, faults) = Default::default();
        Self { level, level_max, reasons, evidence, faults }
    }
}

impl Health {
    /// What is known of the child in this state: nothing if the last probe was of another one.
    pub(crate) fn evidence_in(&self, state: &State) -> &Evidence {
        static NOTHING: LazyLock<Evidence> = LazyLock::new(Evidence::default);
        let child = state.child();
        if child.is_some() && self.evidence.child == child { &self.evidence } else { &NOTHING }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::supervise::{ChildInfo, End, Mode, Moment, Phase, Policy, Stop, Supervision, process::Exit};

    /// Level, reasons and number of jobs in this state.
    fn of(health: &Health, state: State) -> (Level, Vec<String>, Option<usize>) {
        let jobs = health.evidence_in(&state).jobs;
        let (level, reasons) = level_now(&Supervision { state, ..Supervision::default() }, health);
        (level, reasons, jobs)
    }

    fn child(pid: u32) -> ChildInfo {
        ChildInfo::example(pid)
    }

    fn polling(child: ChildInfo) -> Health {
        let evidence = Evidence { child: Some(child), jobs: Some(3), ..Evidence::default() };
        Health { level: Level::Polling, level_max: Level::Polling, evidence, ..Health::default() }
    }

    #[test]
    fn health_of_previous_child_is_not_reported_for_next() {
        let first = child(7);
        let health = polling(first);
        let found = of(&health, State::Running { child: first, reload_at: None });
        assert_eq!(found, (Level::Polling, Vec::new(), Some(3)));
        let later = ChildInfo { started: first.started + Duration::from_secs(1), ..first };
        for other in [child(8), later] {
            let found = of(&health, State::Running { child: other, reload_at: None });
            let reasons = vec!["the runner is starting and has not been probed yet".to_owned()];
            assert_eq!(found, (Level::None, reasons, None));
        }
        let phase = Phase::draining(Moment::now());
        let stop = Stop::new("d", Mode::Graceful);
        let (level, _, jobs) = of(&health, State::Stopping { child: child(8), stop, phase });
        assert_eq!((level, jobs), (Level::None, None));
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
            (State::Starting, "is starting", None),
            (State::Backoff { end: end.clone() }, "waiting for its restart", None),
            (State::Exited { end, stop: None }, "is not running", None),
            (
                stopping(Phase::awaiting_gap(now, None, &Policy::default())),
                "is draining: waiting until no job request is open",
                Some(3),
            ),
            (stopping(Phase::draining(now)), "is draining", Some(3)),
            (stopping(Phase::Spacing { until: now }), "stopped forcefully", Some(3)),
            (stopping(Phase::Killed), "stopped forcefully", Some(3)),
        ] {
            let (level, reasons, found) = of(&health, state);
            assert!(reasons.len() == 1 && reasons[0].contains(reason), "{reasons:?}");
            assert_eq!((level, found), (Level::None, jobs), "{reason}");
        }
        let mut unmoved = health.clone();
        unmoved.evidence.quit_has_no_effect = true;
        let (_, reasons, _) = of(&unmoved, stopping(Phase::draining(now)));
        assert!(reasons[1].contains("still reports the process state `running`"), "{reasons:?}");
        let mut suspended = health;
        suspended.evidence.suspended = true;
        let (_, reasons, _) = of(&suspended, stopping(Phase::draining(now)));
        assert!(reasons[0].contains("is draining"));
        assert_eq!(reasons[1..], [level::SUSPENDED], "a problem follows");
    }

    #[test]
    fn wrapper_without_its_socket_is_below_ready() {
        let child = child(7);
        let running = State::Running { child, reload_at: None };
        let lost =
            ("unix:///run/w".to_owned(), "the wrapper does not listen on unix:///run/w: in use".to_owned());
        let health = Health { faults: BTreeMap::from([lost]), ..polling(child) };
        let (level, reasons, _) = of(&health, running);
        assert_eq!(
            (level, reasons.as_slice()),
            (Level::Process, &["the wrapper does not listen on unix:///run/w: in use".to_owned()][..])
        );
        let (level, reasons, _) = of(&health, State::Idle);
        assert!(level == Level::None && reasons.len() == 2, "{reasons:?}");
    }

    #[test]
    fn abort_of_jobs_is_a_reason_only_while_draining() {
        let child = child(7);
        let mut health = polling(child);
        health.evidence.aborts_jobs = true;
        let reasons =
            |phase| of(&health, State::Stopping { child, stop: Stop::new("d", Mode::Graceful), phase }).1;
        let now = Moment::now();
        assert_eq!(reasons(Phase::draining(now))[1..], [level::ABORTS_JOBS]);
        assert_eq!(reasons(Phase::Terminating { until: now }).len(), 1);
        assert!(health.evidence.observation().aborts_jobs);
    }
}
