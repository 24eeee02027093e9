//! The invariants of [`super::transition`] in random sequences of events, in which wrappers are also killed and replaced.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use super::{
    event::{Answer, Cancel, Context, Effect, Event, Refusal},
    moment::Moment,
    observation::{Observation, RequestsRead},
    policy::{MAX_RESTART_DELAY, Policy},
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
    /// The wrapper is killed during the next spawn: whether the process was made, and released from the exec barrier.
    killed_at_spawn: Option<(bool, bool)>,
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
            killed_at_spawn: None,
            killed_at_signal: None,
            callbacks: HashMap::new(),
            left: false,
            refuses_signal: false,
        }
    }

    fn happen(&mut self, happening: &RandomEvent) {
        match *happening {
            RandomEvent::Boot => self.ignore(&Event::Boot),
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
            RandomEvent::Adopt { dies } => self.adopt(dies),
            RandomEvent::Upgrade => self.upgrade(),
            RandomEvent::KilledAtSignal { sent } => self.killed_at_signal = Some(sent),
            RandomEvent::SpawnFails => self.spawn_fails = true,
            RandomEvent::KilledDuringSpawn { forked, released } => {
                self.killed_at_spawn = Some((forked, released));
            }
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

    /// As the task does: no other event comes in between, but the wrapper can be killed.
    fn spawn(&mut self) {
        assert!(self.child.is_none(), "a second child");
        let info = aged(self.now, Duration::ZERO);
        let (forked, released) = match self.killed_at_spawn.take() {
            None if mem::take(&mut self.spawn_fails) => {
                return self.ignore(&Event::SpawnFailed(Arc::from("no")));
            }
            None => {
                self.born();
                self.ignore(&Event::Forked(info));
                return self.ignore(&Event::Spawned(info));
            }
            Some(killed) => killed,
        };
        if forked {
            self.ignore(&Event::Forked(info));
            if released {
                self.born();
            }
        }
        self.adopt(false);
    }

    fn born(&mut self) {
        self.child = Some(Child::born(self.now));
    }

    /// As a wrapper does that finds a state file: see [`crate::supervise::record`] and `Task::resume`.
    fn adopt(&mut self, dies: bool) {
        if self.left {
            // It ended in good order, and leaves nothing to take up.
            return;
        }
        if dies {
            self.child = None;
        }
        let lives = self.child.is_some();
        let (before, read) = self.saved();
        let next = read.adopted(lives, self.now, &self.policy);

        let asked = before.state.stop().filter(|stop| lives || stop.id != StopId::Signal);
        let kept = next.state.stop();
        assert_eq!(asked.map(|stop| &stop.id), kept.map(|stop| &stop.id));
        if let (Some(asked), Some(kept)) = (asked, kept) {
            let mode = if lives && asked.is_late(self.now) { Mode::Forceful } else { asked.mode };
            assert_eq!((mode, &asked.callbacks), (kept.mode, &kept.callbacks), "another stop");
            assert_eq!(asked.deadline.is_some(), kept.deadline.is_some(), "the deadline is lost");
        }
        assert_eq!(next.state.child().is_some(), lives, "the child is lost, or made up");
        assert_eq!(next.leaving, before.leaving && lives, "a shutdown is finished");

        if let Some(child) = &mut self.child {
            child.signals.retain(|(signal, _)| *signal != Signal::Drain);
        }
        self.continue_with(next);
        self.ignore(&Event::Boot);
    }

    /// As a wrapper does after an upgrade in place.
    fn upgrade(&mut self) {
        if !self.left {
            let (before, read) = self.saved();
            let next = read;
            assert_eq!(before.state.public(), next.state.public());
            self.continue_with(next);
            self.ignore(&Event::Boot);
        }
    }

    /// The present state, and what the state file has of it.
    fn saved(&mut self) -> (Supervision, Supervision) {
        let before = mem::take(&mut self.supervision);
        let read = serde_json::from_slice(&serde_json::to_vec(&before).unwrap()).unwrap();
        (before, read)
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
            self.ignore(&exited(exit));
            self.child = None;
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
            self.adopt(false);
            return step.answer;
        }
        self.supervision = step.next;
        let mut follow_up = None;
        let mut spawns = false;
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
        step.answer
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
            Effect::ReadLog(_) | Effect::Count(_) => {}
            Effect::Leave => self.left = true,
        }
    }

    fn check(&self) {
        match &self.supervision.state {
            State::Exited { .. } | State::Backoff { .. } | State::Idle | State::Starting { .. } => {}
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
                State::Backoff { .. } => {
                    self.pass(MAX_RESTART_DELAY);
                    self.spawn_fails = false;
                }
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
    /// stopped if a stop was requested. If the wrapper is killed, no child, stop, deadline or callback is lost.
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
