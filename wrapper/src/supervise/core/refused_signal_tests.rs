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
};
use crate::supervise::process::Signal;

#[test]
fn refused_sigquit_is_repeated_and_drain_can_be_cancelled() {
    let now = Moment::now();
    let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let refused = |before: Supervision| {
        let error = "Operation not permitted".into();
        before.with(Event::SignalRefused(Signal::Drain, error), now, &policy).next
    };
    let child = child(now);
    let draining = |quit_sent_at| {
        let phase = Phase::Holding { until: now, quit_sent_at };
        let state = State::Stopping { child, stop: graceful(), phase };
        let holding = Supervision { state, ..Supervision::default() };
        refused(holding.with(Event::Tick, now, &policy).next)
    };
    let unsent = draining(None);
    assert!(unsent.is_quit_refused());
    let retry = now + (unsent.due().unwrap() - now.at);
    let repeated = unsent.clone().with(Event::Tick, retry, &policy);
    assert_eq!(repeated.effects, [Effect::Signal(Signal::Drain)]);
    assert!(!repeated.next.is_quit_refused());
    let cancelled = unsent.with(Event::Cancel(Cancel::default()), now, &policy);
    assert!(matches!(cancelled.next.state, State::Running { reload: None, .. }));
    assert!(!cancelled.next.is_quit_refused());

    // An earlier wrapper may have sent it.
    let answer = draining(Some(child.started)).with(Event::Cancel(Cancel::default()), now, &policy).answer;
    assert_eq!(answer, Err(Refusal::TooLate));
    assert_eq!(
        repeated.next.with(Event::Cancel(Cancel::default()), retry, &policy).answer,
        Err(Refusal::TooLate)
    );
}

/// A second SIGTERM would skip the runner's cleanup. The first one came from another process, or from a wrapper that was killed before it could save it.
#[test]
fn runner_that_aborts_its_jobs_gets_no_sigterm() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let running = || Supervision { state: State::Running { child, reload: None }, ..Supervision::default() };
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
        let phase = Phase::Holding { until: now, quit_sent_at: None };
        let state = State::Stopping { child, stop: graceful(), phase };
        let holding = Supervision { state, ..Supervision::default() };
        let seen = holding.with(Event::Observed(child, observed), now, &policy).next;
        let step = seen.with(Event::Tick, now, &policy);
        assert_eq!(step.effects, effects, "{aborts_jobs}");
        assert!(matches!(step.next.state, State::Stopping { phase: Phase::Draining { .. }, .. }));
    }
}

/// The earlier wrapper has sent SIGTERM at the deadline, and could not write the state file, because the disk was full.
#[test]
fn adopted_runner_is_probed_before_sigterm_at_a_past_deadline() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let stop = || Stop { deadline: Some(now), ..graceful() };
    for phase in [
        Phase::draining(now),
        Phase::Holding { until: now, quit_sent_at: None },
        Phase::AwaitingGap { until: now, open: None, quit_sent_at: None },
    ] {
        let state = State::Stopping { child, stop: stop(), phase };
        let adopted = Supervision { state, ..Supervision::default() }.adopted(true, now, &policy);
        let step = adopted.with(Event::Tick, now, &policy);
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

/// The wrapper was killed between the second attempt and the record of its success.
#[test]
fn sigterm_sent_after_a_refusal_leaves_time_for_the_cleanup() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let running = Supervision { state: State::Running { child, reload: None }, ..Supervision::default() };
    let step = running.with(Event::Stop(forceful()), now, &policy);
    assert_eq!(step.effects, [Effect::Signal(Signal::Terminate)]);
    let refused = step.next.with(Event::SignalRefused(Signal::Terminate, "EPERM".into()), now, &policy).next;
    let retry = now + (refused.due().unwrap() - now.at);
    let step = refused.with(Event::Tick, retry, &policy);
    assert_eq!(step.effects, [Effect::Signal(Signal::Terminate)]);
    let timeout = Policy::MIN_TERMINATION_TIMEOUT;
    let adopted = step.next.clone().adopted(true, retry, &policy);
    assert_eq!(adopted.due(), Some((retry + timeout).at), "SIGKILL comes early");
    let again = adopted.adopted(true, retry + timeout, &policy);
    assert_eq!(again.due(), Some((retry + timeout).at), "SIGKILL comes with the first adoption's time");
    let sent = step.next.with(Event::SignalSent(Signal::Terminate), retry, &policy).next;
    assert_eq!((sent.refused_signal(), sent.due()), (None, Some((retry + timeout).at)));
}

/// The next wrapper, or the new program of an upgrade, may be requested to stop the runner before its first probe.
#[test]
fn abort_seen_before_a_drain_is_in_the_state_file() {
    let (now, policy) = (Moment::now(), Policy::default());
    let child = child(now);
    let running = Supervision { state: State::Running { child, reload: None }, ..Supervision::default() };
    let observed = Observation {
        aborts_jobs: true,
        shutdown_timeout: Some(Duration::from_secs(600)),
        ..Observation::default()
    };
    let seen = running.with(Event::Observed(child, observed), now, &policy).next;
    let read: Supervision = serde_json::from_slice(&serde_json::to_vec(&seen).unwrap()).unwrap();
    for next in [read.clone(), read.clone().adopted(true, now, &policy)] {
        let step = next.with(Event::Stop(forceful()), now, &policy);
        assert_eq!(step.effects, [], "a second SIGTERM");
        assert_eq!(step.next.due(), Some((now + Duration::from_secs(615)).at));
    }
    assert_eq!(read.adopted(false, now, &policy).observed, Observation::default());
}
