//! The table, read as a table; what holds of each of its steps, and of some stories.

use std::{
    collections::HashMap,
    fmt::{Display, Write},
    sync::{Arc, LazyLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    callback::Callback,
    context::{Context, Effect},
    drain::{DrainId, Mode, Stop},
    end::End,
    event::{Answer, Event, Refusal},
    policy::{Policy, Restart, RestartWhen},
    process::Exit,
    state::{ChildInfo, LastLines, Phase, State, Supervision},
    statistics::{Counted, DrainResult, ExitReason},
    table::Step,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const PID: u32 = 7;

pub(super) fn callback(name: u8) -> Callback {
    static MADE: LazyLock<Vec<Callback>> = LazyLock::new(|| {
        let make = |name| Callback::new(&format!("http://host/{name}"), "", &HashMap::new()).unwrap();
        (0..=u8::MAX).map(make).collect()
    });
    MADE[usize::from(name)].clone()
}

pub(super) fn graceful() -> Stop {
    Stop::new("test", Mode::Graceful)
}

pub(super) fn forceful() -> Stop {
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
        ("holding", stopping(graceful(), Phase::Holding { until: later, told: None })),
        ("holding, due", stopping(graceful(), Phase::Holding { until: now, told: None })),
        ("holding, past deadline", stopping(dated.clone(), Phase::Holding { until: later, told: None })),
        ("holding, told", stopping(graceful(), Phase::Holding { until: later, told: Some(child.started) })),
        ("holding, told now", stopping(graceful(), Phase::Holding { until: later, told: Some(now) })),
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

/// One of every event, and whether the child handles SIGQUIT.
fn events() -> Vec<(&'static str, Event, bool)> {
    let with_callback = Stop { callbacks: vec![callback(1)], ..graceful() };
    vec![
        ("boot", Event::Boot, false),
        ("start", Event::Start, false),
        ("spawned", Event::Spawned(PID), false),
        ("spawn failed", Event::SpawnFailed(Arc::from("no")), false),
        ("exited, code 0", Event::Exited(Exit::Code(0)), false),
        ("exited, code 1", Event::Exited(Exit::Code(1)), false),
        ("tick", Event::Tick, false),
        ("tick, handler", Event::Tick, true),
        ("stop", Event::Stop(graceful()), false),
        ("stop, handler", Event::Stop(graceful()), true),
        ("stop, callback", Event::Stop(with_callback), false),
        ("force", Event::Stop(forceful()), false),
        ("cancel", Event::Cancel(None), false),
        ("reload", Event::Reload, false),
        ("reload, handler", Event::Reload, true),
        ("called", Event::CallbackFinished(callback(1)), false),
        ("log read", Event::LogRead(Arc::default()), false),
        ("leave", Event::Leave(graceful()), false),
    ]
}

impl Supervision {
    /// The transition where it is unknown whether the child handles SIGQUIT.
    pub(super) fn with(self, event: Event, now: Instant, policy: &Policy) -> Step {
        self.on(event, Context::new(now, policy, false))
    }
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
        Effect::Count(Counted::Exit(reason)) => format!("count exit {}", reason.name()),
        Effect::Count(Counted::Drain(drained)) => format!("count drain {}", drained.result.name()),
        Effect::Leave => "leave".to_owned(),
    }
}

/// The state with the phase of a stop.
fn detailed(state: &State) -> &'static str {
    match state {
        State::Stopping { phase, .. } => match phase {
            Phase::Holding { .. } => "holding",
            Phase::Draining { .. } => "draining",
            Phase::Spacing { .. } => "spacing",
            Phase::Terminating { .. } => "terminating",
            Phase::Killed => "killed",
        },
        other => other.public().name(),
    }
}

/// Every state with every event, one line each.
#[test]
fn transition_table_snapshot() {
    let now = Instant::now();
    let mut table = String::new();
    for (state_name, state) in states(now) {
        for (event_name, event, handles_quit) in events() {
            let before = Supervision { state: state.clone(), ..Supervision::default() };
            let Step { next, effects, answer } =
                before.on(event, Context::new(now, &on_failure(), handles_quit));
            let same = if next.state == state { " (same)" } else { "" };
            let effects: Vec<_> = effects.iter().map(word).collect();
            let answer = match answer {
                Ok(Answer::Done) => String::new(),
                Ok(Answer::Already) => " already".to_owned(),
                Ok(Answer::Joined(id)) => format!(" joined: {id}"),
                Err(refusal) => format!(" refused: {refusal:?}"),
            };
            writeln!(
                table,
                "{state_name:24} {event_name:15} -> {}{same} [{}]{answer}",
                detailed(&next.state),
                effects.join(", ")
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// The invariants of each single transition, for every state, event and policy.
#[test]
fn each_transition_keeps_invariants() {
    let now = Instant::now();
    for policy in [Policy::default(), on_failure(), Policy { leave_when_stopped: true, ..Policy::default() }]
    {
        for leaving in [false, true] {
            for (state_name, state) in states(now) {
                for (event_name, event, handles_quit) in events() {
                    let before = Supervision { state: state.clone(), leaving, ..Supervision::default() };
                    let step = before.clone().on(event.clone(), Context::new(now, &policy, handles_quit));
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

pub(super) fn check_step(
    before: &Supervision,
    event: &Event,
    step: &Step,
    policy: &Policy,
    context: &dyn Display,
) {
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
        assert_eq!(before.state, next.state, "{context}: a refusal changes nothing");
        assert!(effects.iter().all(|effect| *effect == Effect::Leave), "{context}: {effects:?}");
    }
    let leaves = matches!(next.state, State::Exited { .. }) && next.leaving;
    let is_over = matches!(next.state, State::Exited { .. });
    assert!(next.leaving || !is_over || !policy.leave_when_stopped, "{context}: nobody says how it ended");
    if let (State::Stopping { stop, .. }, Event::Exited(_)) = (&before.state, event) {
        let is_forceful = stop.mode == Mode::Forceful;
        assert_eq!(count(&Effect::KillGroup) == 1, is_forceful, "{context}: what it leaves behind");
    }
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
        let ticked = next.clone().with(Event::Tick, due, policy);
        assert_ne!(ticked.next, *next, "{context}: a tick at its time changes nothing");
    }
}

fn starts(before: &Supervision, next: &Supervision) -> bool {
    !matches!(before.state, State::Starting { .. }) && matches!(next.state, State::Starting { .. })
}

#[test]
fn stop_before_start_is_kept() {
    let now = Instant::now();
    let policy = Policy::default();
    let stopped = Supervision::default().with(Event::Stop(graceful()), now, &policy).next;
    let booted = stopped.with(Event::Boot, now, &policy);
    assert_eq!(booted.effects, []);
    assert!(matches!(booted.next.state, State::Exited { end: End::NeverStarted, .. }));
}

#[test]
fn cancel_requires_matching_drain_id() {
    let now = Instant::now();
    let policy = Policy::default();
    let (_, running) = states(now).swap_remove(4);
    let holding = Supervision { state: running, ..Supervision::default() }
        .with(Event::Stop(graceful()), now, &policy)
        .next;
    let cancel = |id: &str| {
        holding.clone().with(
            Event::Cancel(Some(id).filter(|id| !id.is_empty()).map(DrainId::from)),
            now,
            &policy,
        )
    };
    assert_eq!(cancel("another").answer, Err(Refusal::OtherStop));
    assert_eq!(cancel("another").next, holding);
    for id in ["", "test"] {
        assert!(matches!(cancel(id).next.state, State::Running { .. }));
    }
}

/// One row for each pair of a drain under way and a call that joins it, as seconds from now.
#[test]
fn joining_drain_only_shortens_deadline() {
    let now = Instant::now();
    let policy = Policy::default();
    let at = |seconds: Option<u32>| seconds.map(|seconds| now + seconds * SECOND);
    for (mode, first, joining, holds) in [
        (Mode::Graceful, None, None, None),
        (Mode::Graceful, None, Some(60), Some(60)),
        (Mode::Graceful, Some(60), None, Some(60)),
        (Mode::Graceful, Some(60), Some(30), Some(30)),
        (Mode::Graceful, Some(60), Some(90), Some(60)),
        // Its time for SIGTERM counts now, which no call makes longer or shorter.
        (Mode::Forceful, None, Some(30), None),
    ] {
        for id in ["test", "another", "signal"].map(DrainId::from) {
            for (name, state) in states(now) {
                let Some(stop) = state.stop().filter(|stop| stop.mode == mode).cloned() else { continue };
                if matches!(state, State::Exited { .. }) {
                    continue;
                }
                let stop = Stop { id: id.clone(), deadline: at(first), ..stop };
                let state = match state {
                    State::Stopping { child, phase, .. } => State::Stopping { child, stop, phase },
                    _ => State::Starting { stop: Some(stop) },
                };
                let before = Supervision { state, ..Supervision::default() };
                let wish = Stop {
                    deadline: at(joining),
                    callbacks: vec![callback(3)],
                    ..Stop::new("joining", Mode::Graceful)
                };
                let step = before.with(Event::Stop(wish), now, &policy);
                assert_eq!(step.answer, Ok(Answer::Joined(id.clone())), "{name}");
                let stop = step.next.state.stop().unwrap();
                assert_eq!((stop.deadline, stop.mode), (at(holds), mode), "{name}: {first:?} {joining:?}");
                assert!(stop.callbacks.contains(&callback(3)), "{name}");
                // A drain for the end of the wrapper becomes that of the one who wants the runner stopped.
                let owner = if id == DrainId::Signal { DrainId::from("joining") } else { id.clone() };
                assert_eq!(stop.id, owner, "{name}");
            }
        }
    }
}

#[test]
fn forceful_request_makes_joined_drain_forceful() {
    let now = Instant::now();
    for (name, state) in states(now) {
        let under_way = !matches!(state, State::Exited { .. }) && state.stop().is_some();
        if !under_way {
            continue;
        }
        let before = Supervision { state, ..Supervision::default() };
        let wish = Stop::new("force", Mode::Forceful);
        let step = before.with(Event::Stop(wish), now, &Policy::default());
        assert_eq!(step.answer, Ok(Answer::Joined("test".into())), "{name}");
        assert_eq!(step.next.state.stop().unwrap().mode, Mode::Forceful, "{name}");
    }
}

#[test]
fn last_stop_is_kept_after_start() {
    let now = Instant::now();
    let policy = Policy::default();
    let on = |before: Supervision, event| before.with(event, now, &policy).next;
    let running = || on(on(Supervision::default(), Event::Boot), Event::Spawned(PID));
    let wish = Stop { reason: Arc::from("why"), callbacks: vec![callback(1)], ..graceful() };
    let ended = on(on(running(), Event::Stop(wish.clone())), Event::Exited(Exit::Code(3)));
    assert_eq!(ended.last_stop, None, "it is the present one");
    let again = on(on(ended, Event::Start), Event::Spawned(PID));
    let past = again.last_stop.clone().unwrap();
    assert_eq!((&past.stop.reason, &past.stop.callbacks), (&wish.reason, &Vec::new()));
    assert!(matches!(past.end, End::Exited { exit: Exit::Code(3), .. }));
    // A crash is nobody's stop, and a stop that was taken back ended nothing.
    let crashed = on(on(again.clone(), Event::Exited(Exit::Code(1))), Event::Start);
    assert_eq!(crashed.last_stop, again.last_stop);
    let next = on(on(again, Event::Stop(forceful())), Event::Exited(Exit::Code(0)));
    assert_eq!(on(next, Event::Start).last_stop.unwrap().stop.mode, Mode::Forceful);
}

#[test]
fn callback_count_is_limited() {
    let now = Instant::now();
    let policy = Policy::default();
    let mut supervision = Supervision::default();
    for name in 0..=u8::MAX {
        let stop = Stop { callbacks: vec![callback(name)], ..graceful() };
        let step = supervision.with(Event::Stop(stop), now, &policy);
        let fits = usize::from(name) < Stop::MAX_CALLBACKS;
        assert_eq!(step.answer.is_ok(), fits);
        assert_eq!(step.answer == Err(Refusal::TooManyCallbacks), !fits);
        let sent = step.effects.iter().filter(|effect| matches!(effect, Effect::Callback(_))).count();
        assert_eq!(sent, usize::from(fits), "the runner has exited, so that each callback is sent at once");
        supervision = step.next;
    }
}

/// A wrapper that was told to end, and killed before its child had: its successor is wanted to run one.
#[test]
fn interrupted_wrapper_stop_restarts_runner() {
    let now = Instant::now();
    let policy = Policy::default();
    let (_, state) = states(now).into_iter().find(|(name, _)| *name == "draining").unwrap();
    let adopted = Supervision { state, revive: true, ..Supervision::default() };
    let ended = adopted.clone().with(Event::Exited(Exit::Unknown), now, &policy);
    let again = ended.next.with(Event::Tick, now, &policy);
    assert_eq!(again.effects, [Effect::Spawn]);

    // Unless somebody wants it stopped by now, who is then the one to name.
    let joined = adopted.with(Event::Stop(Stop::new("deploy", Mode::Graceful)), now, &policy).next;
    assert_eq!(joined.state.stop().unwrap().id.as_str(), "deploy");
    let ended = joined.with(Event::Exited(Exit::Unknown), now, &policy).next;
    assert!(matches!(ended.state, State::Exited { .. }));
}

#[test]
fn crash_loop_is_reported_until_child_is_stable() {
    let policy = on_failure();
    let mut now = Instant::now();
    let mut supervision = Supervision::default().with(Event::Boot, now, &policy).next;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        supervision = supervision.with(Event::Spawned(PID), now, &policy).next;
        supervision = supervision.with(Event::Exited(Exit::Code(1)), now, &policy).next;
        let due = supervision.due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
        supervision = supervision.with(Event::Tick, now, &policy).next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32]);
    assert!(supervision.is_crash_loop());
    assert_eq!(supervision.restarts, 6);

    supervision = supervision.with(Event::Spawned(PID), now, &policy).next;
    assert!(supervision.is_crash_loop() && supervision.restarted);
    now += policy.restart.stable_after;
    // Also when nothing else happens: it is told of a runner that lives.
    assert_eq!(supervision.due(), Some(now));
    let lives = supervision.clone().with(Event::Tick, now, &policy).next;
    assert_eq!((lives.is_crash_loop(), lives.failures, lives.due()), (false, 0, None));
    supervision = supervision.with(Event::Exited(Exit::Signal(9)), now, &policy).next;
    assert!(!supervision.is_crash_loop());
    assert_eq!(supervision.due(), Some(now + policy.restart.first_delay));
}

/// What earlier children did is not counted against one that somebody asked for.
#[test]
fn start_request_resets_failure_count() {
    let (policy, now) = (on_failure(), Instant::now());
    let on = |before: Supervision, event| before.with(event, now, &policy).next;
    let crashed = || {
        let running = on(on(Supervision::default(), Event::Boot), Event::Spawned(PID));
        on(running, Event::Exited(Exit::Code(1)))
    };
    let waiting = crashed();
    let due = waiting.due().unwrap();
    let restarted = on(waiting.clone().with(Event::Tick, due, &policy).next, Event::Spawned(PID));
    assert_eq!((restarted.restarts, restarted.failures, restarted.restarted), (1, 1, true));

    let drained = on(on(restarted.clone(), Event::Stop(forceful())), Event::Exited(Exit::Code(0)));
    for before in [drained, waiting] {
        let started = on(on(before, Event::Start), Event::Spawned(PID));
        assert_eq!((started.restarts, started.failures, started.restarted), (0, 0, false));
        assert_eq!(started.stable_at, None);
    }
    // A start that changes nothing forgets nothing.
    let same = on(restarted.clone(), Event::Start);
    assert_eq!(same, restarted);
}

/// The stop was for the earlier wrapper's own end. Its runner did not end by itself.
#[test]
fn start_after_wrapper_stop_is_not_a_restart() {
    let (policy, now) = (on_failure(), Instant::now());
    let on = |before: Supervision, event| before.with(event, now, &policy).next;
    let child = ChildInfo { pid: PID, started: now };
    let stop = Stop::new(DrainId::Signal.as_str(), Mode::Graceful);
    let state = State::Stopping { child, stop, phase: Phase::Draining { since: now } };
    let adopted = Supervision { state, revive: true, ..Supervision::default() };
    let again = on(on(on(adopted, Event::Exited(Exit::Code(0))), Event::Tick), Event::Spawned(PID));
    assert!(matches!(again.state, State::Running { .. }));
    assert_eq!((again.restarts, again.restarted), (0, false));
}

/// A failed child's last lines are told until there is another; those of one that ended well, or as asked, are not even read.
#[test]
fn last_lines_are_kept_until_next_child_of_failed_one() {
    let now = Instant::now();
    let lines = LastLines::Read(Arc::from(["why".to_owned()]));
    let read = Event::LogRead(Arc::from(["why".to_owned()]));
    for policy in [Policy::default(), on_failure()] {
        let on = |before: Supervision, event| before.with(event, now, &policy).next;
        let running = || on(on(Supervision::default(), Event::Boot), Event::Spawned(PID));
        let wants = |event, wanted: bool| {
            let step = running().with(event, now, &policy);
            let effect = Effect::ReadLog { pid: PID, started: now };
            assert_eq!(step.effects.contains(&effect), wanted, "{:?}", step.next);
            step.next
        };
        let ended = wants(Event::Exited(Exit::Code(0)), false);
        assert_eq!(on(ended, read.clone()).last_lines, LastLines::NotRead);
        wants(Event::Exited(Exit::Unknown), true);
        wants(Event::Exited(Exit::Signal(9)), true);
        let failed = on(wants(Event::Exited(Exit::Code(1)), true), read.clone());
        assert_eq!(failed.last_lines, lines);
        let again = on(on(failed, Event::Start), Event::Spawned(PID));
        assert_eq!(again.last_lines, LastLines::NotRead);

        let stopping = on(running(), Event::Stop(forceful()));
        assert_eq!(on(stopping.clone(), Event::Exited(Exit::Unknown)).last_lines, LastLines::NotRead);
        assert_eq!(on(stopping, Event::Exited(Exit::Code(1))).last_lines, LastLines::Reading);
    }
}

#[test]
fn each_exit_and_each_drain_is_counted_once() {
    use DrainResult::{Cancelled, Failed, Finished, Forced, Killed, NoRunner, Unknown};
    let exit = |exit| Event::Exited(exit);
    let (stop, force) = (|| Event::Stop(graceful()), || Event::Stop(forceful()));
    let boot = || vec![Event::Boot, Event::Spawned(PID)];
    let after_boot = |events: Vec<Event>| [boot(), events].concat();
    for (events, exits, drains) in [
        (after_boot(vec![exit(Exit::Signal(9))]), vec![ExitReason::Signal], vec![]),
        (
            after_boot(vec![stop(), stop(), exit(Exit::Code(0)), stop()]),
            vec![ExitReason::Success],
            vec![(Mode::Graceful, Finished)],
        ),
        (
            after_boot(vec![stop(), force(), exit(Exit::Code(2))]),
            vec![ExitReason::Error],
            vec![(Mode::Graceful, Forced)],
        ),
        (
            after_boot(vec![force(), Event::Tick, exit(Exit::Signal(9))]),
            vec![ExitReason::Killed],
            vec![(Mode::Forceful, Killed)],
        ),
        (after_boot(vec![stop(), Event::Cancel(None)]), vec![], vec![(Mode::Graceful, Cancelled)]),
        (vec![Event::Boot, stop(), Event::Cancel(None)], vec![], vec![(Mode::Graceful, Cancelled)]),
        (vec![stop()], vec![], vec![(Mode::Graceful, NoRunner)]),
        (
            after_boot(vec![exit(Exit::Code(1)), stop()]),
            vec![ExitReason::Error],
            vec![(Mode::Graceful, NoRunner)],
        ),
        (
            vec![Event::Boot, stop(), Event::SpawnFailed(Arc::from("no"))],
            vec![ExitReason::SpawnFailed],
            vec![(Mode::Graceful, NoRunner)],
        ),
        // A stop after the end drains nothing.
        (after_boot(vec![exit(Exit::Code(0)), stop()]), vec![ExitReason::Success], vec![]),
        (
            after_boot(vec![stop(), exit(Exit::Unknown)]),
            vec![ExitReason::Unknown],
            vec![(Mode::Graceful, Unknown)],
        ),
        (
            after_boot(vec![stop(), exit(Exit::Code(1))]),
            vec![ExitReason::Error],
            vec![(Mode::Graceful, Failed)],
        ),
    ] {
        let policy = Policy { termination_timeout: Duration::ZERO, ..on_failure() };
        let now = Instant::now();
        let mut supervision = Supervision::default();
        let (mut exited, mut drained) = (Vec::new(), Vec::new());
        for event in &events {
            let step = supervision.with(event.clone(), now, &policy);
            supervision = step.next;
            for effect in step.effects {
                match effect {
                    Effect::Count(Counted::Exit(reason)) => exited.push(reason),
                    Effect::Count(Counted::Drain(drain)) => drained.push((drain.mode, drain.result)),
                    _ => {}
                }
            }
        }
        assert_eq!((exited, drained), (exits, drains), "{events:?}");
    }
}

#[test]
fn drain_duration_counts_from_request() {
    let (now, policy) = (Instant::now(), Policy::default());
    let draining = Supervision::default()
        .with(Event::Boot, now, &policy)
        .next
        .with(Event::Spawned(PID), now, &policy)
        .next
        .with(Event::Stop(Stop { requested_at: now, ..graceful() }), now, &policy)
        .next;
    let step = draining.with(Event::Exited(Exit::Code(0)), now + 90 * SECOND, &policy);
    let duration = step.effects.iter().find_map(|effect| match effect {
        Effect::Count(Counted::Drain(drained)) => drained.duration,
        _ => None,
    });
    assert_eq!(duration, Some(90 * SECOND));
}
