//! A child that systemd owns: it starts the child at any time, and restarts it.

use std::time::Duration;

use super::{
    Answer, ChildInfo, Context, Effect, End, Event, Mode, Moment, Observation, Phase, State, Step, Stop,
    StopId, StopOutcome, Supervision, table_tests::by_unit,
};
use crate::supervise::process::{Exit, Signal};

/// The state after these events, and the effects of the last one.
fn after(supervision: Supervision, events: impl IntoIterator<Item = Event>) -> (Supervision, Vec<Effect>) {
    let mut last = (supervision, Vec::new());
    for event in events {
        let Step { next, effects, .. } = last.0.on(event, Context::new(Moment::now(), &by_unit()));
        last = (next, effects);
    }
    last
}

fn drain() -> Stop {
    Stop::new("d", Mode::Graceful)
}

fn looked(stop: Stop) -> Event {
    Event::Looked(Box::new(Event::Stop(stop)))
}

#[test]
fn child_that_systemd_starts_again_is_a_restart() {
    let (first, second) = (ChildInfo::example(7), ChildInfo::example(8));
    let (running, _) = after(Supervision::default(), [Event::Appeared(first)]);
    assert_eq!((running.state.child(), running.restarts.count), (Some(first), 0));
    let (failed, _) = after(running, [Event::Exited(Exit::Code(1))]);
    assert!(matches!(failed.state, State::Backoff { .. }) && failed.due().is_none());
    let (again, _) = after(failed.clone(), [Event::Appeared(second)]);
    assert_eq!((again.state.child(), again.restarts.count), (Some(second), 1));
    assert!(again.restarts.automatic);
    let (over, _) = after(failed, [Event::NotRestarted]);
    assert!(matches!(over.state, State::Exited { stop: None, .. }));
    let (never, _) = after(Supervision::default(), [Event::NotRestarted]);
    assert!(matches!(never.state, State::Exited { end: End::NeverStarted, stop: None }));
}

/// systemd may have started a runner that the wrapper has not seen yet: `no_runner` would let its host be destroyed.
#[test]
fn drain_without_child_first_looks_for_one() {
    let child = ChildInfo::example(7);
    let end = End::Exited { pid: 6, exit: Exit::Code(1), killed: false };
    for state in [
        State::Idle,
        State::Backoff { end: end.clone() },
        State::Exited { end: end.clone(), stop: None },
        State::Exited { end, stop: Some(drain()) },
    ] {
        let before = Supervision { state, ..Supervision::default() };
        for request in [Event::Stop(drain()), Event::Leave(drain())] {
            let (next, effects) = after(before.clone(), [request.clone()]);
            assert_eq!(
                (next, effects),
                (before.clone(), vec![Effect::Save, Effect::Look(Box::new(request))])
            );
        }
        let (found, _) =
            after(before.clone(), [Event::Stop(drain()), Event::Appeared(child), Event::Stop(drain())]);
        assert!(found.awaits_gap() && found.is_held(), "{found:?}");
        let (none, _) = after(before, [Event::Stop(drain()), looked(drain())]);
        assert!(matches!(none.state, State::Exited { stop: Some(_), .. }) && none.is_held(), "{none:?}");
    }
}

#[test]
fn only_a_stop_of_a_client_keeps_others_from_a_start() {
    let child = ChildInfo::example(7);
    let (running, _) = after(Supervision::default(), [Event::Appeared(child)]);
    assert!(!running.is_held());
    let by_systemd = Stop::new(StopId::Signal, Mode::Graceful);
    let (stopping, _) = after(running, [Event::Stop(by_systemd)]);
    assert!(stopping.awaits_gap() && !stopping.is_held());
    let (joined, _) = after(stopping.clone(), [Event::Stop(drain())]);
    assert!(joined.is_held());
    let (stopped, _) = after(stopping, [Event::Exited(Exit::Code(0))]);
    assert!(!stopped.is_held());
    // A client wants the same after it.
    let Step { next, answer, .. } =
        stopped.clone().on(looked(drain()), Context::new(Moment::now(), &by_unit()));
    assert_eq!(answer, Ok(Answer::Already));
    assert!(next.is_held() && next.state.stop().and_then(|stop| stop.outcome) == Some(StopOutcome::Clean));
    // systemd starts the unit again, for a person or after an upgrade of its package.
    let (again, _) = after(stopped, [Event::Appeared(ChildInfo::example(8))]);
    assert!(
        matches!(again.state, State::Running { .. })
            && again.last_stop.is_some()
            && again.restarts.count == 0
    );
}

/// Without the drop-in, systemd starts the unit. The drain of a client goes on until a client requests a start.
#[test]
fn child_that_is_started_after_a_drain_of_a_client_is_drained_again() {
    let (first, second) = (ChildInfo::example(7), ChildInfo::example(8));
    let late = Stop { deadline: Some(Moment::now()), ..drain() };
    let (drained, _) = after(
        Supervision::default(),
        [Event::Appeared(first), Event::Stop(late), Event::Exited(Exit::Code(0))],
    );
    let (again, _) = after(drained.clone(), [Event::Appeared(second)]);
    assert!(again.awaits_gap() && again.is_held() && again.state.child() == Some(second), "{again:?}");
    assert_eq!(again.state.stop().map(|stop| (stop.mode, stop.outcome)), Some((Mode::Graceful, None)));
    // The next wrapper, without the state file.
    let (lost, _) = after(Supervision::of_lost_stop(), [Event::Appeared(second)]);
    assert!(lost.awaits_gap() && lost.is_held(), "{lost:?}");
    let (started, _) = after(drained, [Event::Start, Event::Spawned(second)]);
    assert!(matches!(started.state, State::Running { .. }) && !started.is_held());
}

/// What is known of the child before is not known of this one.
#[test]
fn child_after_one_that_aborted_its_jobs_gets_sigquit() {
    let (first, second) = (ChildInfo::example(7), ChildInfo::example(8));
    let aborts = Observation { aborts_jobs: true, ..Observation::default() };
    let (drained, _) = after(
        Supervision::default(),
        [
            Event::Appeared(first),
            Event::Stop(drain()),
            Event::Observed(first, aborts),
            Event::Exited(Exit::Code(0)),
        ],
    );
    let (again, _) = after(drained, [Event::Appeared(second)]);
    let later = Moment::now() + Duration::from_secs(3600);
    let step = again.with(Event::Tick, later, &by_unit());
    assert!(step.effects.contains(&Effect::Signal(Signal::Drain)), "{:?}", step.effects);
    let (ended, _) = after(step.next, [Event::Exited(Exit::Code(0))]);
    // Of the whole drain.
    assert_eq!(ended.state.stop().and_then(|stop| stop.outcome), Some(StopOutcome::JobsAborted));
}

#[test]
fn how_a_unit_has_ended_is_kept_under_the_next_wrapper() {
    let by_systemd = Stop::new(StopId::Signal, Mode::Graceful);
    let running = || after(Supervision::default(), [Event::Appeared(ChildInfo::example(7))]).0;
    let (stopped, _) = after(running(), [Event::Stop(by_systemd), Event::Exited(Exit::Code(0))]);
    let (waiting, _) = after(running(), [Event::Exited(Exit::Code(1))]);
    let (failed, _) = after(waiting.clone(), [Event::NotRestarted]);
    for state in [stopped, waiting, failed] {
        assert_eq!(state.clone().continued(Moment::now(), &by_unit()), state);
    }
}

/// The client that has requested it repeats its request, or another one does.
#[test]
fn drain_with_a_lost_state_file_becomes_that_of_a_client() {
    let child = ChildInfo::example(7);
    let lost = Supervision::of_lost_stop();
    let (lost, _) =
        after(lost, [Event::Appeared(child), Event::Stop(Stop::new(StopId::Signal, Mode::Graceful))]);
    assert!(lost.is_held(), "systemd stops the unit, perhaps to start it again: {lost:?}");
    let (lost, _) = after(lost, [Event::Stop(drain())]);
    assert_eq!(lost.state.stop().map(|stop| stop.id.as_str()), Some("d"));
}

/// Its first wrapper has confirmed that no job request was open at SIGQUIT. The wrapper is upgraded twice after it.
#[test]
fn confirmed_drain_stays_clean_under_the_next_wrappers() {
    let child = ChildInfo::example(7);
    let state = State::Stopping { child, stop: drain(), phase: Phase::draining(Moment::now()) };
    let stop = Supervision { state, ..Supervision::default() };
    let second = stop.continued(Moment::now(), &by_unit());
    let later = Moment::now() + Duration::from_secs(60);
    let third = second.continued(later, &by_unit());
    let (ended, _) = after(third, [Event::Exited(Exit::Code(0))]);
    assert_eq!(ended.state.stop().and_then(|stop| stop.outcome), Some(StopOutcome::Clean));
}
