//! Signals that the kernel refuses to send.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    event::{Effect, Event, Refusal},
    policy::Policy,
    process::Signal,
    state::{ChildInfo, Phase, State, Supervision},
    table_tests::{PID, SECOND, graceful},
};

#[test]
fn refused_sigquit_is_repeated_and_drain_can_be_cancelled() {
    let now = Instant::now();
    let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let refused = |before: Supervision| {
        let error = "Operation not permitted".into();
        before.with(Event::SignalRefused(Signal::Drain, error), now, &policy).next
    };
    let child = ChildInfo { pid: PID, started: now.checked_sub(10 * SECOND).unwrap() };
    let draining = |quit_sent_at| {
        let phase = Phase::Holding { until: now, quit_sent_at };
        let state = State::Stopping { child, stop: graceful(), phase };
        let holding = Supervision { state, ..Supervision::default() };
        refused(holding.with(Event::Tick, now, &policy).next)
    };
    let unsent = draining(None);
    assert!(unsent.is_quit_refused());
    let retry = unsent.due().unwrap();
    let repeated = unsent.clone().with(Event::Tick, retry, &policy);
    assert_eq!(repeated.effects, [Effect::Signal(Signal::Drain)]);
    assert!(!repeated.next.is_quit_refused());
    let cancelled = unsent.with(Event::Cancel(None), now, &policy);
    assert!(matches!(cancelled.next.state, State::Running { reload: None, .. }));
    assert!(!cancelled.next.is_quit_refused());

    // An earlier wrapper may have sent it.
    let answer = draining(Some(child.started)).with(Event::Cancel(None), now, &policy).answer;
    assert_eq!(answer, Err(Refusal::TooLate));
    assert_eq!(repeated.next.with(Event::Cancel(None), retry, &policy).answer, Err(Refusal::TooLate));
}
