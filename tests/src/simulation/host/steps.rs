//! What the model learns of each transition of a wrapper's supervisor, and what must hold then.

use std::time::Duration;

use grit_wrapper::{
    supervise::{Effect, Event, Mode, State, Step, Stop, StopOutcome},
    testing::is_held,
};
use tokio::time::Instant;

use super::{
    super::world::Inner,
    names::{event_name, state_name},
    program::{Killed, OfDrain},
    promise::Request,
    table,
};

/// A late request is handled soon after its arrival.
const LATE: Duration = Duration::from_secs(30);

impl Inner {
    /// A transition of the wrapper with this number, before its effects.
    pub(super) fn stepped(&mut self, instance: &str, number: u32, event: &Event, step: &Step) {
        if let Err(Killed) = self.operates(instance, number) {
            return;
        }
        let is_accepted = step.answer.is_ok();
        self.received(instance, event, is_accepted);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = &mut host.wrapper else { return };
        let (name, row_name) = (event_name(event), table::event_row(event));
        let Step { next, effects, answer } = step;
        let earlier = std::mem::replace(&mut wrapper.supervision, next.clone()).state;
        // It has no answer before it is known whether there is a runner.
        let is_open = effects.iter().any(|effect| matches!(effect, Effect::Look(_)));
        let request = if is_open { Request::None } else { Request::of(event) };
        let (from, to) = (state_name(&earlier), state_name(&next.state));
        let public = (earlier.public().name(), next.state.public().name());
        let host_name = host.name.clone();
        let row = table::row(&earlier, row_name, &next.state, &host.policy, answer.is_err(), is_open);
        if let Request::Stop { is_of_client: true, .. } = request
            && answer.is_ok()
        {
            host.forgotten = None;
            host.is_drained = host.runner.is_none();
        }
        if answer.is_ok() && !matches!(request, Request::None) {
            host.is_answered = false;
            self.answers_later(instance, number);
        }
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.promise.answered(&request, answer, is_leave(event));
        if let (Some(stop), false, true) = (stop_of(event), is_open, answer.is_ok()) {
            let pid = host.runner.as_ref().map(|runner| runner.pid);
            host.callbacks.extend(stop.callbacks.iter().map(|it| OfDrain::new(it.clone(), pid)));
        }
        if matches!(request, Request::Cancel) && answer.is_ok() {
            host.callbacks.clear();
        }
        host.free_since = Some(Instant::now());
        let is_saved = host.wrapper.as_ref().is_some_and(|wrapper| wrapper.written.as_ref() == Some(next));
        if is_saved && host.file.exists() {
            host.saved_promise = host.promise.clone();
        }
        if !is_held(next)
            && let Some(unit) = host.unit()
        {
            unit.open_by_fault = None;
        }
        self.requested(instance, &request, answer.is_ok());
        self.note_outcome(instance, &earlier);
        if public.0 != public.1 {
            self.traces.add_state(&host_name, format!("{} -> {}", public.0, public.1));
        }
        self.trace.count(format!("{from} + {name} -> {to}"));
        if from != to {
            self.log(instance, format!("wrapper: {from} -> {to} ({name})"));
        }
        if let Some(row) = row {
            self.trace.count(row.name);
            if let Some(unexpected) = row.unexpected {
                self.violation(instance, format!("no row of the table: {unexpected}"));
            }
        }
        self.noted(instance, number, event, &earlier);
        self.reads_follow(instance);
        self.meet_aims(instance);
    }

    /// A request of a provider process is handled.
    fn received(&mut self, instance: &str, event: &Event, is_accepted: bool) {
        match event {
            Event::Stop(stop) => {
                let number = stop.requested_by.strip_prefix("uid ").and_then(|rest| rest.split(',').next());
                let wire = number.and_then(|number| self.connections.get(&number.parse().ok()?)).cloned();
                let Some(wire) = wire else { return };
                let is_forceful = stop.mode == Mode::Forceful;
                wire.origin.sends_drain(self, instance, &wire.address, is_forceful);
                self.excuses.remove(instance);
                if is_accepted {
                    self.accepted(instance, is_forceful);
                }
            }
            Event::Start if is_accepted => {
                let Some(host) = self.hosts.get(instance) else { return };
                let is_late = host.late_at.is_some_and(|at| at.elapsed() < LATE);
                if is_late && host.promise.accepted {
                    self.excuses.insert(instance.to_owned(), "a request to start its runner was late");
                }
            }
            _ => {}
        }
    }

    /// What the supervisor has learned.
    fn noted(&mut self, instance: &str, number: u32, event: &Event, earlier: &State) {
        match event {
            Event::JobRequests(_, read) => self.requests_reported(instance, *read),
            Event::RequestsCancelled(..) => self.trace.count("reads after SIGQUIT show its effect"),
            Event::Appeared(child) => {
                let pid = child.pid();
                if let Some(facts) = self.facts(instance, pid) {
                    facts.watched_since = Instant::now();
                } else {
                    self.trace.count("the exit of a runner that was never seen is reported");
                }
            }
            Event::Exited(exit) => {
                let Some(child) = earlier.child() else { return };
                let Some(host) = self.hosts.get_mut(instance) else { return };
                let ended = host.ended.take_if(|ended| ended.pid() == child.pid());
                let was_forced = earlier.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
                self.check_exit_code(instance, child, *exit);
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
            }
            _ => {}
        }
    }

    fn note_outcome(&mut self, instance: &str, earlier: &State) {
        let Some(host) = self.hosts.get(instance) else { return };
        let Some(wrapper) = &host.wrapper else { return };
        let is_new = |stop: &&Stop| earlier.stop().and_then(|before| before.outcome) != stop.outcome;
        let outcome = wrapper.supervision.state.stop().filter(is_new).and_then(|stop| stop.outcome);
        if outcome == Some(StopOutcome::NoRunner)
            && let Some(runner) = &host.runner
        {
            let what = format!("the outcome is no_runner while runner {} runs", runner.pid);
            return self.violation(instance, what);
        }
        // Otherwise it is `clean; open requests unknown`: `docs/wrapper/draining.md`, "Outcome of a drain".
        let is_known =
            |stop: &&Stop| stop.outcome == Some(StopOutcome::Clean) && stop.open_requests.is_some();
        if let State::Stopping { child, .. } = earlier
            && wrapper.supervision.state.stop().filter(is_known).is_some()
        {
            self.gitlab.clean.insert(child.pid());
            self.check_clean(instance, child.pid());
        }
    }
}

/// The stop that it requests.
fn stop_of(event: &Event) -> Option<&Stop> {
    match event {
        Event::Stop(stop) | Event::Leave(stop) => Some(stop),
        Event::Looked(request) => stop_of(request),
        _ => None,
    }
}

fn is_leave(event: &Event) -> bool {
    match event {
        Event::Leave(_) => true,
        Event::Looked(request) => is_leave(request),
        _ => false,
    }
}
