//! The shell around the core of a wrapper: `supervise::Task`, in the same order.
//!
//! Its task handles one event at a time, to the end of its effects. Three things take time, in which everything else waits in its queue: the start of
//! the runner (`Owner::start`), the end of an exited runner (`Owner::news`), and a slow write of the state file.

use std::collections::VecDeque;

use grit_wrapper::{
    supervise::{
        Answer, Context, Effect, Event, Mode, Moment, Policy, Refusal, State, Step, Stop, StopOutcome,
        Supervision,
    },
    testing,
};
use tokio::time::{Duration, Instant};

use super::{
    super::world::{Happening, Inner},
    Wrapper,
    file::File::Saved,
    names::{event_name, state_name},
    probe::Eyes,
    promise::Request,
    table,
};

const NO_SPACE: &str = "no space left on device";

/// `record::recorder::RETRY_DELAY`.
pub(super) const SAVE_AGAIN: Duration = Duration::from_secs(1);

/// The wrapper was killed.
pub(crate) struct Killed;

/// What the task of the wrapper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    Start,
    Exit,
    /// A slow write of the state file: before a signal, or in the wait for a gap.
    Write,
    /// The same with a runner that was started, which the file has at the end.
    FirstWrite,
}

/// Who reports to the task, besides the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Requests,
    Probe,
}

/// What one transition has led to.
struct Done {
    answer: Result<Answer, Refusal>,
    leaves: bool,
}

impl Inner {
    pub(crate) fn wrapper(&mut self, instance: &str, number: u32) -> Option<&mut Wrapper> {
        self.hosts.get_mut(instance)?.wrapper.as_mut().filter(|wrapper| wrapper.number == number)
    }

    pub(crate) fn wrapper_tick(&mut self, instance: &str, number: u32) {
        let due = self.wrapper(instance, number).and_then(|wrapper| wrapper.supervision.due());
        if due.is_some_and(|due| due <= Instant::now()) {
            let _answer = self.deliver(instance, Event::Tick);
        }
    }

    pub(crate) fn wrapper_saves_again(&mut self, instance: &str, number: u32) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        wrapper.saves_again = false;
        self.save(instance);
        if self.survives(instance).is_err() {
            self.kill_wrapper(instance, "is killed while it saves again");
        }
    }

    /// An event of the wrapper, and those that its effects lead to. It waits while the task is busy.
    pub(crate) fn deliver(&mut self, instance: &str, event: Event) -> Result<Answer, Refusal> {
        let Some(host) = self.hosts.get_mut(instance) else { return Err(Refusal::Leaving) };
        let Some(wrapper) = &mut host.wrapper else { return Err(Refusal::Leaving) };
        if wrapper.busy.is_some() {
            // A timer does not wait: the task looks at it when it is free.
            if event != Event::Tick {
                // Of these reports, the task takes the latest only.
                let report = |event: &Event| match event {
                    Event::JobRequests(..) | Event::RequestsCancelled(..) => Some(Report::Requests),
                    Event::Observed(..) => Some(Report::Probe),
                    _ => None,
                };
                let of_event = report(&event);
                wrapper.waiting.retain(|waiting| of_event.is_none() || report(waiting) != of_event);
                wrapper.waiting.push_back(event);
                self.trace.count("event waits for the wrapper's task");
            }
            return Ok(Answer::Done);
        }
        if event != Event::Tick && self.ticks_first(instance) {
            return self.deliver(instance, event);
        }
        let answer = self.handle(instance, event);
        self.notice_exit(instance);
        answer
    }

    /// The timer comes before requests and probes, and only the exit before the timer (`Task::wait`). Returns whether it was due.
    fn ticks_first(&mut self, instance: &str) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let due = wrapper.and_then(|wrapper| wrapper.supervision.due());
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due {
            let _answer = self.handle(instance, Event::Tick);
        }
        is_due
    }

    /// The task is free again: what has waited follows.
    pub(crate) fn wrapper_is_free(&mut self, instance: &str, first: Option<Event>) {
        let Some(wrapper) = self.hosts.get_mut(instance).and_then(|host| host.wrapper.as_mut()) else {
            return;
        };
        wrapper.busy = None;
        let number = wrapper.number;
        if let Some(host) = self.hosts.get_mut(instance) {
            host.free_since = Some(Instant::now());
        }
        if let Some(first) = first {
            let _answer = self.handle(instance, first);
        }
        // The exit comes first (`Task::wait`).
        self.notice_exit(instance);
        while let Some(wrapper) = self.wrapper(instance, number)
            && wrapper.busy.is_none()
            && !wrapper.waiting.is_empty()
        {
            if !self.ticks_first(instance)
                && let Some(wrapper) = self.wrapper(instance, number)
                && let Some(event) = wrapper.waiting.pop_front()
            {
                let _answer = self.handle(instance, event);
            }
        }
        if let Some(host) = self.hosts.get(instance).filter(|host| !host.is_busy()) {
            host.queue.wake();
            self.schedule(instance);
        }
    }

    pub(super) fn handle(&mut self, instance: &str, event: Event) -> Result<Answer, Refusal> {
        let (mut events, mut answer, mut leaves) = (VecDeque::from([(event, true)]), None, false);
        while let Some((event, is_request)) = events.pop_front() {
            match self.transition(instance, event, &mut events) {
                Ok(done) => {
                    if is_request {
                        answer = Some(done.answer);
                    }
                    leaves |= done.leaves;
                }
                Err(Killed) => return self.killed_at_work(instance),
            }
        }
        if !self.is_busy_with(instance, Busy::FirstWrite) {
            self.save(instance);
        }
        if self.survives(instance).is_err() {
            return self.killed_at_work(instance);
        }
        self.changed(instance);
        self.schedule(instance);
        if let Some(host) = self.hosts.get_mut(instance) {
            host.is_answered = true;
        }
        if leaves {
            self.wrapper_leaves(instance);
        }
        self.meet_aims(instance);
        answer.unwrap_or(Ok(Answer::Done))
    }

    fn killed_at_work(&mut self, instance: &str) -> Result<Answer, Refusal> {
        self.kill_wrapper(instance, "is killed in the middle of its work");
        Err(Refusal::Leaving)
    }

    fn transition(
        &mut self,
        instance: &str,
        event: Event,
        events: &mut VecDeque<(Event, bool)>,
    ) -> Result<Done, Killed> {
        let is_spawned = matches!(event, Event::Spawned(_));
        let (effects, answer) = self.step(instance, event);
        self.survives(instance)?;
        let mut done = Done { answer, leaves: effects.contains(&Effect::Leave) };
        let slow = match effects[..] {
            [Effect::Save] if is_spawned => Some((Busy::FirstWrite, None)),
            [Effect::Save, Effect::Signal(signal)] => Some((Busy::Write, Some(signal))),
            [Effect::Save] if self.awaits_gap(instance) => Some((Busy::Write, None)),
            _ => None,
        };
        if let Some((busy, signal)) = slow
            && self.writes_slowly(instance, busy, signal)
        {
            if busy == Busy::Write {
                self.save(instance);
                self.survives(instance)?;
            }
            return Ok(done);
        }
        for effect in effects {
            match effect {
                Effect::Save => self.save(instance),
                Effect::Spawn => self.spawn(instance, events)?,
                Effect::Look(request) => match self.looks_for_runner(instance, *request)? {
                    Ok(found) => events.extend(found),
                    Err(refusal) => done.answer = Err(refusal),
                },
                Effect::Signal(signal) => {
                    let event = self.signalled(instance, signal);
                    events.push_back((event, false));
                }
                Effect::Callback(callback) => self.send_callback(instance, callback),
                // What people read of the log decides nothing.
                Effect::Leave | Effect::Count(_) | Effect::Exited(..) | Effect::ReadLog(_) => {}
            }
            self.survives(instance)?;
        }
        Ok(done)
    }

    pub(super) fn is_busy_with(&self, instance: &str, busy: Busy) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        wrapper.is_some_and(|wrapper| wrapper.busy == Some(busy))
    }

    fn awaits_gap(&self, instance: &str) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        wrapper.is_some_and(|wrapper| wrapper.supervision.awaits_gap())
    }

    /// The wrapper may be killed here.
    pub(crate) fn survives(&mut self, instance: &str) -> Result<(), Killed> {
        let Some(host) = self.hosts.get_mut(instance) else { return Err(Killed) };
        match &mut host.kill_in {
            Some(0) => Err(Killed),
            Some(steps) => {
                *steps -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// One transition, which must be in the table.
    pub(crate) fn step(&mut self, instance: &str, event: Event) -> (Vec<Effect>, Result<Answer, Refusal>) {
        let nothing = (Vec::new(), Ok(Answer::Done));
        let Some(host) = self.hosts.get_mut(instance) else { return nothing };
        let Some(wrapper) = &mut host.wrapper else { return nothing };
        let (name, row_name) = (event_name(&event), table::event_row(&event));
        let (request, is_leave) = (Request::of(&event), is_leave(&event));
        let before = std::mem::take(&mut wrapper.supervision);
        let earlier = before.state.clone();
        let Step { next, effects, answer } = before.on(event, Context::new(Moment::now(), &host.policy));
        // It has no answer before it is known whether there is a runner.
        let is_open = effects.iter().any(|effect| matches!(effect, Effect::Look(_)));
        let request = if is_open { Request::None } else { request };
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
        host.promise.answered(&request, &answer, is_leave);
        host.is_answered = false;
        wrapper.supervision = next;
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
        (effects, answer)
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

    /// `Task::save`. The wrapper may be killed in it, which [`Self::survives`] shows.
    pub(crate) fn save(&mut self, instance: &str) {
        let Some(wrapper) = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref()) else { return };
        let held = testing::is_held(&wrapper.supervision);
        self.note_force(instance);
        let unwritten = self.write(instance);
        if self.survives(instance).is_err() {
            return;
        }
        let open = self.hold(instance, held);
        if unwritten.is_some() || open.is_some() {
            self.save_later(instance);
        }
        let error = unwritten.or(open);
        let Some(wrapper) = self.hosts.get_mut(instance).and_then(|host| host.wrapper.as_mut()) else {
            return;
        };
        if wrapper.supervision.save_error != error {
            let is_answered = self.hosts.get(instance).is_some_and(|host| host.is_answered);
            let _nothing = self.step(instance, Event::Saved(error));
            if let Some(host) = self.hosts.get_mut(instance) {
                host.is_answered = is_answered;
            }
        }
    }

    /// As `Recorder::save`: only a change is written, and a failed write is repeated.
    fn write(&mut self, instance: &str) -> Option<std::sync::Arc<str>> {
        let host = self.hosts.get_mut(instance)?;
        let works = host.file_works();
        let wrapper = host.wrapper.as_mut()?;
        if wrapper.written.as_ref() == Some(&wrapper.supervision) && host.file.exists() {
            host.saved_promise = host.promise.clone();
            None
        } else if works {
            let supervision = wrapper.supervision.clone();
            wrapper.written = Some(supervision.clone());
            let file = Saved(Box::new(supervision));
            host.older_file = std::mem::replace(&mut host.file, file);
            host.file_lost = None;
            host.saved_promise = host.promise.clone();
            if let Some(facts) = &mut host.facts {
                facts.observed_saved = facts.observed;
            }
            None
        } else {
            wrapper.written = None;
            Some(NO_SPACE.into())
        }
    }

    fn save_later(&mut self, instance: &str) {
        let number = self.number(instance);
        if let Some(wrapper) = self.wrapper(instance, number)
            && !std::mem::replace(&mut wrapper.saves_again, true)
        {
            self.later(instance, SAVE_AGAIN, Happening::SaveAgain { wrapper: number });
        }
    }

    /// `Owner::force`.
    fn note_force(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = &host.wrapper else { return };
        let state = &wrapper.supervision.state;
        let is_forced = state.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
        if let (Some(facts), Some(child)) = (&mut host.facts, state.child().filter(|_| is_forced))
            && facts.pid == child.pid()
        {
            facts.forced_by = Some(wrapper.number);
        }
    }

    pub(super) fn number(&self, instance: &str) -> u32 {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        wrapper.map_or(0, |wrapper| wrapper.number)
    }

    /// The timers of the wrapper after an event.
    pub(crate) fn schedule(&mut self, instance: &str) {
        let Some(wrapper) = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref()) else { return };
        let (number, due) = (wrapper.number, wrapper.supervision.due());
        if let Some(due) = due {
            self.at(instance, due, Happening::Tick { wrapper: number });
        }
        self.wrapper_looks(instance);
        self.schedule_look(instance);
    }
}

fn is_leave(event: &Event) -> bool {
    match event {
        Event::Leave(_) => true,
        Event::Looked(request) => is_leave(request),
        _ => false,
    }
}

impl Wrapper {
    /// Its state as the table names it, and when its timer is due.
    pub(super) fn table_state(&self, policy: &Policy) -> Option<(&'static str, Option<Instant>)> {
        Some((table::variant(&self.supervision.state, policy)?, self.supervision.due()))
    }

    pub(in crate::simulation) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn new(number: u32, supervision: Supervision, last_known: Option<u32>, eyes: Eyes) -> Self {
        Self {
            number,
            is_exec_stop: false,
            held: false,
            is_unsettled: true,
            last_known,
            look: 0,
            idle_since: Instant::now(),
            supervision,
            eyes,
            saves_again: false,
            written: None,
            busy: None,
            waiting: VecDeque::new(),
            signalled: None,
        }
    }
}
