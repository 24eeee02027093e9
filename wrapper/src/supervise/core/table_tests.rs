//! The table as a snapshot, and the invariants of each transition.

use std::{
    collections::HashMap,
    fmt::{Display, Write},
    sync::{Arc, LazyLock},
    time::Duration,
};

use super::{
    callback::Callback,
    end::End,
    event::{Answer, Cancel, Context, Effect, Event},
    moment::Moment,
    observation::{Observation, RequestsRead},
    policy::Policy,
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Mode, Stop, StopOutcome},
    transition::Step,
};
use crate::supervise::process::{Exit, Identity, Signal};

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

pub(super) fn end() -> End {
    End::Exited { pid: PID, exit: Exit::Code(1), killed: false }
}

/// A child of this age.
pub(super) fn aged(now: Moment, age: Duration) -> ChildInfo {
    let process =
        Identity { pid: PID, start_ticks: 1, boot: "00000000-0000-0000-0000-000000000001".parse().unwrap() };
    ChildInfo { process, started: now - age }
}

/// The event that a child was started now.
pub(super) fn spawned(now: Moment) -> Event {
    Event::Spawned(aged(now, Duration::ZERO))
}

pub(super) fn exited(exit: Exit) -> Event {
    Event::Exited(exit)
}

/// A child that is 10 s old.
pub(super) fn child(now: Moment) -> ChildInfo {
    aged(now, 10 * SECOND)
}

/// One of every state, in each form that the table distinguishes. The child is 10 s old.
pub(super) fn states(now: Moment) -> Vec<(&'static str, State)> {
    let child = child(now);
    let later = now + 5 * SECOND;
    let stopping = |stop, phase| State::Stopping { child, stop, phase };
    let waits =
        |not_before, until, open, quit_sent_at| Phase::AwaitingGap { not_before, until, open, quit_sent_at };
    let dated = Stop { deadline: Some(now), ..graceful() };
    vec![
        ("idle", State::Idle),
        ("starting", State::Starting),
        ("running", State::Running { child, reload_at: None }),
        ("running, reload held", State::Running { child, reload_at: Some(later) }),
        ("running, reload due", State::Running { child, reload_at: Some(now) }),
        ("awaiting gap, too young", stopping(graceful(), waits(later, later + SECOND, None, None))),
        ("awaiting gap", stopping(graceful(), waits(now, later, Some(2), None))),
        ("awaiting gap, perhaps sent", stopping(graceful(), waits(now, later, Some(2), Some(child.started)))),
        ("awaiting gap, just sent", stopping(graceful(), waits(now, later, None, Some(now)))),
        ("awaiting gap, due", stopping(graceful(), waits(now, now, Some(2), None))),
        ("awaiting gap, past deadline", stopping(dated.clone(), waits(now, later, None, None))),
        ("draining", stopping(graceful(), Phase::draining(child.started))),
        ("draining since now", stopping(graceful(), Phase::draining(now))),
        ("draining, past deadline", stopping(dated, Phase::draining(child.started))),
        ("spacing", stopping(forceful(), Phase::Spacing { until: later })),
        ("spacing, due", stopping(forceful(), Phase::Spacing { until: now })),
        ("terminating", stopping(forceful(), Phase::Terminating { until: later })),
        ("terminating, due", stopping(forceful(), Phase::Terminating { until: now })),
        ("killed", stopping(forceful(), Phase::Killed)),
        ("backoff", State::Backoff { end: end() }),
        ("stopped", State::Exited { end: end(), stop: None }),
        ("stopped as asked", State::Exited { end: end(), stop: Some(graceful()) }),
    ]
}

/// One of every event.
fn events(now: Moment) -> Vec<(&'static str, Event)> {
    let with_callback = Stop { callbacks: vec![callback(1)], ..graceful() };
    let child = child(now);
    let requests = |open| Event::JobRequests(child, RequestsRead { ended: now, open, may_begin: false });
    let aborts = Observation { aborts_jobs: true, ..Observation::default() };
    vec![
        ("boot", Event::Boot),
        ("start", Event::Start),
        ("spawned", spawned(now)),
        ("spawn failed", Event::SpawnFailed(Arc::from("no"))),
        ("exited, code 0", exited(Exit::Code(0))),
        ("exited, code 1", exited(Exit::Code(1))),
        ("appeared", Event::Appeared(aged(now, SECOND))),
        ("not restarted", Event::NotRestarted),
        ("tick", Event::Tick),
        ("SIGQUIT sent", Event::SignalSent(Signal::Drain)),
        ("SIGQUIT refused", Event::SignalRefused(Signal::Drain, "not permitted".into())),
        ("SIGKILL refused", Event::SignalRefused(Signal::Kill, "not permitted".into())),
        ("aborts jobs", Event::Observed(child, aborts)),
        ("open requests", requests(Some(1))),
        ("no open request", requests(Some(0))),
        ("requests unknown", requests(None)),
        ("stop", Event::Stop(graceful())),
        ("stop, callback", Event::Stop(with_callback)),
        ("force", Event::Stop(forceful())),
        ("cancel", Event::Cancel(Cancel::default())),
        ("reload", Event::Reload),
        ("called", Event::CallbackFinished(callback(1))),
        ("log read", Event::LogRead(Arc::from("why"))),
        ("leave", Event::Leave(graceful())),
    ]
}

impl Supervision {
    pub(super) fn with(self, event: Event, now: Moment, policy: &Policy) -> Step {
        let mut step = self.on(event, Context::new(now, policy));
        step.effects.retain(|effect| *effect != Effect::Save);
        step
    }
}

/// systemd owns the child.
pub(super) fn by_unit() -> Policy {
    Policy { by_unit: true, ..Policy::default() }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Save => "save".to_owned(),
        Effect::Spawn => "spawn".to_owned(),
        Effect::Look(_) => "look".to_owned(),
        Effect::Signal(signal) => signal.to_string(),
        Effect::Callback(_) => "callback".to_owned(),
        Effect::ReadLog(child) => format!("read log of {}", child.pid()),
        Effect::Count(stop) => {
            format!("count stop {}", stop.outcome.map_or("cancelled", StopOutcome::name))
        }
        Effect::Exited(_, stop) => match stop.as_ref().and_then(|stop| stop.outcome) {
            Some(outcome) => format!("exited, {}", outcome.name()),
            None => "exited".to_owned(),
        },
        Effect::Leave => "leave".to_owned(),
    }
}

/// Every state with every event, one line each.
#[test]
fn transition_table_matches_snapshot() {
    let now = Moment::now();
    let mut table = String::new();
    for (state_name, state) in states(now) {
        for (event_name, event) in events(now) {
            let before = Supervision { state: state.clone(), ..Supervision::default() };
            // The owner of the child makes a difference only where there is no child.
            let policy = if state.child().is_some() { Policy::default() } else { by_unit() };
            let Step { next, effects, answer } = before.on(event, Context::new(now, &policy));
            let same = if next.state == state { " (same)" } else { "" };
            // The state is written first, except for the signal in a gap.
            let written = usize::from(effects[0] == Effect::Save);
            let effects: Vec<_> = effects[written..].iter().map(word).collect();
            let answer = match answer {
                Ok(Answer::Done) => String::new(),
                Ok(Answer::Already) => " already".to_owned(),
                Ok(Answer::Joined(id)) => format!(" joined: {id}"),
                Err(refusal) => format!(" refused: {refusal:?}"),
            };
            writeln!(
                table,
                "{state_name:27} {event_name:16} -> {}{same} [{}]{answer}",
                next.state.name(),
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
    let now = Moment::now();
    for policy in [Policy::default(), by_unit(), Policy { leave_when_stopped: true, ..Policy::default() }] {
        for leaving in [false, true] {
            for (state_name, state) in states(now) {
                for (event_name, event) in events(now) {
                    let before = Supervision { state: state.clone(), leaving, ..Supervision::default() };
                    let step = before.clone().on(event.clone(), Context::new(now, &policy));
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

/// A callback that was sent is repeated by no event before it is finished.
#[test]
fn sent_callback_is_not_repeated() {
    let now = Moment::now();
    let stop = Stop { callbacks: vec![callback(1)], ..graceful() };
    let state = State::Exited { end: end(), stop: Some(stop) };
    for policy in [Policy::default(), by_unit()] {
        for (name, event) in events(now) {
            let before = Supervision { state: state.clone(), ..Supervision::default() };
            let step = before.on(event, Context::new(now, &policy));
            let is_callback = |effect: &Effect| matches!(effect, Effect::Callback(_));
            assert!(!step.effects.iter().any(is_callback), "{name}: {:?}", step.effects);
        }
    }
}

fn check_step(before: &Supervision, event: &Event, step: &Step, policy: &Policy, context: &dyn Display) {
    let Step { next, effects, answer } = step;
    let event = if let Event::Looked(request) = event { request } else { event };
    let count = |wanted: &Effect| effects.iter().filter(|effect| *effect == wanted).count();
    assert!(effects.iter().filter(|effect| matches!(effect, Effect::Signal(_))).count() <= 1, "{context}");
    // Only a request, or systemd, starts another child.
    let may_start = matches!(event, Event::Start | Event::Appeared(_));
    if matches!(before.state, State::Exited { .. }) && !may_start {
        assert!(matches!(next.state, State::Exited { .. }), "{context}: stopped is final");
    }
    let spawns = count(&Effect::Spawn);
    assert_eq!(spawns == 1, starts(before, next), "{context}: {effects:?}");
    let has_child = before.state.child().is_some() && !matches!(event, Event::Exited(_));
    assert!(spawns == 0 || !has_child, "{context}: a second child");
    if let (Some(old), Some(new)) = (before.state.child(), next.state.child()) {
        assert_eq!(old, new, "{context}: the child changed");
    }
    if answer.is_err() {
        assert_eq!(before.state, next.state, "{context}: a refusal changes nothing");
        let changes_nothing = |effect: &Effect| matches!(effect, Effect::Leave | Effect::Save);
        assert!(effects.iter().all(changes_nothing), "{context}: {effects:?}");
    }
    if count(&Effect::Signal(Signal::Drain)) == 1 && !policy.request_gap_timeout.is_zero() {
        assert!(before.awaits_gap(), "{context}: SIGQUIT without a gap");
    }
    let is_over = |supervision: &Supervision| matches!(supervision.state, State::Exited { .. });
    let looked = effects.iter().any(|effect| matches!(effect, Effect::Look(_)));
    let ends = is_over(next) && (!is_over(before) || (matches!(event, Event::Leave(_)) && !looked));
    let leaves = ends && next.leaving;
    let leaving = before.leaving
        || (matches!(event, Event::Leave(_)) && answer.is_ok() && !looked)
        || (policy.leave_when_stopped && is_over(next) && !is_over(before) && !next.is_held());
    assert_eq!(
        next.leaving, leaving,
        "{context}: the policy requires to leave when the child stops without a client, only then"
    );
    let gap = matches!(event, Event::JobRequests(..));
    let at = effects.iter().position(|effect| *effect == Effect::Save);
    let end = effects.len() - 1;
    assert_eq!(at, Some(if gap { end } else { 0 }), "{context}: {effects:?}");
    assert_eq!(count(&Effect::Leave) == 1, leaves, "{context}");
    if before.leaving {
        assert!(next.leaving, "{context}");
        assert_eq!(spawns, 0, "{context}: started while leaving");
    }
    // No state that moves on by itself forgets when.
    if let State::Stopping { phase, .. } = &next.state
        && !matches!(phase, Phase::Draining { .. } | Phase::Killed)
    {
        assert!(next.due().is_some(), "{context}");
    }
    // Nothing is due that a tick would not change.
    if let Some(due) = next.due() {
        let due = Moment { at: due, ..Moment::now() };
        let ticked = next.clone().with(Event::Tick, due, policy);
        assert_ne!(ticked.next, *next, "{context}: a tick at its time changes nothing");
    }
}

fn starts(before: &Supervision, next: &Supervision) -> bool {
    before.state != State::Starting && next.state == State::Starting
}
