//! How the task of a wrapper learns of the exit of its runner, and of its exit code: `Owner::news`.

use std::time::Duration;

use grit_wrapper::supervise::{ChildInfo, Event, Mode, State, StopOutcome, Supervision, process::Exit};
use tokio::time::Instant;

use super::{
    super::world::{Happening, Inner},
    Happens, Owner,
    process::Facts,
    wrapper::Busy,
};

/// `owner::unit::SHOWN_WITHIN` and `SHOWN_INTERVAL`.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
const SHOWN_INTERVAL: Duration = Duration::from_millis(20);

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

    /// Another process reaps it.
    pub(super) fn parent_is_gone(&mut self) {
        self.exit = None;
    }
}

/// What a wrapper can find out about an exit.
enum Found {
    Exit(Exit),
    NotYet,
    /// systemd does not respond before this moment.
    Silent(Instant),
}

impl Inner {
    /// The task of the wrapper sees the exit.
    pub(super) fn notice_exit(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(child) = host.wrapper.as_ref().and_then(|wrapper| wrapper.supervision.state.child()) else {
            return;
        };
        let has_exited = host.has_exited(child);
        let Some(wrapper) = host.wrapper.as_mut().filter(|it| it.busy.is_none() && has_exited) else {
            return;
        };
        wrapper.busy = Some(Busy::Exit);
        let number = wrapper.number();
        let is_forced = host.ended.as_ref().is_some_and(|ended| ended.facts.is_forced_by(number));
        let limit = match (host.leftovers && is_forced, self.random.percent(10)) {
            (true, _) => 10_000,
            (false, true) => 2_000,
            (false, false) => 5,
        };
        let (delay, until) = (self.random.millis(1, limit), Instant::now() + SHOWN_WITHIN);
        self.later(instance, delay, Happening::Host(Happens::ExitRead { wrapper: number, until }));
    }

    pub(super) fn exit_is_read(&mut self, instance: &str, number: u32, until: Instant) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let Some(child) = wrapper.supervision.state.child() else { return };
        let exit = match self.exit_of(instance, child) {
            Found::Exit(exit) => exit,
            Found::NotYet if Instant::now() >= until => Exit::Unknown,
            Found::NotYet => {
                let again = Happening::Host(Happens::ExitRead { wrapper: number, until });
                return self.later(instance, SHOWN_INTERVAL, again);
            }
            Found::Silent(at) => {
                let until = until.max(at + SHOWN_WITHIN);
                let again = Happening::Host(Happens::ExitRead { wrapper: number, until });
                return self.at(instance, at, again);
            }
        };
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let ended = host.ended.take_if(|ended| ended.facts.pid == child.pid());
        let is_forced = ended.as_ref().is_some_and(|ended| ended.facts.is_forced_by(number));
        if is_forced {
            // `Running::end`.
            host.leftovers = false;
        }
        let Some(wrapper) = &mut host.wrapper else { return };
        (wrapper.is_unsettled, wrapper.idle_since) = (true, Instant::now());
        wrapper.busy = None;
        let was_forced = wrapper.supervision.state.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
        let is_held = wrapper.held;
        self.check_exit_code(instance, child, exit);
        if is_held {
            self.unit_stop_by_wrapper(instance);
        }
        let _answer = self.handle(instance, Event::Exited(exit));
        // Before the requests that have waited: they concern the next runner.
        if let Some(host) = self.hosts.get_mut(instance) {
            host.promise.runner_ended();
            if host.saved_promise.accepted || host.saved_promise.leaving {
                host.saved_promise.runner_ended();
            }
        }
        if let Some(ended) = ended {
            self.check_outcome(instance, number, &ended, was_forced);
        }
        // It may be starting the next runner.
        if self.wrapper(instance, number).is_some_and(|wrapper| wrapper.busy.is_none()) {
            self.wrapper_is_free(instance, None);
        }
    }

    fn exit_of(&self, instance: &str, child: ChildInfo) -> Found {
        let Some(host) = self.hosts.get(instance) else { return Found::NotYet };
        let (pid, is_of_boot) = (child.pid(), child.process.boot == host.boot());
        match &host.owner {
            Owner::Child(_) => {
                let ended = host.ended.as_ref().filter(|ended| ended.facts.pid == pid);
                Found::Exit(ended.and_then(|ended| ended.exit).unwrap_or(Exit::Unknown))
            }
            Owner::Unit(unit) => match unit.exit_of(pid).filter(|_| is_of_boot) {
                Some(exit) => Found::Exit(exit),
                None => unit.silent_until().map_or(Found::NotYet, Found::Silent),
            },
        }
    }

    /// With a unit, an exit code is never unknown.
    fn check_exit_code(&mut self, instance: &str, child: ChildInfo, exit: Exit) {
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

    fn check_outcome(&mut self, instance: &str, number: u32, ended: &Ended, was_forced: bool) {
        let facts = &ended.facts;
        let Some(host) = self.hosts.get(instance) else { return };
        let (has_leftovers, lists_jobs) = (host.leftovers, host.setup.lists_jobs());
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
            // `docs/wrapper/draining.md`, "Outcome of a drain".
            (StopOutcome::ResultsLost, None) if facts.reported_late => {
                self.trace.count("limit: results_lost after the last attempt has succeeded");
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
        if was_forced && has_leftovers && !facts.is_forced_by(number) && facts.parent != Some(number) {
            self.trace.count("limit: processes of jobs are left: the wrapper was killed in a forceful stop");
        } else if was_forced && has_leftovers {
            self.violation(instance, "a forceful stop is over, and processes of jobs are left");
        }
    }
}
