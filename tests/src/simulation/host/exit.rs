//! What a wrapper must have found out about the exit of its runner.

use std::time::Duration;

use grit_wrapper::supervise::{ChildInfo, State, StopOutcome, Supervision, process::Exit};
use tokio::time::Instant;

use super::{super::world::Inner, Owner, process::Facts};

/// systemd shows an exit within this time.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// A runner that has exited.
#[derive(Debug)]
pub(super) struct Ended {
    facts: Facts,
    at: Instant,
    /// For its parent, before it is reaped.
    exit: Option<Exit>,
}

impl Ended {
    pub(super) fn new(facts: Facts, exit: Exit, has_parent: bool) -> Self {
        Self { facts, at: Instant::now(), exit: has_parent.then_some(exit) }
    }

    /// As of one that runs: the next wrapper knows what the state file has.
    pub(super) fn continued(&mut self, saved: Option<&Supervision>, has_fault: bool) {
        let names_it =
            |saved: &&Supervision| saved.state.child().is_some_and(|child| child.pid() == self.facts.pid);
        let saved = saved.filter(names_it);
        self.facts.continued(saved, has_fault);
    }

    pub(super) fn pid(&self) -> u32 {
        self.facts.pid
    }

    /// How it has ended, for its parent.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Another process reaps it.
    pub(super) fn parent_is_gone(&mut self) {
        self.exit = None;
    }
}

impl Inner {
    /// With a unit, an exit code is never unknown.
    pub(super) fn check_exit_code(&mut self, instance: &str, child: ChildInfo, exit: Exit) {
        let Some(host) = self.hosts.get(instance) else { return };
        let Owner::Unit(unit) = &host.owner else { return };
        let pid = child.pid();
        let was_rebooted = (child.process.boot != host.boot()).then_some("the host was rebooted");
        match exit {
            Exit::Unknown => match was_rebooted.or(unit.why_unknown(pid)) {
                Some(why) => self.trace.count(format!("limit: exit code unknown: {why}")),
                None => self.violation(instance, format!("the exit code of runner {pid} is unknown")),
            },
            exit if unit.ended_with(pid).is_some_and(|real| real != exit) => {
                self.violation(instance, format!("the exit code of runner {pid} is that of another one"));
            }
            _ => {}
        }
    }

    pub(super) fn check_outcome(&mut self, instance: &str, number: u32, ended: &Ended, was_forced: bool) {
        let facts = &ended.facts;
        let Some(host) = self.hosts.get(instance) else { return };
        let (has_leftovers, lists_jobs) = (host.leftovers, host.setup.lists_jobs());
        let has_lost_before = host.promise.has_lost_result;
        let Some(wrapper) = host.wrapper.as_ref().filter(|wrapper| wrapper.number() == number) else {
            return;
        };
        let State::Exited { stop: Some(stop), .. } = &wrapper.supervision.state else { return };
        let Some(outcome) = stop.outcome else { return };
        // The first probe of a drain, or of a wrapper, comes some milliseconds after its begin.
        let first_probe = stop.requested.at.max(facts.watched_since) + Duration::from_secs(1);
        self.trace.count(format!("outcome {}", outcome.name()));
        if outcome == StopOutcome::Clean && facts.has_aborted_jobs {
            if facts.observed.aborts_jobs {
                self.violation(instance, "a drain with aborted jobs is clean");
            } else {
                // `docs/wrapper/draining.md`, "Outcome of a drain".
                self.trace.count("limit: clean after aborted jobs, which no probe has shown");
            }
        }
        match (outcome, facts.dropped) {
            (StopOutcome::Clean, Some(dropped)) if lists_jobs && dropped > first_probe => {
                self.violation(instance, "a drain that has lost a result is clean");
            }
            (StopOutcome::Clean, Some(_)) => {
                // `docs/wrapper/draining.md`, "Outcome of a drain".
                self.trace.count("limit: clean after a lost result, which no probe has shown");
            }
            (StopOutcome::ResultsLost, None) if has_lost_before => {}
            // `docs/wrapper/draining.md`, "Outcome of a drain".
            (StopOutcome::ResultsLost, None) if facts.reported_late => {
                self.trace.count("limit: results_lost after the last attempt has succeeded");
            }
            (StopOutcome::ResultsLost, None) if ended.at < first_probe => {
                self.trace.count("limit: results_lost after a list that was read before the drain");
            }
            (StopOutcome::ResultsLost, None) if ended.at.elapsed() > SHOWN_WITHIN => {
                self.trace.count("limit: results_lost, because systemd did not respond at the exit");
            }
            // When a job has ended that the first list of another wrapper shows as ended is not known.
            (StopOutcome::ResultsLost, None) if facts.is_watched_since_start() => {
                self.violation(instance, "results_lost, and the runner has reported the end of each job");
            }
            _ => {}
        }
        if let Some(host) = self.hosts.get_mut(instance) {
            host.promise.has_lost_result |= facts.dropped.is_some();
        }
        if was_forced && has_leftovers && !facts.is_forced_by(number) && facts.parent != Some(number) {
            self.trace.count("limit: processes of jobs are left: the wrapper was killed in a forceful stop");
        } else if was_forced && has_leftovers {
            self.violation(instance, "a forceful stop is over, and processes of jobs are left");
        }
    }
}
