//! The invariants of [`super::table`] in random sequences of events, in which wrappers are also killed and replaced.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::Instant;

use super::{
    event::{Answer, Context, Effect, Event, Refusal},
    policy::{Policy, Restart, RestartWhen},
    process::{Exit, Identity, Signal},
    random_event::RandomEvent,
    record::handed_over,
    state::{LastLines, Phase, State, Supervision},
    stop::{Mode, Stop, StopId},
    table_tests::{PID, SECOND, callback, check_step},
};

/// The table, with a simulated child and the record of everything that was done to it.
struct Simulation {
    policy: Policy,
    now: Instant,
    supervision: Supervision,
    /// The child, while its process exists.
    child: Option<Child>,
    /// Number of events until the spawn in progress has its result.
    spawning: Option<u8>,
    spawn_takes: u8,
    spawn_fails: bool,
    /// Callbacks that a stop of the present child was accepted with, and how often each was made.
    callbacks: HashMap<u8, (bool, u32)>,
    /// Callbacks that were reported to the supervisor as finished.
    reported: HashSet<u8>,
    left: bool,
    /// The log of the last child is being read.
    reading: bool,
    /// The child handles SIGQUIT.
    handles_quit: bool,
    refuses_signal: bool,
}

/// A process, and the signals that it received.
struct Child {
    born: Instant,
    signals: Vec<(Signal, Instant)>,
    /// Without those of earlier wrappers, which the next wrapper may send again.
    last_quit: Option<Instant>,
    killed: bool,
}

impl Simulation {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Instant::now(),
            supervision: Supervision::default(),
            child: None,
            spawning: None,
            spawn_takes: 0,
            spawn_fails: false,
            callbacks: HashMap::new(),
            reported: HashSet::new(),
            left: false,
            reading: false,
            handles_quit: false,
            refuses_signal: false,
        }
    }

    fn happen(&mut self, happening: &RandomEvent) {
        match *happening {
            RandomEvent::Boot => self.ignore(&Event::Boot),
            RandomEvent::Start => {
                if self.tell(&Event::Start) == Ok(Answer::Done) {
                    self.forget_callbacks();
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
                if self.tell(&Event::Cancel(None)).is_ok() {
                    let told = self.child.as_ref().is_some_and(|child| child.last_quit.is_some());
                    assert!(!told, "a child that drains is said to run");
                    self.forget_callbacks();
                }
            }
            RandomEvent::Reload => self.ignore(&Event::Reload),
            RandomEvent::Leave => self.ignore(&Event::Leave(Stop::new("signal", Mode::Graceful))),
            RandomEvent::Called => {
                let made = |(name, (_, made)): (&u8, &(bool, u32))| (*made > 0).then_some(*name);
                let made: Vec<_> = self.callbacks.iter().filter_map(made).collect();
                for name in made {
                    self.reported.insert(name);
                    self.ignore(&Event::CallbackFinished(callback(name)));
                }
            }
            RandomEvent::Crash(code) => self.end(Exit::Code(code.into())),
            RandomEvent::Handles => {
                self.handles_quit = self.child.is_some();
                if self.supervision.holds_signal() {
                    self.ignore(&Event::Tick);
                }
            }
            RandomEvent::JobRequests(open) => {
                if let Some(child) = self.supervision.state.child() {
                    self.ignore(&Event::JobRequests(child, open));
                }
            }
            RandomEvent::Wait(tenths) => self.pass(SECOND * u32::from(tenths) / 10),
            RandomEvent::UntilDue => {
                if let Some(due) = self.supervision.due() {
                    self.pass(due.saturating_duration_since(self.now));
                }
            }
            RandomEvent::LogRead => {
                self.reading = false;
                self.ignore(&Event::LogRead(Arc::default()));
            }
            RandomEvent::SignalRefused => self.refuses_signal = true,
            RandomEvent::Adopt { dies, let_through } => self.adopt(dies, let_through),
            RandomEvent::SpawnTakes(happenings) => self.spawn_takes = happenings,
            RandomEvent::SpawnFails => self.spawn_fails = true,
        }
        if let Some(left) = self.spawning {
            self.spawning = left.checked_sub(1);
            if self.spawning.is_none() {
                self.spawned();
            }
        }
    }

    fn spawned(&mut self) {
        self.reading = false;
        if mem::take(&mut self.spawn_fails) {
            self.ignore(&Event::SpawnFailed(Arc::from("no")));
        } else {
            assert!(self.child.is_none(), "a second child");
            self.child = Some(Child::born(self.now));
            self.handles_quit = false;
            self.ignore(&Event::Spawned(PID));
        }
    }

    /// As a wrapper does that finds a state file: see [`crate::supervise::record`] and `Task::resume`.
    fn adopt(&mut self, dies: bool, let_through: bool) {
        if self.left {
            // It ended in good order, and leaves nothing to take up.
            return;
        }
        let was_made = self.spawning.take().is_some() && let_through;
        if was_made {
            self.child = Some(Child::born(self.now));
            self.handles_quit = false;
        }
        let identity = self.child.is_some().then(identity);
        if dies {
            self.child = None;
        }
        let before = mem::take(&mut self.supervision);
        let lives = self.child.is_some();
        let next = handed_over(&before, identity.as_ref(), lives, self.now, &self.policy);

        let asked = before.state.stop().filter(|stop| stop.id != StopId::Signal);
        let kept = next.state.stop();
        assert_eq!(asked.map(|stop| &stop.id), kept.filter(|_| !next.revive).map(|stop| &stop.id));
        if let (Some(asked), Some(kept)) = (asked, kept) {
            assert_eq!((asked.mode, &asked.callbacks), (kept.mode, &kept.callbacks), "another stop");
            assert_eq!(asked.deadline.is_some(), kept.deadline.is_some(), "the deadline is lost");
        }
        assert_eq!(next.state.child().is_some(), lives, "the child is lost, or made up");

        if let Some(child) = &mut self.child {
            child.signals.retain(|(signal, _)| *signal != Signal::Drain);
        }
        for (name, (_, made)) in &mut self.callbacks {
            if !self.reported.contains(name) {
                // Whether it was made is not known, and better twice than never.
                *made = 0;
            }
        }
        self.reading = false;
        self.supervision = next;
        for callback in self.supervision.state.due_callbacks() {
            self.perform(Effect::Callback(callback));
        }
        self.ignore(&Event::Boot);
    }

    fn forget_callbacks(&mut self) {
        self.callbacks.clear();
        self.reported.clear();
    }

    fn end(&mut self, exit: Exit) {
        if self.child.is_some() {
            self.ignore(&Event::Exited(exit));
            self.child = None;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.supervision.due().is_some_and(|due| due <= self.now) {
            self.ignore(&Event::Tick);
        }
    }

    fn tell(&mut self, event: &Event) -> Result<Answer, Refusal> {
        let before = self.supervision.clone();
        let step = before.clone().on(event.clone(), Context::new(self.now, &self.policy, self.handles_quit));
        check_step(&before, event, &step, &self.policy, &format_args!("{before:?} + {event:?}"));
        self.supervision = step.next;
        let mut refused = None;
        for effect in step.effects {
            match effect {
                Effect::Signal(signal) if mem::take(&mut self.refuses_signal) => refused = Some(signal),
                effect => self.perform(effect),
            }
        }
        self.check();
        if let Some(signal) = refused {
            self.ignore(&Event::SignalRefused(signal, Arc::from("not permitted")));
        }
        step.answer
    }

    /// Also checks which requests may be refused.
    fn ignore(&mut self, event: &Event) {
        let _answer = self.tell(event);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn => {
                assert!(self.child.is_none() && self.spawning.is_none(), "a second child");
                self.spawning = Some(self.spawn_takes);
            }
            Effect::Signal(signal) => {
                let child = self.child.as_mut().expect("a signal to nobody");
                child.takes(signal, self.now, &self.policy);
            }
            Effect::Callback(made) => {
                let name = (0..4).find(|name| callback(*name) == made).unwrap();
                self.callbacks.get_mut(&name).expect("a callback that nobody asked for").1 += 1;
            }
            Effect::ReadLog { pid, .. } => {
                assert!(!self.reading && pid == PID);
                self.reading = true;
            }
            Effect::Count(_) => {}
            Effect::Leave => self.left = true,
        }
    }

    fn check(&self) {
        match &self.supervision.state {
            State::Exited { .. } | State::Backoff { .. } | State::Idle => assert!(self.spawning.is_none()),
            State::Starting { .. } => {}
            State::Running { .. } | State::Stopping { .. } => assert!(self.child.is_some()),
        }
        assert!(self.callbacks.values().all(|(_, made)| *made <= 1), "a callback was made twice");
        assert_eq!(self.supervision.last_lines == LastLines::Reading, self.reading);
    }

    /// Advances the time until the state no longer changes. The child finishes its jobs, and exits when it is killed.
    fn settle(&mut self) {
        for _ in 0..32 {
            if self.spawning.take().is_some() {
                self.spawned();
            }
            match &self.supervision.state {
                // A signal that was refused is sent again.
                State::Stopping { phase: Phase::Draining { .. } | Phase::Killed, .. }
                    if self.supervision.refused_signal.is_some() =>
                {
                    self.pass(self.supervision.due().unwrap().saturating_duration_since(self.now));
                }
                State::Stopping { phase: Phase::Draining { .. }, stop, .. } => match stop.deadline {
                    // Its jobs take longer than that.
                    Some(deadline) => self.pass(deadline.saturating_duration_since(self.now)),
                    None => {
                        let quit = self.child.as_ref().is_some_and(|child| child.last_quit.is_some());
                        assert!(quit, "it received no SIGQUIT");
                        self.end(Exit::Code(0));
                    }
                },
                State::Stopping { phase: Phase::Killed, .. } => {
                    assert!(self.child.as_ref().is_some_and(|child| child.killed), "nobody killed it");
                    self.end(Exit::Signal(9));
                }
                State::Backoff { .. } => {
                    self.pass(self.policy.restart.max_delay);
                    self.spawn_fails = false;
                }
                _ => match self.supervision.due() {
                    Some(due) => self.pass(due.saturating_duration_since(self.now)),
                    None => return,
                },
            }
        }
        panic!("stuck: {:?}", self.supervision);
    }
}

impl Child {
    fn born(now: Instant) -> Self {
        Self { born: now, signals: Vec::new(), last_quit: None, killed: false }
    }

    fn takes(&mut self, signal: Signal, now: Instant, policy: &Policy) {
        if signal == Signal::Kill {
            self.killed = true;
            return;
        }
        let taken = |wanted| self.signals.iter().any(|(signal, _)| *signal == wanted);
        assert!(!taken(Signal::Terminate), "{signal} after SIGTERM");
        assert!(signal == Signal::Reload || !taken(signal), "{signal} twice");
        if signal == Signal::Terminate {
            // Files have milliseconds.
            let spacing = policy.signal_spacing.saturating_sub(Duration::from_millis(2));
            let spaced = self.last_quit.is_none_or(|quit| now >= quit + spacing);
            assert!(spaced, "SIGTERM right behind SIGQUIT");
        } else {
            let since = now + Duration::from_millis(2);
            assert!(since >= self.born + policy.start_grace, "{signal} to a child that is too young for it");
        }
        if signal == Signal::Drain {
            self.last_quit = Some(now);
        }
        self.signals.push((signal, now));
    }
}

fn identity() -> Identity {
    serde_json::from_str(&format!(r#"{{"pid":{PID},"start_ticks":1,"boot":"this"}}"#)).unwrap()
}

fn policies() -> impl Strategy<Value = Policy> {
    (
        prop::sample::select(vec![RestartWhen::Never, RestartWhen::OnFailure, RestartWhen::Always]),
        any::<bool>(),
        // Shorter and longer than the wait for a handler.
        prop::sample::select(vec![Policy::START_GRACE, 3 * Policy::HANDLER_WAIT]),
    )
        .prop_map(|(when, leave_when_stopped, start_grace)| Policy {
            start_grace,
            restart: Restart { when, ..Restart::default() },
            leave_when_stopped,
            ..Policy::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: grit_testkit::rounds(10_000, 100_000), failure_persistence: None, ..ProptestConfig::default() })]

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
