//! Signals that the kernel refuses to send, and the signal that another process has sent already.

use std::time::Duration;

use super::{
    event::{Cancel, Effect, Event, Refusal},
    moment::Moment,
    observation::Observation,
    policy::Policy,
    state::{Phase, State, Supervision},
    stop::Stop,
    table_tests::{child, forceful, graceful},
    transition::SIGNAL_RETRY_DELAY,
};
use crate::supervise::process::Signal;

#[test]
fn refused_sigquit_is_repeated_and_drain_can_be_cancelled() {
    let now = Moment::now();
    let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let child = child(now);
    let refused = |repeated| {
        let phase = Phase::Draining { since: now, repeated };
        let state = State::Stopping { child, stop: graceful(), phase };
        let error = "Operation not permitted".into();
        let draining = Supervision { state, ..Supervision::default() };
        draining.with(Event::SignalRefused(Signal::Drain, error), now, &policy).next
    };
    let unsent = refused(false);
    assert!(unsent.awaits_gap());
    let retry = now + (unsent.due().unwrap() - now.at);
    assert!(retry > now);
    let repeated = unsent.clone().with(Event::Tick, retry, &policy);
    assert_eq!(repeated.effects, [Effect::Signal(Signal::Drain)]);
    let sent = repeated.next.clone().with(Event::SignalSent(Signal::Drain), retry, &policy).next;
    assert_eq!(sent.signal_error, None);
    let cancelled = unsent.with(Event::Cancel(Cancel::default()), now, &policy);
    assert!(matches!(cancelled.next.state, State::Running { reload_at: None, .. }));

    // An earlier wrapper may have sent it.
    let answer = refused(true).with(Event::Cancel(Cancel::default()), now, &policy).answer;
    assert_eq!(answer, Err(Refusal::TooLate));
    assert_eq!(
        repeated.next.with(Event::Cancel(Cancel::default()), retry, &policy).answer,
        Err(Refusal::TooLate)
    );
}

#[test]
fn refused_sigterm_is_followed_by_sigkill_which_is_repeated() {
    let (now, policy) = (Moment::now(), Policy::default());
    let state = State::Running { child: child(now), reload_at: None };
    let mut next =
        Supervision { state, ..Supervision::default() }.with(Event::Stop(forceful()), now, &policy).next;
    for signal in [Signal::Terminate, Signal::Kill, Signal::Kill] {
        next = next.with(Event::SignalRefused(signal, "EPERM".into()), now, &policy).next;
        assert!(next.signal_error.is_some());
        let due = now + (next.due().unwrap() - now.at);
        assert_eq!(due.since(now), SIGNAL_RETRY_DELAY);
        let step = next.with(Event::Tick, due, &policy);
        assert_eq!(step.effects, [Effect::Signal(Signal::Kill)]);
        next = step.next;
    }
}

/// A second SIGTERM would skip the runner's cleanup. The first one came from another process, or from a wrapper that was killed before it could save it.
#[test]
fn runner_that_aborts_its_jobs_gets_no_sigterm() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let running =
        || Supervision { state: State::Running { child, reload_at: None }, ..Supervision::default() };
    for (aborts_jobs, effects) in [(false, vec![Effect::Signal(Signal::Terminate)]), (true, vec![])] {
        let observed = Observation { aborts_jobs, ..Observation::default() };
        let running = running().with(Event::Observed(child, observed), now, &policy).next;
        let step = running.with(Event::Stop(forceful()), now, &policy);
        assert_eq!(step.effects, effects, "{aborts_jobs}");
        let State::Stopping { phase: Phase::Terminating { until, .. }, .. } = step.next.state else {
            panic!("{:?}", step.next)
        };
        let killed = step.next.with(Event::Tick, until, &policy);
        assert_eq!(killed.effects, [Effect::Signal(Signal::Kill)]);
    }
}

/// SIGQUIT would end it immediately, without its cleanup.
#[test]
fn runner_that_aborts_its_jobs_gets_no_sigquit() {
    let now = Moment::now();
    let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let child = child(now);
    for (aborts_jobs, effects) in [(false, vec![Effect::Signal(Signal::Drain)]), (true, vec![])] {
        let observed = Observation { aborts_jobs, ..Observation::default() };
        let phase = Phase::awaiting_gap(now, None, &policy);
        let state = State::Stopping { child, stop: graceful(), phase };
        let waiting = Supervision { state, ..Supervision::default() };
        let seen = waiting.with(Event::Observed(child, observed), now, &policy).next;
        let step = seen.with(Event::Tick, now, &policy);
        assert_eq!(step.effects, effects, "{aborts_jobs}");
        assert!(matches!(step.next.state, State::Stopping { phase: Phase::Draining { .. }, .. }));
    }
}

/// The earlier wrapper has sent SIGTERM at the deadline, and could not write the state file, because the disk was full.
#[test]
fn continued_runner_is_probed_before_sigterm_at_a_past_deadline() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let stop = || Stop { deadline: Some(now), ..graceful() };
    for phase in [Phase::draining(now), Phase::awaiting_gap(now, None, &policy)] {
        let state = State::Stopping { child, stop: stop(), phase };
        let continued = Supervision { state, ..Supervision::default() }.continued(now, &policy);
        let step = continued.with(Event::Tick, now, &policy);
        assert_eq!(step.effects, [], "SIGTERM before a probe");
        let later = now + (step.next.due().unwrap() - now.at);
        assert!(later >= now + Duration::from_secs(5));
        for (aborts_jobs, effects) in [(false, vec![Effect::Signal(Signal::Terminate)]), (true, vec![])] {
            let observed = Observation { aborts_jobs, ..Observation::default() };
            let probed = step.next.clone().with(Event::Observed(child, observed), now, &policy).next;
            assert_eq!(probed.with(Event::Tick, later, &policy).effects, effects, "{aborts_jobs}");
        }
    }
}

/// The next wrapper may be requested to stop the runner before its first probe.
#[test]
fn abort_seen_before_a_drain_is_in_the_state_file() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let running = Supervision { state: State::Running { child, reload_at: None }, ..Supervision::default() };
    let observed = Observation {
        aborts_jobs: true,
        shutdown_timeout: Some(Duration::from_secs(600)),
        ..Observation::default()
    };
    let seen = running.with(Event::Observed(child, observed), now, &policy).next;
    let read: Supervision = serde_json::from_slice(&serde_json::to_vec(&seen).unwrap()).unwrap();
    for next in [read.clone(), read.continued(now, &policy)] {
        let step = next.with(Event::Stop(forceful()), now, &policy);
        assert_eq!(step.effects, [], "a second SIGTERM");
        assert_eq!(step.next.due(), Some((now + Duration::from_secs(615)).at));
    }
}
