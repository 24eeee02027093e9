//! Sequences of transitions: stops, cancellations, restarts, callbacks and what is counted.

use std::{sync::Arc, time::Duration};

use super::{
    end::End,
    event::{Answer, Cancel, Effect, Event, Refusal},
    moment::Moment,
    policy::{Policy, STABLE_AFTER},
    state::{Phase, Restarts, State, Supervision},
    stop::{Mode, Stop, StopId, StopOutcome},
    table_tests::{SECOND, aged, by_unit, callback, exited, forceful, graceful, spawned, states},
};
use crate::supervise::process::{Exit, Signal};

#[test]
fn stop_before_start_is_kept() {
    let now = Moment::now();
    let policy = Policy::default();
    let stopped = Supervision::default().with(Event::Stop(graceful()), now, &policy).next;
    let booted = stopped.with(Event::Boot, now, &policy);
    assert_eq!(booted.effects, []);
    assert!(matches!(booted.next.state, State::Exited { end: End::NeverStarted, .. }));
}

#[test]
fn cancel_requires_matching_drain_id() {
    let now = Moment::now();
    let policy = Policy::default();
    let waiting = in_state("running", now).with(Event::Stop(graceful()), now, &policy).next;
    let cancel = |id: &str| {
        let id = Some(id).filter(|id| !id.is_empty()).map(StopId::from);
        waiting.clone().with(Event::Cancel(Cancel { id, ..Cancel::default() }), now, &policy)
    };
    assert_eq!(cancel("another").answer, Err(Refusal::OtherStop));
    assert_eq!(cancel("another").next, waiting);
    for id in ["", "test"] {
        assert!(matches!(cancel(id).next.state, State::Running { .. }));
    }
}

/// One row for each pair of a drain in progress and a call that joins it, in seconds from now.
#[test]
fn joining_drain_only_shortens_deadline() {
    let now = Moment::now();
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
        for id in ["test", "another", "signal"].map(StopId::from) {
            for (name, state) in states(now) {
                let Some(stop) = state.stop().filter(|stop| stop.mode == mode).cloned() else { continue };
                if matches!(state, State::Exited { .. }) {
                    continue;
                }
                let stop = Stop { id: id.clone(), deadline: at(first), ..stop };
                let State::Stopping { child, phase, .. } = state else { panic!("{name}") };
                let state = State::Stopping { child, stop, phase };
                let before = Supervision { state, ..Supervision::default() };
                let request = Stop {
                    deadline: at(joining),
                    callbacks: vec![callback(3)],
                    ..Stop::new("joining", Mode::Graceful)
                };
                let step = before.with(Event::Stop(request), now, &policy);
                assert_eq!(step.answer, Ok(Answer::Joined(id.clone())), "{name}");
                let stop = step.next.state.stop().unwrap();
                assert_eq!((stop.deadline, stop.mode), (at(holds), mode), "{name}: {first:?} {joining:?}");
                assert!(stop.callbacks.contains(&callback(3)), "{name}");
                // A drain for the exit of the wrapper becomes the drain of the client that requested the stop.
                let owner = if id == StopId::Signal { StopId::from("joining") } else { id.clone() };
                assert_eq!(stop.id, owner, "{name}");
            }
        }
    }
}

#[test]
fn forceful_request_makes_joined_drain_forceful() {
    let now = Moment::now();
    for (name, state) in states(now) {
        let under_way = !matches!(state, State::Exited { .. }) && state.stop().is_some();
        if !under_way {
            continue;
        }
        let before = Supervision { state, ..Supervision::default() };
        let request = Stop::new("force", Mode::Forceful);
        let step = before.with(Event::Stop(request), now, &Policy::default());
        assert_eq!(step.answer, Ok(Answer::Joined("test".into())), "{name}");
        assert_eq!(step.next.state.stop().unwrap().mode, Mode::Forceful, "{name}");
    }
}

#[test]
fn last_stop_is_kept_after_start() {
    let now = Moment::now();
    let policy = Policy::default();
    let on = |before: Supervision, event| before.with(event, now, &policy).next;
    let running = || on(on(Supervision::default(), Event::Boot), spawned(now));
    let request = Stop { reason: Arc::from("why"), callbacks: vec![callback(1)], ..graceful() };
    let ended = on(on(running(), Event::Stop(request.clone())), exited(Exit::Code(3)));
    assert_eq!(ended.last_stop, None, "it is the present one");
    let again = on(on(ended, Event::Start), spawned(now));
    let past = again.last_stop.clone().unwrap();
    assert_eq!((&past.stop.reason, &past.stop.callbacks), (&request.reason, &request.callbacks));
    // Its callback is still being sent.
    let finished = on(again.clone(), Event::CallbackFinished(callback(1))).last_stop.unwrap();
    assert_eq!(finished.stop.callbacks, []);
    assert!(matches!(past.end, End::Exited { exit: Exit::Code(3), .. }));
    // A crash is not a stop.
    let crashed = on(on(again.clone(), exited(Exit::Code(1))), Event::Start);
    assert_eq!(crashed.last_stop, again.last_stop);
    let next = on(on(again, Event::Stop(forceful())), exited(Exit::Code(0)));
    assert_eq!(on(next, Event::Start).last_stop.unwrap().stop.mode, Mode::Forceful);
}

#[test]
fn callback_count_is_limited() {
    let now = Moment::now();
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

fn in_state(name: &str, now: Moment) -> Supervision {
    let (_, state) = states(now).into_iter().find(|(known, _)| *known == name).unwrap();
    Supervision { state, ..Supervision::default() }
}

/// The kernel sends SIGQUIT to the runner of a killed wrapper. The next wrapper waits for its exit, and starts another one.
#[test]
fn runner_of_a_killed_parent_drains_and_is_replaced() {
    let now = Moment::now();
    let policy = Policy::default();
    let shutdown = Stop::new(StopId::Signal, Mode::Graceful);
    let running = in_state("running", now);
    let left = running.clone().with(Event::Leave(shutdown), now, &policy).next;
    for before in [running.clone(), left] {
        let next = before.of_killed_parent(now, &policy);
        let stop = next.state.stop().unwrap();
        assert!(next.awaits_gap() && stop.unconfirmed && !next.leaving, "{stop:?}");
        assert_eq!(
            next.clone().with(Event::Cancel(Cancel::default()), now, &policy).answer,
            Err(Refusal::TooLate)
        );
        assert_eq!(next.clone().with(Event::Boot, now, &policy).answer, Ok(Answer::Already));
        let ended = next.clone().with(exited(Exit::Unknown), now, &policy);
        assert_eq!(ended.next.state, State::Starting);
        assert!(ended.effects.contains(&Effect::Spawn), "{:?}", ended.effects);
        let past = ended.next.last_stop.unwrap();
        assert_eq!(past.stop.outcome, Some(StopOutcome::Unknown));
        // A client that joins becomes the owner of the stop.
        let joined = next.with(Event::Stop(Stop::new("deploy", Mode::Graceful)), now, &policy).next;
        let ended = joined.with(exited(Exit::Unknown), now, &policy).next;
        assert!(matches!(ended.state, State::Exited { stop: Some(_), .. }), "{ended:?}");
    }
    // So does a client that had requested the stop before.
    let drain = running.with(Event::Stop(graceful()), now, &policy).next;
    let ended = drain.of_killed_parent(now, &policy).with(exited(Exit::Unknown), now, &policy).next;
    assert!(matches!(ended.state, State::Exited { stop: Some(_), .. }), "{ended:?}");
}

/// A wrapper that was killed may have sent SIGQUIT a moment ago, whatever its state says.
#[test]
fn sigterm_of_next_wrapper_keeps_distance_from_sigquit() {
    let (now, policy) = (Moment::now(), Policy::default());
    for name in ["awaiting gap", "draining", "draining since now"] {
        let continued = in_state(name, now).continued(now, &policy);
        let forced = continued.with(Event::Stop(forceful()), now, &policy);
        assert_eq!(forced.effects, [], "{name}");
        let State::Stopping { phase: Phase::Spacing { until }, .. } = forced.next.state else {
            panic!("{name}")
        };
        assert_eq!(until, now + policy.signal_spacing, "{name}");
    }
}

#[test]
fn crash_loop_is_reported_until_child_is_stable() {
    let policy = by_unit();
    let now = Moment::now();
    let mut supervision = Supervision::default();
    for round in 0..6 {
        supervision = supervision.with(Event::Appeared(aged(now, SECOND)), now, &policy).next;
        assert_eq!((supervision.restarts.count, supervision.restarts.automatic), (round, round > 0));
        supervision = supervision.with(exited(Exit::Code(1)), now, &policy).next;
        assert_eq!(supervision.is_crash_loop(now), round >= 4);
    }
    let running = supervision.with(Event::Appeared(aged(now, Duration::ZERO)), now, &policy).next;
    assert!(running.is_crash_loop(now + STABLE_AFTER - SECOND) && !running.is_crash_loop(now + STABLE_AFTER));
    let failed = running.clone().with(exited(Exit::Signal(9)), now + STABLE_AFTER, &policy).next;
    assert_eq!((failed.restarts.failures, failed.is_crash_loop(now)), (1, false));
    // Failures of earlier children do not count after a requested start.
    let started = failed.with(Event::Start, now, &policy).next.with(spawned(now), now, &policy).next;
    assert_eq!(started.restarts, Restarts::default());
    // A start that changes nothing forgets nothing.
    assert_eq!(running.clone().with(Event::Start, now, &policy).next, running);
}

/// The last error of a failed child is kept until the next child. That of a child that exited with code 0, or as requested, is not read.
#[test]
fn last_error_of_failed_child_kept_until_next_child() {
    let now = Moment::now();
    let read = Event::LogRead(Arc::from("why"));
    for policy in [Policy::default(), by_unit()] {
        let on = |before: Supervision, event| before.with(event, now, &policy).next;
        let running = || on(on(Supervision::default(), Event::Boot), spawned(now));
        let wants = |event, wanted: bool| {
            let step = running().with(event, now, &policy);
            let effect = Effect::ReadLog(aged(now, Duration::ZERO));
            assert_eq!(step.effects.contains(&effect), wanted, "{:?}", step.next);
            step.next
        };
        let ended = wants(exited(Exit::Code(0)), false);
        assert_eq!(on(ended, read.clone()).last_error, None);
        wants(exited(Exit::Unknown), true);
        wants(exited(Exit::Signal(9)), true);
        let failed = on(wants(exited(Exit::Code(1)), true), read.clone());
        assert_eq!(failed.last_error.as_deref(), Some("why"));
        let again = on(on(failed, Event::Start), spawned(now));
        assert_eq!(again.last_error, None);

        for (exit, wanted) in [(Exit::Unknown, false), (Exit::Code(1), true)] {
            let step = on(running(), Event::Stop(forceful())).with(exited(exit), now, &policy);
            let reads = step.effects.iter().any(|effect| matches!(effect, Effect::ReadLog(_)));
            assert_eq!(reads, wanted, "{exit:?}");
        }
    }
}

#[test]
fn each_drain_is_counted_once() {
    use StopOutcome::{Clean, Failed, Killed, NoRunner, Unknown};
    let exit = exited;
    let (stop, force) = (|| Event::Stop(graceful()), || Event::Stop(forceful()));
    let now = Moment::now();
    let boot = || vec![Event::Boot, spawned(now)];
    let after_boot = |events: Vec<Event>| [boot(), events].concat();
    for (events, drains) in [
        (after_boot(vec![exit(Exit::Signal(9))]), vec![]),
        (after_boot(vec![stop(), stop(), exit(Exit::Code(0)), stop()]), vec![(Mode::Graceful, Some(Clean))]),
        (after_boot(vec![stop(), force(), exit(Exit::Code(2))]), vec![(Mode::Graceful, Some(Failed))]),
        (
            after_boot(vec![stop(), force(), exit(Exit::Code(0))]),
            vec![(Mode::Graceful, Some(StopOutcome::JobsAborted))],
        ),
        (after_boot(vec![force(), Event::Tick, exit(Exit::Signal(9))]), vec![(Mode::Forceful, Some(Killed))]),
        (after_boot(vec![stop(), Event::Cancel(Cancel::default())]), vec![(Mode::Graceful, None)]),
        (vec![stop()], vec![(Mode::Graceful, Some(NoRunner))]),
        (after_boot(vec![exit(Exit::Code(1)), stop()]), vec![(Mode::Graceful, Some(NoRunner))]),
        (
            vec![Event::Boot, Event::SpawnFailed(Arc::from("no")), stop()],
            vec![(Mode::Graceful, Some(NoRunner))],
        ),
        // It drains nothing, and is recorded once.
        (after_boot(vec![exit(Exit::Code(0)), stop(), stop()]), vec![(Mode::Graceful, Some(NoRunner))]),
        (after_boot(vec![stop(), exit(Exit::Unknown)]), vec![(Mode::Graceful, Some(Unknown))]),
        (after_boot(vec![stop(), exit(Exit::Code(1))]), vec![(Mode::Graceful, Some(Failed))]),
    ] {
        let policy = Policy { termination_timeout: Some(Duration::ZERO), ..Policy::default() };
        let mut supervision = Supervision::default();
        let mut drained = Vec::new();
        for event in &events {
            let step = supervision.with(event.clone(), now, &policy);
            supervision = step.next;
            for effect in step.effects {
                if let Effect::Count(stop) = effect {
                    drained.push((stop.mode, stop.outcome));
                }
            }
        }
        assert_eq!(drained, drains, "{events:?}");
    }
}

/// A slow disk delays the state file, which is written before the signal.
#[test]
fn time_after_signal_starts_when_signal_is_sent() {
    let (now, policy) =
        (Moment::now(), Policy { termination_timeout: Some(60 * SECOND), ..Policy::default() });
    let sent = now + 3 * SECOND;
    let draining = in_state("draining", now).with(Event::SignalSent(Signal::Drain), sent, &policy).next;
    let forced = draining.with(Event::Stop(forceful()), sent, &policy).next;
    let State::Stopping { phase: Phase::Spacing { until }, .. } = forced.state else { panic!("{forced:?}") };
    assert_eq!(until, sent + policy.signal_spacing);
    let terminating = forced.with(Event::Tick, until, &policy).next;
    let sent = until + 3 * SECOND;
    let terminating = terminating.with(Event::SignalSent(Signal::Terminate), sent, &policy).next;
    let State::Stopping { phase: Phase::Terminating { until: kill, .. }, .. } = terminating.state else {
        panic!("{terminating:?}")
    };
    assert_eq!(kill, sent + 60 * SECOND);
}
