//! The invariants of [`super::transition`] in random sequences of events, in which wrappers are also killed and replaced.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use super::{
    event::{Answer, Cancel, Context, Effect, Event, Refusal},
    moment::Moment,
    observation::{Observation, RequestsRead},
    policy::Policy,
    random_event::{RandomEvent, policies},
    simulated_child::Child,
    state::{Phase, State, Supervision},
    stop::{Mode, Stop, StopId},
    table_tests::{SECOND, aged, callback, check_step, exited},
};
use crate::supervise::process::{Exit, Signal};
use proptest::prelude::*;

/// The table, with a simulated child and the record of everything that was done to it.
struct Simulation {
    policy: Policy,
    now: Moment,
    supervision: Supervision,
    /// The child, while its process exists.
    child: Option<Child>,
    spawn_fails: bool,
    /// systemd has started the child, and the wrapper has not seen it yet.
    is_unseen: bool,
    /// The wrapper is killed at the next signal: whether it was sent.
    killed_at_signal: Option<bool>,
    /// Unfinished callbacks that a stop of the present child was accepted with, and how often each was made.
    callbacks: HashMap<u8, (bool, u32)>,
    left: bool,
    refuses_signal: bool,
}

impl Simulation {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Moment::now(),
            supervision: Supervision::default(),
            child: None,
            spawn_fails: false,
            is_unseen: false,
            killed_at_signal: None,
            callbacks: HashMap::new(),
            left: false,
            refuses_signal: false,
        }
    }

    fn happen(&mut self, happening: &RandomEvent) {
        match *happening {
            RandomEvent::Boot => self.boot(),
            RandomEvent::Start => {
                if self.tell(&Event::Start) == Ok(Answer::Done) {
                    self.callbacks.clear();
                }
            }
            RandomEvent::Stop { mode, deadline, callback: name } => {
                let deadline = deadline.map(|tenths| self.now + SECOND * u32::from(tenths) / 10);
                let callbacks = name.map(callback).into_iter().collect();
                if let Some(name) = name {
                    self.callbacks.entry(name).or_default().0 = true;
                }
                self.tell(&Event::Stop(Stop { deadline, callbacks, ..Stop::new("test", mode) })).unwrap();
            }
            RandomEvent::Cancel => {
                if self.tell(&Event::Cancel(Cancel::default())).is_ok() {
                    let told = self.child.as_ref().is_some_and(|child| child.last_quit.is_some());
                    assert!(!told, "a child that drains is said to run");
                    self.callbacks.clear();
                }
            }
            RandomEvent::Reload => self.ignore(&Event::Reload),
            RandomEvent::Leave => self.ignore(&Event::Leave(Stop::new("signal", Mode::Graceful))),
            RandomEvent::Called => {
                let made = |(name, (_, made)): (&u8, &(bool, u32))| (*made > 0).then_some(*name);
                let made: Vec<_> = self.callbacks.iter().filter_map(made).collect();
                for name in made {
                    // A stop with the same callback sends it again.
                    self.callbacks.remove(&name);
                    self.ignore(&Event::CallbackFinished(callback(name)));
                }
            }
            RandomEvent::Crash(code) => self.end(Exit::Code(code.into())),
            RandomEvent::JobRequests(open) => {
                if let Some(child) = self.supervision.state.child() {
                    self.ignore(&Event::JobRequests(
                        child,
                        RequestsRead { ended: self.now, open, may_begin: false },
                    ));
                }
            }
            RandomEvent::Wait(tenths) => self.pass(SECOND * u32::from(tenths) / 10),
            RandomEvent::UntilDue => {
                if let Some(due) = self.supervision.due() {
                    self.pass(due.saturating_duration_since(self.now.at));
                }
            }
            RandomEvent::LogRead => self.ignore(&Event::LogRead(Arc::from("why"))),
            RandomEvent::SignalRefused => self.refuses_signal = true,
            RandomEvent::Killed { dies } => self.killed(dies),
            RandomEvent::UnitStarts { seen } => self.unit_starts(seen),
            RandomEvent::KilledAtSignal { sent } => self.killed_at_signal = Some(sent),
            RandomEvent::SpawnFails => self.spawn_fails = true,
            RandomEvent::Aborts => {
                if let (Some(info), Some(child)) = (self.supervision.state.child(), &mut self.child) {
                    child.aborts = true;
                    self.ignore(&Event::Observed(
                        info,
                        Observation { aborts_jobs: true, ..Observation::default() },
                    ));
                }
            }
            RandomEvent::Saved(written) => self.ignore(&Event::Saved((!written).then(|| "no space".into()))),
        }
    }

    /// Only a wrapper that is the parent starts the first child itself.
    fn boot(&mut self) {
        if !self.policy.by_unit {
            self.ignore(&Event::Boot);
        }
    }

    /// As the task does: no other event comes in between.
    fn spawn(&mut self) {
        if mem::take(&mut self.spawn_fails) {
            return self.ignore(&Event::SpawnFailed(Arc::from("no")));
        }
        // `systemctl start` of a unit that runs finds its process.
        if !mem::take(&mut self.is_unseen) {
            assert!(self.child.is_none(), "a second child");
            self.child = Some(Child::born(self.now));
        }
        self.ignore(&Event::Spawned(aged(self.now, Duration::ZERO)));
    }

    fn unit_starts(&mut self, seen: bool) {
        // The file that closes the unit follows the state.
        if self.policy.by_unit && !self.left && self.child.is_none() && !self.supervision.is_held() {
            self.child = Some(Child::born(self.now));
            self.is_unseen = true;
            if seen {
                self.see();
            }
        }
    }

    fn see(&mut self) {
        if mem::take(&mut self.is_unseen) {
            self.ignore(&Event::Appeared(aged(self.now, Duration::ZERO)));
        }
    }

    /// As a wrapper does that finds a state file: see [`crate::supervise::record`] and `Task::resume`.
    fn killed(&mut self, dies: bool) {
        if self.left {
            // It ended in good order, and leaves nothing to take up.
            return;
        }
        let before = mem::take(&mut self.supervision);
        let read: Supervision = serde_json::from_slice(&serde_json::to_vec(&before).unwrap()).unwrap();
        let next = if self.policy.by_unit {
            read.continued(self.now, &self.policy)
        } else {
            read.of_killed_parent(self.now, &self.policy)
        };
        let asked = before.state.stop().filter(|stop| stop.id != StopId::Signal);
        if let Some(asked) = asked {
            let kept = next.state.stop().expect("the stop of a client is lost");
            let is_over = matches!(before.state, State::Exited { .. });
            let mode = if !is_over && asked.is_late(self.now) { Mode::Forceful } else { asked.mode };
            assert_eq!((&asked.id, mode, &asked.callbacks), (&kept.id, kept.mode, &kept.callbacks));
            assert_eq!(asked.deadline.is_some(), kept.deadline.is_some(), "the deadline is lost");
        }
        // The state file has milliseconds.
        let process = |state: &State| state.child().map(|child| child.process);
        assert_eq!(process(&next.state), process(&before.state), "the child is lost, or made up");
        assert!(!next.leaving);
        if let Some(child) = &mut self.child {
            child.signals.retain(|(signal, _)| *signal != Signal::Drain);
            if !self.policy.by_unit {
                // The kernel has sent it.
                child.last_quit = Some(self.now);
            }
        }
        let has_child = next.state.child().is_some();
        self.continue_with(next);
        if dies && has_child {
            self.end(Exit::Code(0));
        }
        self.boot();
    }

    fn continue_with(&mut self, next: Supervision) {
        for (_, made) in self.callbacks.values_mut() {
            // Whether it was made is not known, and better twice than never.
            *made = 0;
        }
        self.supervision = next;
        for callback in self.supervision.state.due_callbacks().to_vec() {
            self.perform(Effect::Callback(callback));
        }
    }

    fn end(&mut self, exit: Exit) {
        if self.child.is_some() {
            // It never was the child of the wrapper, which sees the next one.
            self.child = None;
            if !mem::take(&mut self.is_unseen) {
                self.ignore(&exited(exit));
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        if self.supervision.due().is_some_and(|due| due <= self.now.at) {
            self.ignore(&Event::Tick);
        }
    }

    fn tell(&mut self, event: &Event) -> Result<Answer, Refusal> {
        let before = self.supervision.clone();
        let step = before.clone().on(event.clone(), Context::new(self.now, &self.policy));
        check_step(&before, event, &step, &self.policy, &format_args!("{before:?} + {event:?}"));
        let signal = step.effects.iter().find(|effect| matches!(effect, Effect::Signal(_)));
        if let (Some(sent), Some(signal)) = (self.killed_at_signal, signal.cloned()) {
            self.killed_at_signal = None;
            if sent {
                self.perform(signal);
            }
            // In a gap between job requests, the signal comes before the state file.
            let is_gap = matches!(event, Event::JobRequests(..));
            self.supervision = if is_gap { before } else { step.next };
            self.killed(false);
            return step.answer;
        }
        self.supervision = step.next;
        let mut follow_up = None;
        let (mut spawns, mut looks) = (false, None);
        for effect in step.effects {
            match effect {
                Effect::Signal(signal) if mem::take(&mut self.refuses_signal) => {
                    follow_up = Some(Event::SignalRefused(signal, Arc::from("not permitted")));
                }
                Effect::Signal(signal) => {
                    self.perform(Effect::Signal(signal));
                    follow_up = Some(Event::SignalSent(signal));
                }
                Effect::Spawn => spawns = true,
                Effect::Look(request) => looks = Some(*request),
                effect => self.perform(effect),
            }
        }
        self.check();
        if let Some(event) = follow_up {
            self.ignore(&event);
        }
        if spawns {
            self.spawn();
        }
        match looks {
            Some(request) if self.is_unseen => {
                self.see();
                self.tell(&request)
            }
            Some(request) => self.tell(&Event::Looked(Box::new(request))),
            None => step.answer,
        }
    }

    /// Also checks which requests may be refused.
    fn ignore(&mut self, event: &Event) {
        let _answer = self.tell(event);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn => unreachable!(),
            Effect::Signal(signal) => {
                let child = self.child.as_mut().expect("a signal to nobody");
                child.takes(signal, self.now, &self.policy);
            }
            Effect::Callback(made) => {
                let name = (0..4).find(|name| callback(*name) == made).unwrap();
                self.callbacks.get_mut(&name).expect("a callback that nobody asked for").1 += 1;
            }
            Effect::Save | Effect::Look(_) | Effect::ReadLog(_) | Effect::Count(_) | Effect::Exited(..) => {}
            Effect::Leave => self.left = true,
        }
    }

    fn check(&self) {
        let is_over = matches!(self.supervision.state, State::Exited { .. });
        assert!(!is_over || !self.supervision.is_held() || self.child.is_none(), "it runs after its drain");
        match &self.supervision.state {
            State::Exited { .. } | State::Backoff { .. } | State::Idle | State::Starting => {}
            State::Running { .. } | State::Stopping { .. } => assert!(self.child.is_some()),
        }
        assert!(self.callbacks.values().all(|(_, made)| *made <= 1), "a callback was made twice");
    }

    /// Advances the time until the state no longer changes. The child finishes its jobs, and exits when it is killed.
    fn settle(&mut self) {
        for _ in 0..32 {
            match &self.supervision.state {
                State::Stopping { phase: Phase::Draining { .. }, stop, .. } => match stop.deadline {
                    // Its jobs take longer than that.
                    Some(deadline) => self.pass(deadline.since(self.now)),
                    None => {
                        let ends = |child: &Child| child.last_quit.is_some() || child.aborts;
                        assert!(self.child.as_ref().is_some_and(ends), "it received no SIGQUIT");
                        self.end(Exit::Code(0));
                    }
                },
                State::Stopping { phase: Phase::Killed, .. } => {
                    assert!(self.child.as_ref().is_some_and(|child| child.killed), "nobody killed it");
                    self.end(Exit::Signal(9));
                }
                _ if self.is_unseen => self.see(),
                State::Backoff { .. } => self.unit_starts(true),
                _ => match self.supervision.due() {
                    Some(due) => self.pass(due.saturating_duration_since(self.now.at)),
                    None => return,
                },
            }
        }
        panic!("stuck: {:?}", self.supervision);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: grit_testkit::rounds(50_000, 1_000_000), failure_persistence: None, ..ProptestConfig::default() })]

    /// Random sequences of events. Terminal states are final. SIGTERM is sent at most once, and no signal but SIGKILL follows it. No second
    /// child, no repeated or unrequested callback, no signal that is too early. Without further events each sequence reaches a final state,
    /// stopped if a stop was requested. If the wrapper is killed, no child, stop, deadline or callback is lost. A drained child does not run again
    /// before a request, whatever systemd starts.
    ///
    /// A client that disconnects is not an event: its request is in the queue, and the response is dropped.
    #[test]
    fn random_event_sequences_keep_invariants(policy in policies(), life in prop::collection::vec(any::<u32>(), 1..20)) {
        let mut world = Simulation::new(policy);
        for number in life {
            world.happen(&RandomEvent::from_number(number));
        }
        world.settle();
        let state = &world.supervision.state;
        prop_assert!(
            matches!(state, State::Idle | State::Running { .. } | State::Exited { .. }),
            "came to rest in {state:?}"
        );
        let stopped = matches!(state, State::Exited { .. });
        prop_assert_eq!(stopped, world.child.is_none() && *state != State::Idle);
        prop_assert!(!world.supervision.leaving || world.left, "asked to leave, and still there");
        for (name, (asked, made)) in &world.callbacks {
            prop_assert!(!(*asked && stopped) || *made == 1, "callback {} asked for and not made", name);
        }
    }
}
