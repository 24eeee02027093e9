//! Signals that the kernel refuses to send, and the signal that another process has sent already.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    event::{Context, Effect, Event, Refusal},
    observation::Observation,
    policy::Policy,
    process::Signal,
    state::{ChildInfo, Phase, State, Supervision},
    table_tests::{PID, SECOND, forceful, graceful},
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

/// A second SIGTERM would skip the runner's cleanup. The first one came from another process, or from a wrapper that was killed before it could save it.
#[test]
fn runner_that_aborts_its_jobs_gets_no_sigterm() {
    let (now, policy) = (Instant::now(), Policy::default());
    let child = ChildInfo { pid: PID, started: now.checked_sub(10 * SECOND).unwrap() };
    let running = || Supervision { state: State::Running { child, reload: None }, ..Supervision::default() };
    for (aborts_jobs, effects) in [(false, vec![Effect::Signal(Signal::Terminate)]), (true, vec![])] {
        let mut context = Context::new(now, &policy, true);
        context.observation = Observation { aborts_jobs, ..Observation::default() };
        let step = running().on(Event::Stop(forceful()), context);
        assert_eq!(step.effects, effects, "{aborts_jobs}");
        let State::Stopping { phase: Phase::Terminating { until }, .. } = step.next.state else {
            panic!("{:?}", step.next)
        };
        let killed = step.next.with(Event::Tick, until, &policy);
        assert_eq!(killed.effects, [Effect::Signal(Signal::Kill)]);
    }
}
