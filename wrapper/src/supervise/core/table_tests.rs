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
    policy::{Leftovers, Policy, RestartWhen},
    state::{ChildInfo, Phase, Refused, Reload, State, Supervision},
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
    let refused = |retry_at| {
        let refused = Some(Refused { error: "not permitted".into(), retry_at });
        Phase::Draining { since: child.started, repeated: false, refused }
    };
    let dated = Stop { deadline: Some(now), ..graceful() };
    vec![
        ("idle", State::Idle),
        ("starting", State::Starting { child: None }),
        ("running", State::Running { child, reload: None }),
        ("running, reload held", State::Running { child, reload: Some(Reload::Held(later)) }),
        ("running, reload due", State::Running { child, reload: Some(Reload::Held(now)) }),
        ("holding", stopping(graceful(), Phase::Holding { until: later, quit_sent_at: None })),
        ("holding, due", stopping(graceful(), Phase::Holding { until: now, quit_sent_at: None })),
        (
            "holding, past deadline",
            stopping(dated.clone(), Phase::Holding { until: later, quit_sent_at: None }),
        ),
        (
            "holding, sent",
            stopping(graceful(), Phase::Holding { until: later, quit_sent_at: Some(child.started) }),
        ),
        (
            "holding, just sent",
            stopping(graceful(), Phase::Holding { until: later, quit_sent_at: Some(now) }),
        ),
        (
            "awaiting gap",
            stopping(graceful(), Phase::AwaitingGap { until: later, open: Some(2), quit_sent_at: None }),
        ),
        (
            "awaiting gap, perhaps sent",
            stopping(
                graceful(),
                Phase::AwaitingGap { until: later, open: Some(2), quit_sent_at: Some(child.started) },
            ),
        ),
        (
            "awaiting gap, due",
            stopping(graceful(), Phase::AwaitingGap { until: now, open: Some(2), quit_sent_at: None }),
        ),
        (
            "awaiting gap, past deadline",
            stopping(dated.clone(), Phase::AwaitingGap { until: later, open: None, quit_sent_at: None }),
        ),
        ("draining", stopping(graceful(), Phase::draining(child.started))),
        ("draining since now", stopping(graceful(), Phase::draining(now))),
        ("draining, refused", stopping(graceful(), refused(now))),
        ("draining, past deadline", stopping(dated, Phase::draining(child.started))),
        ("spacing", stopping(forceful(), Phase::Spacing { until: later })),
        ("spacing, due", stopping(forceful(), Phase::Spacing { until: now })),
        ("terminating", stopping(forceful(), Phase::Terminating { until: later, refused: None })),
        ("terminating, due", stopping(forceful(), Phase::Terminating { until: now, refused: None })),
        ("killed", stopping(forceful(), Phase::Killed { refused: None })),
        ("backoff", State::Backoff { until: later, end: end() }),
        ("backoff, due", State::Backoff { until: now, end: end() }),
        ("stopped", State::Exited { end: end(), stop: None }),
        ("stopped as asked", State::Exited { end: end(), stop: Some(graceful()) }),
    ]
}

/// One of every event, and whether the child handles SIGQUIT.
fn events(now: Moment) -> Vec<(&'static str, Event, bool)> {
    let with_callback = Stop { callbacks: vec![callback(1)], ..graceful() };
    let child = child(now);
    let requests = |open| Event::JobRequests(child, RequestsRead { ended: now, open, may_begin: false });
    vec![
        ("boot", Event::Boot, false),
        ("start", Event::Start, false),
        ("spawned", spawned(now), false),
        ("spawn failed", Event::SpawnFailed(Arc::from("no")), false),
        ("exited, code 0", exited(Exit::Code(0)), false),
        ("exited, code 1", exited(Exit::Code(1)), false),
        ("tick", Event::Tick, false),
        ("tick, handler", Event::Tick, true),
        ("SIGQUIT sent", Event::SignalSent(Signal::Drain), false),
        ("SIGQUIT refused", Event::SignalRefused(Signal::Drain, "not permitted".into()), false),
        (
            "aborts jobs",
            Event::Observed(child, Observation { aborts_jobs: true, ..Observation::default() }),
            false,
        ),
        ("open requests", requests(Some(1)), true),
        ("no open request", requests(Some(0)), true),
        ("requests unknown", requests(None), true),
        ("stop", Event::Stop(graceful()), false),
        ("stop, handler", Event::Stop(graceful()), true),
        ("stop, callback", Event::Stop(with_callback), false),
        ("force", Event::Stop(forceful()), false),
        ("cancel", Event::Cancel(Cancel::default()), false),
        ("reload", Event::Reload, false),
        ("reload, handler", Event::Reload, true),
        ("called", Event::CallbackFinished(callback(1)), false),
        ("log read", Event::LogRead(Arc::from("why")), false),
        ("leave", Event::Leave(graceful()), false),
    ]
}

impl Supervision {
    /// The transition where it is unknown whether the child handles SIGQUIT.
    pub(super) fn with(self, event: Event, now: Moment, policy: &Policy) -> Step {
        self.on(event, Context::new(now, policy, false))
    }
}

pub(super) fn on_failure() -> Policy {
    Policy { restart: RestartWhen::OnFailure, ..Policy::default() }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Spawn => "spawn".to_owned(),
        Effect::Signal(signal) => signal.to_string(),
        Effect::Callback(_) => "callback".to_owned(),
        Effect::ReadLog(child) => format!("read log of {}", child.pid()),
        Effect::Count(stop) => {
            format!("count stop {}", stop.outcome.map_or("cancelled", StopOutcome::name))
        }
        Effect::Leave => "leave".to_owned(),
    }
}

/// Every state with every event, one line each.
#[test]
fn transition_table_matches_snapshot() {
    let now = Moment::now();
    let mut table = String::new();
    for (state_name, state) in states(now) {
        for (event_name, event, handles_quit) in events(now) {
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
    for policy in [Policy::default(), on_failure(), Policy { leave_when_stopped: true, ..Policy::default() }]
    {
        for leaving in [false, true] {
            for (state_name, state) in states(now) {
                for (event_name, event, handles_quit) in events(now) {
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
    if count(&Effect::Signal(Signal::Drain)) == 1 && !policy.request_gap_timeout.is_zero() {
        let (sent, was_waiting) = match &before.state {
            State::Stopping { phase, .. } => match phase {
                Phase::AwaitingGap { .. } => (false, true),
                // It was refused.
                Phase::Draining { .. } => (true, false),
                _ => (false, false),
            },
            _ => (false, false),
        };
        assert!(sent || was_waiting, "{context}: SIGQUIT without a gap");
    }
    let is_over = |supervision: &Supervision| matches!(supervision.state, State::Exited { .. });
    let ends = is_over(next) && (!is_over(before) || matches!(event, Event::Leave(_)));
    let leaves = ends && next.leaving;
    let leaving = before.leaving
        || (matches!(event, Event::Leave(_)) && answer.is_ok())
        || (policy.leave_when_stopped && is_over(next) && !is_over(before));
    assert_eq!(
        next.leaving, leaving,
        "{context}: the policy requires to leave when the child stops, only then"
    );
    let is_forceful = before.state.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
    assert!(!is_forceful || before.leftovers(policy) == Leftovers::Kill, "{context}: what it leaves behind");
    assert_eq!(count(&Effect::Leave) == 1, leaves, "{context}");
    if before.leaving {
        assert!(next.leaving, "{context}");
        // Sequences of events never have both, backoff and leaving; this test combines them anyway.
        assert!(spawns == 0 || *event == Event::Tick, "{context}: started while leaving");
    }
    // No state that moves on by itself forgets when.
    if let State::Stopping { phase, .. } = &next.state
        && !matches!(phase, Phase::Draining { .. } | Phase::Killed { .. })
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
    !matches!(before.state, State::Starting { .. }) && matches!(next.state, State::Starting { .. })
}
