//! The table, read as a table, and the promises of [`super::table`] held against random lives of a runner.

use std::{
    collections::HashMap,
    fmt::{Display, Write},
    sync::{Arc, LazyLock},
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::Instant;

use super::{
    command::{Answer, Mode, Refusal, Stop},
    policy::{Policy, Restart, RestartWhen},
    state::{ChildInfo, End, LastLines, Phase, State, Supervision},
    table::{Effect, Event, Step},
};
use crate::{
    callback::Callback,
    process::{Exit, Signal},
};

const SECOND: Duration = Duration::from_secs(1);
const PID: u32 = 7;

fn callback(name: u8) -> Callback {
    static MADE: LazyLock<Vec<Callback>> = LazyLock::new(|| {
        let make = |name| Callback::new(&format!("http://host/{name}"), "", &HashMap::new()).unwrap();
        (0..=u8::MAX).map(make).collect()
    });
    MADE[usize::from(name)].clone()
}

fn graceful() -> Stop {
    Stop::new("test", Mode::Graceful)
}

fn forceful() -> Stop {
    Stop::new("test", Mode::Forceful)
}

fn end() -> End {
    End::Exited { pid: PID, exit: Exit::Code(1), killed: false }
}

/// One of every state, in each form that the table tells apart. The child is 10 s old.
fn states(now: Instant) -> Vec<(&'static str, State)> {
    let child = ChildInfo { pid: PID, started: now.checked_sub(10 * SECOND).unwrap() };
    let later = now + 5 * SECOND;
    let stopping = |stop, phase| State::Stopping { child, stop, phase };
    let dated = Stop { deadline: Some(now), ..graceful() };
    vec![
        ("idle", State::Idle),
        ("starting", State::Starting { stop: None }),
        ("starting, stop kept", State::Starting { stop: Some(graceful()) }),
        ("starting, force kept", State::Starting { stop: Some(forceful()) }),
        ("running", State::Running { child, reload: None }),
        ("running, reload held", State::Running { child, reload: Some(later) }),
        ("running, reload due", State::Running { child, reload: Some(now) }),
        ("holding", stopping(graceful(), Phase::Holding { until: later })),
        ("holding, due", stopping(graceful(), Phase::Holding { until: now })),
        ("holding, past deadline", stopping(dated.clone(), Phase::Holding { until: later })),
        ("draining", stopping(graceful(), Phase::Draining { since: child.started })),
        ("draining since now", stopping(graceful(), Phase::Draining { since: now })),
        ("draining, past deadline", stopping(dated, Phase::Draining { since: child.started })),
        ("spacing", stopping(forceful(), Phase::Spacing { until: later })),
        ("spacing, due", stopping(forceful(), Phase::Spacing { until: now })),
        ("terminating", stopping(forceful(), Phase::Terminating { until: later })),
        ("terminating, due", stopping(forceful(), Phase::Terminating { until: now })),
        ("killed", stopping(forceful(), Phase::Killed)),
        ("backoff", State::Backoff { until: later, end: end() }),
        ("backoff, due", State::Backoff { until: now, end: end() }),
        ("stopped", State::Exited { end: end(), stop: None }),
        ("stopped as asked", State::Exited { end: end(), stop: Some(graceful()) }),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    let with_callback = Stop { callbacks: vec![callback(1)], ..graceful() };
    vec![
        ("boot", Event::Boot),
        ("start", Event::Start),
        ("spawned", Event::Spawned(PID)),
        ("spawn failed", Event::SpawnFailed(Arc::from("no"))),
        ("ended, code 0", Event::Ended(Exit::Code(0))),
        ("ended, code 1", Event::Ended(Exit::Code(1))),
        ("handles quit", Event::HandlesQuit),
        ("tick", Event::Tick),
        ("stop", Event::Stop(graceful())),
        ("stop, callback", Event::Stop(with_callback)),
        ("force", Event::Stop(forceful())),
        ("cancel", Event::Cancel(Arc::from(""))),
        ("reload", Event::Reload),
        ("called", Event::Called(callback(1))),
        ("log read", Event::LogRead(Arc::default())),
        ("leave", Event::Leave(graceful())),
    ]
}

fn on_failure() -> Policy {
    Policy { restart: Restart { when: RestartWhen::OnFailure, ..Restart::default() }, ..Policy::default() }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Spawn => "spawn".to_owned(),
        Effect::Signal(signal) => signal.to_string(),
        Effect::KillGroup => "SIGKILL group".to_owned(),
        Effect::Callback(_) => "callback".to_owned(),
        Effect::ReadLog { pid, .. } => format!("read log of {pid}"),
        Effect::Leave => "leave".to_owned(),
    }
}

/// Every state with every event, as a reader would want to see it. A change of the table shows up here, line by line.
#[test]
fn the_whole_table() {
    let now = Instant::now();
    let mut table = String::new();
    for (state_name, state) in states(now) {
        for (event_name, event) in events() {
            let before = Supervision { state: state.clone(), ..Supervision::default() };
            let Step { next, effects, answer } = before.on(event, now, &on_failure());
            let same = if next.state == state { " (same)" } else { "" };
            let effects: Vec<_> = effects.iter().map(word).collect();
            let answer = match answer {
                Ok(Answer::Done) => String::new(),
                Ok(Answer::Already) => " already".to_owned(),
                Err(refusal) => format!(" refused: {refusal:?}"),
            };
            writeln!(
                table,
                "{state_name:24} {event_name:14} -> {}{same} [{}]{answer}",
                next.state.name(),
                effects.join(", ")
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// What must hold of any single step, for every state, event, and policy, leaving or not.
#[test]
fn every_single_step_keeps_the_promises() {
    let now = Instant::now();
    for policy in [Policy::default(), on_failure(), Policy { leave_when_stopped: true, ..Policy::default() }]
    {
        for leaving in [false, true] {
            for (state_name, state) in states(now) {
                for (event_name, event) in events() {
                    let before = Supervision { state: state.clone(), leaving, ..Supervision::default() };
                    let step = before.clone().on(event.clone(), now, &policy);
                    check_step(
                        &before,
                        &event,
                        &step,
                        &policy,
                        &format_args!("{state_name} + {event_name}, leaving: {leaving}"),
                    );
                }
            }
        }
    }
}

fn check_step(before: &Supervision, event: &Event, step: &Step, policy: &Policy, context: &dyn Display) {
    let Step { next, effects, answer } = step;
    let count = |wanted: &Effect| effects.iter().filter(|effect| *effect == wanted).count();
    assert!(effects.iter().filter(|effect| matches!(effect, Effect::Signal(_))).count() <= 1, "{context}");
    if matches!(before.state, State::Exited { .. }) && *event != Event::Start {
        assert!(matches!(next.state, State::Exited { .. }), "{context}: stopped is final");
    }
    let spawns = count(&Effect::Spawn);
    assert_eq!(spawns == 1, starts(before, next), "{context}: {effects:?}");
    assert!(spawns == 0 || before.state.child().is_none(), "{context}: a second child");
    if let (Some(old), Some(new)) = (before.state.child(), next.state.child()) {
        assert_eq!(old, new, "{context}: the child changed");
    }
    if answer.is_err() {
        assert_eq!(before.state.name(), next.state.name(), "{context}: a refusal changes nothing");
        assert!(effects.iter().all(|effect| *effect == Effect::Leave), "{context}: {effects:?}");
    }
    let leaves = matches!(next.state, State::Exited { .. }) && next.leaving;
    assert_eq!(count(&Effect::Leave) == 1, leaves, "{context}");
    if before.leaving {
        assert!(next.leaving, "{context}");
        // Backoff and leaving exclude each other in every life; the single steps try them all the same.
        assert!(spawns == 0 || *event == Event::Tick, "{context}: started while leaving");
    }
    // No state that moves on by itself forgets when.
    if let State::Stopping { phase, .. } = &next.state
        && !matches!(phase, Phase::Draining { .. } | Phase::Killed)
    {
        assert!(next.due().is_some(), "{context}");
    }
    // Nothing is due that a tick would not change.
    if let Some(due) = next.due() {
        let ticked = next.clone().on(Event::Tick, due, policy);
        assert_ne!(ticked.next, *next, "{context}: a tick at its time changes nothing");
    }
}

fn starts(before: &Supervision, next: &Supervision) -> bool {
    !matches!(before.state, State::Starting { .. }) && matches!(next.state, State::Starting { .. })
}

#[test]
fn a_stop_before_the_child_is_kept() {
    let now = Instant::now();
    let policy = Policy::default();
    let stopped = Supervision::default().on(Event::Stop(graceful()), now, &policy).next;
    let booted = stopped.on(Event::Boot, now, &policy);
    assert_eq!(booted.effects, []);
    assert!(matches!(booted.next.state, State::Exited { end: End::NeverStarted, .. }));
}

#[test]
fn only_the_named_stop_is_cancelled() {
    let now = Instant::now();
    let policy = Policy::default();
    let (_, running) = states(now).swap_remove(4);
    let holding = Supervision { state: running, ..Supervision::default() }
        .on(Event::Stop(graceful()), now, &policy)
        .next;
    let cancel = |id: &str| holding.clone().on(Event::Cancel(Arc::from(id)), now, &policy);
    assert_eq!(cancel("another").answer, Err(Refusal::OtherStop));
    assert_eq!(cancel("another").next, holding);
    for id in ["", "test"] {
        assert!(matches!(cancel(id).next.state, State::Running { .. }));
    }
}

#[test]
fn at_most_so_many_callbacks() {
    let now = Instant::now();
    let policy = Policy::default();
    let mut supervision = Supervision::default();
    for name in 0..=u8::MAX {
        let stop = Stop { callbacks: vec![callback(name)], ..graceful() };
        let step = supervision.on(Event::Stop(stop), now, &policy);
        let fits = usize::from(name) < Stop::MAX_CALLBACKS;
        assert_eq!(step.answer.is_ok(), fits);
        assert_eq!(step.answer == Err(Refusal::TooManyCallbacks), !fits);
        assert_eq!(step.effects.len(), usize::from(fits), "it has ended, so each is called at once");
        supervision = step.next;
    }
}

/// A wrapper that was told to end, and killed before its child had: its successor is wanted to run one.
#[test]
fn the_end_of_an_earlier_wrapper_is_followed_by_another_child() {
    let now = Instant::now();
    let policy = Policy::default();
    let (_, state) = states(now).into_iter().find(|(name, _)| *name == "draining").unwrap();
    let adopted = Supervision { state, revive: true, ..Supervision::default() };
    let ended = adopted.clone().on(Event::Ended(Exit::Unknown), now, &policy);
    let again = ended.next.on(Event::Tick, now, &policy);
    assert_eq!(again.effects, [Effect::Spawn]);

    // Unless somebody wants it stopped by now, who is then the one to name.
    let joined = adopted.on(Event::Stop(Stop::new("deploy", Mode::Graceful)), now, &policy).next;
    assert_eq!(&*joined.state.stop().unwrap().id, "deploy");
    let ended = joined.on(Event::Ended(Exit::Unknown), now, &policy).next;
    assert!(matches!(ended.state, State::Exited { .. }));
}

#[test]
fn a_crash_loop_shows_and_a_stable_child_ends_it() {
    let policy = on_failure();
    let mut now = Instant::now();
    let mut supervision = Supervision::default().on(Event::Boot, now, &policy).next;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        supervision = supervision.on(Event::Spawned(PID), now, &policy).next;
        supervision = supervision.on(Event::Ended(Exit::Code(1)), now, &policy).next;
        let due = supervision.due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
        supervision = supervision.on(Event::Tick, now, &policy).next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32]);
    assert!(supervision.is_crash_loop());
    assert_eq!(supervision.restarts, 6);

    supervision = supervision.on(Event::Spawned(PID), now, &policy).next;
    now += policy.restart.stable_after;
    supervision = supervision.on(Event::Ended(Exit::Signal(9)), now, &policy).next;
    assert!(!supervision.is_crash_loop());
    assert_eq!(supervision.due(), Some(now + policy.restart.first_delay));
}

/// A failed child's last lines are told until there is another; those of one that ended well, or as asked, are not even read.
#[test]
fn the_last_lines_of_a_failed_child() {
    let now = Instant::now();
    let lines = LastLines::Read(Arc::from(["why".to_owned()]));
    let read = Event::LogRead(Arc::from(["why".to_owned()]));
    for policy in [Policy::default(), on_failure()] {
        let on = |before: Supervision, event| before.on(event, now, &policy).next;
        let running = || on(on(Supervision::default(), Event::Boot), Event::Spawned(PID));
        let wants = |event, wanted: bool| {
            let step = running().on(event, now, &policy);
            let effect = Effect::ReadLog { pid: PID, started: now };
            assert_eq!(step.effects.contains(&effect), wanted, "{:?}", step.next);
            step.next
        };
        let ended = wants(Event::Ended(Exit::Code(0)), false);
        assert_eq!(on(ended, read.clone()).last_lines, LastLines::NotRead);
        wants(Event::Ended(Exit::Unknown), true);
        wants(Event::Ended(Exit::Signal(9)), true);
        let failed = on(wants(Event::Ended(Exit::Code(1)), true), read.clone());
        assert_eq!(failed.last_lines, lines);
        let again = on(on(failed, Event::Start), Event::Spawned(PID));
        assert_eq!(again.last_lines, LastLines::NotRead);

        let stopping = on(running(), Event::Stop(forceful()));
        assert_eq!(on(stopping.clone(), Event::Ended(Exit::Unknown)).last_lines, LastLines::NotRead);
        assert_eq!(on(stopping, Event::Ended(Exit::Code(1))).last_lines, LastLines::Reading);
    }
}

/// One thing that happens in a random life.
#[derive(Clone, Debug)]
enum Happening {
    Boot,
    Start,
    Stop {
        mode: Mode,
        deadline: Option<u16>,
        callback: Option<u8>,
    },
    Cancel,
    Reload,
    Leave,
    /// Callbacks that were made are reported.
    Called,
    /// The child dies by itself.
    Crash(u8),
    Handles,
    /// Time passes, in tenths of a second.
    Wait(u16),
    /// Time passes until something is due.
    UntilDue,
    /// The next child takes this many happenings to exist, or cannot be made.
    SpawnTakes(u8),
    SpawnFails,
    /// A log was read to its end, by now or long ago.
    LogRead,
}

impl Happening {
    /// Every number is a happening: drawing numbers is an order of magnitude faster than drawing variants, and smaller numbers
    /// are simpler happenings, so that a failure still shrinks.
    fn from_number(number: u32) -> Self {
        let [kind, a, b, c] = number.to_be_bytes();
        let some = |byte: u8| (byte % 3 == 1).then_some(byte / 3);
        match kind % 21 {
            0 | 1 => Self::Boot,
            2 => Self::Start,
            3..=6 => Self::Stop {
                mode: if a % 2 == 0 { Mode::Graceful } else { Mode::Forceful },
                deadline: some(b).map(u16::from),
                callback: some(c).map(|name| name % 4),
            },
            7 => Self::Cancel,
            8 => Self::Reload,
            9 => Self::Leave,
            10 => Self::Called,
            11 => Self::Crash(a % 2),
            12 | 13 => Self::Handles,
            14 | 15 => Self::Wait(a.into()),
            16 | 17 => Self::UntilDue,
            18 => Self::SpawnTakes(a % 3),
            19 => Self::SpawnFails,
            _ => Self::LogRead,
        }
    }
}

/// A world around the table: a child that lives or not, and everything that was done to it.
struct World {
    policy: Policy,
    now: Instant,
    supervision: Supervision,
    /// The child, and whether its process lives.
    child: Option<Vec<Signal>>,
    /// Happenings left until a spawn that is under way has its result.
    spawning: Option<u8>,
    spawn_takes: u8,
    spawn_fails: bool,
    /// Callbacks that a stop of the present child was accepted with, and how often each was made.
    callbacks: HashMap<u8, (bool, u32)>,
    left: bool,
    /// The log of the last child is being read.
    reading: bool,
}

impl World {
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
            left: false,
            reading: false,
        }
    }

    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Boot => self.ignore(&Event::Boot),
            Happening::Start => {
                if self.tell(&Event::Start) == Ok(Answer::Done) {
                    self.callbacks.clear();
                }
            }
            Happening::Stop { mode, deadline, callback: name } => {
                let deadline = deadline.map(|tenths| self.now + SECOND * u32::from(tenths) / 10);
                let callbacks = name.map(callback).into_iter().collect();
                if let Some(name) = name {
                    self.callbacks.entry(name).or_default().0 = true;
                }
                self.tell(&Event::Stop(Stop { deadline, callbacks, ..Stop::new("test", mode) })).unwrap();
            }
            Happening::Cancel => {
                if self.tell(&Event::Cancel(Arc::from(""))).is_ok() {
                    self.callbacks.clear();
                }
            }
            Happening::Reload => self.ignore(&Event::Reload),
            Happening::Leave => self.ignore(&Event::Leave(graceful())),
            Happening::Called => {
                let made = |(name, (_, made)): (&u8, &(bool, u32))| (*made > 0).then_some(*name);
                let made: Vec<_> = self.callbacks.iter().filter_map(made).collect();
                for name in made {
                    self.ignore(&Event::Called(callback(name)));
                }
            }
            Happening::Crash(code) => self.end(Exit::Code(code.into())),
            Happening::Handles => {
                if self.supervision.holds_signal() {
                    self.ignore(&Event::HandlesQuit);
                }
            }
            Happening::Wait(tenths) => self.pass(SECOND * u32::from(tenths) / 10),
            Happening::UntilDue => {
                if let Some(due) = self.supervision.due() {
                    self.pass(due.saturating_duration_since(self.now));
                }
            }
            Happening::LogRead => {
                self.reading = false;
                self.ignore(&Event::LogRead(Arc::default()));
            }
            Happening::SpawnTakes(happenings) => self.spawn_takes = happenings,
            Happening::SpawnFails => self.spawn_fails = true,
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
        if std::mem::take(&mut self.spawn_fails) {
            self.ignore(&Event::SpawnFailed(Arc::from("no")));
        } else {
            assert!(self.child.is_none(), "a second child");
            self.child = Some(Vec::new());
            self.ignore(&Event::Spawned(PID));
        }
    }

    fn end(&mut self, exit: Exit) {
        if self.child.is_some() {
            self.ignore(&Event::Ended(exit));
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
        let step = before.clone().on(event.clone(), self.now, &self.policy);
        check_step(&before, event, &step, &self.policy, &format_args!("{before:?} + {event:?}"));
        self.supervision = step.next;
        for effect in step.effects {
            self.perform(effect);
        }
        self.check();
        step.answer
    }

    /// Tells what may be refused, too.
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
                let signals = self.child.as_mut().expect("a signal to nobody");
                assert!(!signals.contains(&Signal::Terminate), "{signal} after SIGTERM");
                assert!(signal == Signal::Reload || !signals.contains(&signal), "{signal} twice");
                signals.push(signal);
            }
            Effect::KillGroup => assert!(self.child.is_some(), "a kill to nobody"),
            Effect::Callback(made) => {
                let name = (0..4).find(|name| callback(*name) == made).unwrap();
                self.callbacks.get_mut(&name).expect("a callback that nobody asked for").1 += 1;
            }
            Effect::ReadLog { pid, .. } => {
                assert!(!self.reading && pid == PID);
                self.reading = true;
            }
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

    /// Lets time pass, with a child that finishes its jobs in its time and dies when it is killed, until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..32 {
            if self.spawning.take().is_some() {
                self.spawned();
            }
            match &self.supervision.state {
                State::Stopping { phase: Phase::Draining { .. } | Phase::Killed, .. } => {
                    self.end(Exit::Code(0));
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

fn policies() -> impl Strategy<Value = Policy> {
    (
        prop::sample::select(vec![RestartWhen::Never, RestartWhen::OnFailure, RestartWhen::Always]),
        any::<bool>(),
    )
        .prop_map(|(when, leave_when_stopped)| Policy {
            restart: Restart { when, ..Restart::default() },
            leave_when_stopped,
            ..Policy::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random lives: terminal is final, SIGTERM at most once and nothing after it, no second child, no callback twice or for nothing,
    /// and no state in which a life gets stuck: left alone, each comes to rest, stopped if it was asked to stop.
    #[test]
    fn random_lives_keep_the_promises(policy in policies(), life in prop::collection::vec(any::<u32>(), 1..16)) {
        let mut world = World::new(policy);
        for number in life {
            world.happen(&Happening::from_number(number));
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
