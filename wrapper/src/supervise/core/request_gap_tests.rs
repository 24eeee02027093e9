//! The wait for a gap between the child's job requests.

use std::time::Duration;

use super::{
    event::{Answer, Cancel, Effect, Event, Refusal},
    moment::Moment,
    observation::{Observation, RequestsCancelled, RequestsRead},
    policy::Policy,
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Cancelled, Mode, Stop, StopOutcome},
    table_tests::{SECOND, aged, child, exited, forceful, graceful},
    transition::SIGNAL_RETRY_DELAY,
};
use crate::supervise::process::{Exit, Signal};

const QUIT: Effect = Effect::Signal(Signal::Drain);

/// A read of the open requests that has ended now.
fn read(of: ChildInfo, ended: Moment, open: Option<u32>) -> Event {
    Event::JobRequests(of, RequestsRead { ended, open, may_begin: false })
}

/// A drain that waits for a gap since now.
fn waiting(now: Moment, stop: Stop) -> Supervision {
    let state = State::Running { child: child(now), reload_at: None };
    let step =
        Supervision { state, ..Supervision::default() }.with(Event::Stop(stop), now, &Policy::default());
    assert_eq!(step.effects, [], "no signal before a gap");
    let until = now + Policy::REQUEST_GAP_TIMEOUT;
    let expected = Phase::AwaitingGap { not_before: now, until, open: None, quit_sent_at: None };
    assert!(matches!(&step.next.state, State::Stopping { phase, .. } if *phase == expected));
    step.next
}

#[test]
fn sigquit_waits_until_no_request_is_open() {
    let (now, policy) = (Moment::now(), Policy::default());
    let requests = |open| read(child(now), now, open);
    for (open, recorded) in [(Some(0), Some(0)), (None, None)] {
        let step = waiting(now, graceful()).with(requests(Some(2)), now, &policy);
        assert_eq!(step.effects, []);
        assert_eq!(step.next.due(), Some((now + Policy::REQUEST_GAP_TIMEOUT).at));
        let other = read(ChildInfo { started: now, ..child(now) }, now, Some(0));
        let step = step.next.with(other, now, &policy);
        assert_eq!(step.effects, [], "of another child");
        let step = step.next.with(requests(open), now, &policy);
        assert_eq!(step.effects, [QUIT]);
        assert_eq!(step.next.state.stop().unwrap().open_requests, recorded);
    }
}

/// SIGQUIT would end a runner that has not installed its handlers.
#[test]
fn sigquit_is_not_sent_to_a_young_child() {
    let (now, policy) = (Moment::now(), Policy::default());
    let young = aged(now, SECOND);
    let state = State::Running { child: young, reload_at: None };
    let step = Supervision { state, ..Supervision::default() }.with(Event::Stop(graceful()), now, &policy);
    let old = now + policy.start_grace - SECOND;
    for at in [now, old - Duration::from_millis(1)] {
        let step = step.next.clone().with(read(young, at, Some(0)), at, &policy);
        assert_eq!((step.effects.as_slice(), step.next.awaits_gap()), (&[][..], true));
    }
    assert_eq!(step.next.clone().with(read(young, old, Some(0)), old, &policy).effects, [QUIT]);
    assert_eq!(step.next.due(), Some((old + policy.request_gap_timeout).at));
}

/// The task was busy, for example with a slow write of the state file. Meanwhile, the runner has requested jobs.
#[test]
fn sigquit_is_not_sent_for_an_old_read() {
    let (now, policy) = (Moment::now(), Policy::default());
    for open in [Some(0), None] {
        let report = read(child(now), now, open);
        let late = now + RequestsRead::MAX_AGE + Duration::from_millis(1);
        let step = waiting(now, graceful()).with(report.clone(), late, &policy);
        assert_eq!((step.effects.as_slice(), step.next.awaits_gap()), (&[][..], true), "{open:?}");
        let step = step.next.with(report, now + RequestsRead::MAX_AGE, &policy);
        assert_eq!(step.effects, [QUIT], "{open:?}");
    }
    // It is no reason for a signal, but the last known number at the timeout.
    let late = now + SECOND;
    let step = waiting(now, graceful()).with(read(child(now), now, Some(2)), late, &policy);
    let step = step.next.with(Event::Tick, now + Policy::REQUEST_GAP_TIMEOUT, &policy);
    assert_eq!(step.next.state.stop().unwrap().open_requests, Some(2));
}

/// On a busy machine, the next read can end before the signal. What the runner counts afterwards is more exact.
#[test]
fn request_of_a_read_around_sigquit_is_in_the_outcome() {
    let (now, policy) = (Moment::now(), Policy::default());
    let quit = waiting(now, graceful()).with(read(child(now), now, Some(0)), now, &policy).next;
    let quit = quit.with(Event::SignalSent(Signal::Drain), now, &policy).next;
    let late = quit.with(read(child(now), now, Some(1)), now, &policy).next;
    assert_eq!(late.state.stop().unwrap().open_requests, Some(1));
    let outcome = |supervision: Supervision| {
        supervision.with(exited(Exit::Code(0)), now, &policy).next.state.stop().unwrap().outcome
    };
    assert_eq!(outcome(late.clone()), Some(StopOutcome::OpenRequests));
    let counted = Event::RequestsCancelled(child(now), RequestsCancelled { number: 0, is_final: true });
    assert_eq!(outcome(late.with(counted, now, &policy).next), Some(StopOutcome::Clean));
}

#[test]
fn open_requests_at_the_timeout_are_in_the_outcome() {
    let (now, policy) = (Moment::now(), Policy::default());
    let open = waiting(now, graceful()).with(read(child(now), now, Some(2)), now, &policy).next;
    let timeout = now + Policy::REQUEST_GAP_TIMEOUT;
    let step = open.with(Event::Tick, timeout, &policy);
    assert_eq!(step.effects, [QUIT]);
    assert_eq!(step.next.state.stop().unwrap().open_requests, Some(2));
    // The next wrapper reads this from the state file, waits for another gap, and cannot cancel.
    let continued = step.next.clone().continued(timeout, &policy);
    let again = continued.with(Event::Tick, timeout, &policy);
    assert_eq!(again.effects, []);
    let of = again.next.state.child().unwrap();
    assert_eq!(of, child(now));
    assert_eq!(
        again.next.clone().with(Event::Cancel(Cancel::default()), timeout, &policy).answer,
        Err(Refusal::TooLate)
    );
    let continued_gap = again.next.clone();
    let again = again.next.with(read(of, timeout, Some(0)), timeout, &policy);
    assert_eq!(again.effects, [QUIT]);
    assert_eq!(again.next.state.stop().unwrap().open_requests, Some(2), "at the first SIGQUIT");
    // The first SIGQUIT was perhaps never sent.
    let more = continued_gap.with(read(of, timeout, Some(3)), timeout, &policy).next;
    let more = more.with(Event::Tick, timeout + policy.request_gap_timeout, &policy);
    assert_eq!((more.effects, more.next.state.stop().unwrap().open_requests), (vec![QUIT], Some(3)));
    let ended = step.next.with(exited(Exit::Code(0)), timeout, &policy).next;
    let stop = ended.state.stop().unwrap();
    assert_eq!((stop.outcome, stop.open_requests), (Some(StopOutcome::OpenRequests), Some(2)));
}

/// Until the next stop: the clients that wait for that one must not take it for cancelled.
#[test]
fn cancelled_stop_is_kept_with_its_client_and_time() {
    let (now, policy) = (Moment::now(), Policy::default());
    let cancel = Cancel { id: None, by: "uid 0, unix socket".into() };
    let next = waiting(now, graceful()).with(Event::Cancel(cancel.clone()), now, &policy).next;
    let record = Cancelled { id: "test".into(), by: cancel.by, at: now };
    assert_eq!(next.cancelled.as_deref(), Some(&record));
    assert_eq!(next.clone().continued(now, &policy).cancelled.as_deref(), Some(&record));
    assert_eq!(next.with(Event::Stop(graceful()), now, &policy).next.cancelled, None);
}

#[test]
fn wait_for_a_gap_can_be_cancelled_forced_and_overtaken() {
    let (now, policy) = (Moment::now(), Policy::default());
    let cancelled = waiting(now, graceful()).with(Event::Cancel(Cancel::default()), now, &policy);
    assert_eq!(cancelled.answer, Ok(Answer::Done));
    assert!(matches!(cancelled.next.state, State::Running { reload_at: None, .. }));
    // The runner was not asked to drain, so that SIGTERM needs no distance from SIGQUIT.
    let forced = waiting(now, graceful()).with(Event::Stop(forceful()), now, &policy);
    assert_eq!(forced.effects, [Effect::Signal(Signal::Terminate)]);
    let deadline = Some(now + SECOND);
    let late = waiting(now, Stop { deadline, ..graceful() });
    assert_eq!(late.due(), deadline.map(|deadline| deadline.at));
    let late = late.with(Event::Tick, now + SECOND, &policy);
    assert_eq!(late.effects, [Effect::Signal(Signal::Terminate)]);
    assert_eq!(late.next.state.stop().unwrap().mode, Mode::Forceful);
    let exited = waiting(now, graceful()).with(exited(Exit::Code(0)), now, &policy);
    assert_eq!(exited.next.state.stop().unwrap().outcome, Some(StopOutcome::Clean));
}

#[test]
fn continued_child_gets_sigquit_once_and_in_a_gap() {
    let (now, policy) = (Moment::now(), Policy::default());
    let continued = waiting(now, graceful()).continued(now, &policy);
    let step = continued.with(Event::Tick, now, &policy);
    assert_eq!(step.effects, []);
    assert!(matches!(step.next.state, State::Stopping { phase: Phase::AwaitingGap { .. }, .. }));
}

#[test]
fn no_gap_is_awaited_with_a_timeout_of_0() {
    let now = Moment::now();
    let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let state = State::Running { child: child(now), reload_at: None };
    let step = Supervision { state, ..Supervision::default() }.with(Event::Stop(graceful()), now, &policy);
    assert_eq!(step.effects, [QUIT]);
    assert_eq!(step.next.state.stop().unwrap().open_requests, None);
}

/// A job that GitLab assigns during the delay would be lost, and the outcome would be `clean`.
#[test]
fn refused_sigquit_waits_for_another_gap() {
    let (now, policy) = (Moment::now(), Policy::default());
    let requests = |open, at| read(child(now), at, Some(open));
    let step = waiting(now, graceful()).with(requests(0, now), now, &policy);
    assert_eq!(step.effects, [QUIT]);
    let refused = step.next.with(Event::SignalRefused(Signal::Drain, "EPERM".into()), now, &policy).next;
    assert_eq!(refused.state.stop().unwrap().open_requests, None, "the runner has not received it");
    assert_eq!(refused.signal_error.as_deref(), Some("SIGQUIT: EPERM"));
    let step = refused.with(requests(0, now + SECOND), now + SECOND, &policy);
    assert_eq!((step.effects.as_slice(), step.next.awaits_gap()), (&[][..], true), "too early");
    let retry = now + SIGNAL_RETRY_DELAY;
    let cancelled = step.next.clone().with(Event::Cancel(Cancel::default()), retry, &policy);
    assert_eq!(cancelled.answer, Ok(Answer::Done), "it was not sent");
    let open = step.next.with(requests(1, retry), retry, &policy).next;
    let step = open.with(Event::Tick, retry + Policy::REQUEST_GAP_TIMEOUT, &policy);
    assert_eq!(step.effects, [QUIT]);
    assert_eq!(step.next.state.stop().unwrap().open_requests, Some(1), "not that of the refused SIGQUIT");
}

/// What the child counts after SIGQUIT, and then the outcome.
fn outcome(quit: Supervision, now: Moment, cancelled: &[(u32, bool)]) -> (Option<StopOutcome>, Option<u32>) {
    let policy = Policy::default();
    let of = quit.state.child().unwrap();
    let add = |supervision: Supervision, (number, is_final): &(u32, bool)| {
        let cancelled = RequestsCancelled { number: *number, is_final: *is_final };
        supervision.with(Event::RequestsCancelled(of, cancelled), now, &policy).next
    };
    let ended = cancelled.iter().fold(quit, add).with(exited(Exit::Code(0)), now, &policy).next;
    let stop = ended.state.stop().unwrap();
    (stop.outcome, stop.open_requests)
}

#[test]
fn requests_counted_after_sigquit_decide_the_outcome() {
    use StopOutcome::{Clean, OpenRequests, Unknown};
    let (now, policy) = (Moment::now(), Policy::default());
    let quit = |open, may_begin| {
        let read = RequestsRead { ended: now, open, may_begin };
        let step = waiting(now, graceful()).with(Event::JobRequests(child(now), read), now, &policy);
        assert_eq!(step.effects, [QUIT]);
        step.next
    };
    let limit = |open| {
        let open: Vec<_> = open;
        let add =
            |waits: Supervision, open: u32| waits.with(read(child(now), now, Some(open)), now, &policy).next;
        let waits = open.into_iter().fold(waiting(now, graceful()), add);
        let step = waits.with(Event::Tick, now + Policy::REQUEST_GAP_TIMEOUT, &policy);
        assert_eq!(step.effects, [QUIT]);
        step.next
    };
    let at_once = |reports_requests| {
        let policy = Policy { request_gap_timeout: Duration::ZERO, ..Policy::default() };
        let phase = Phase::awaiting_gap(now, None, &policy);
        let state = State::Stopping { child: child(now), stop: graceful(), phase };
        let observed = Observation { reports_requests, ..Observation::default() };
        let step = Supervision { state, observed, ..Supervision::default() }.with(Event::Tick, now, &policy);
        assert_eq!(step.effects, [QUIT]);
        step.next
    };
    for (name, quit, cancelled, expected, number) in [
        ("at once", at_once(true), &[][..], Unknown, None),
        ("at once, counted", at_once(true), &[(0, true)], Clean, Some(0)),
        ("at once, one was cancelled", at_once(true), &[(1, false)], OpenRequests, Some(1)),
        ("at once, not reported", at_once(false), &[], Clean, None),
        ("idle", quit(Some(0), false), &[], Clean, Some(0)),
        ("idle, a request in between", quit(Some(0), false), &[(1, false)], OpenRequests, Some(1)),
        ("a job runs", quit(Some(0), true), &[], Unknown, Some(0)),
        ("a job runs, not counted yet", quit(Some(0), true), &[(0, false)], Unknown, Some(0)),
        ("a job runs, counted", quit(Some(0), true), &[(0, false), (0, true)], Clean, Some(0)),
        ("a job ended", quit(Some(0), true), &[(1, false), (1, true)], OpenRequests, Some(1)),
        ("not reported", quit(None, false), &[], Clean, None),
        ("not reported, counted", quit(None, false), &[(0, true)], Clean, Some(0)),
        ("unreadable", limit(vec![]), &[], Unknown, None),
        ("unreadable, then counted", limit(vec![]), &[(0, true)], Clean, Some(0)),
        ("open", limit(vec![2]), &[], OpenRequests, Some(2)),
        ("open, none of them was cancelled", limit(vec![2]), &[(0, true)], Clean, Some(0)),
        ("open, one was cancelled", limit(vec![2]), &[(1, true)], OpenRequests, Some(1)),
    ] {
        assert_eq!(outcome(quit, now, cancelled), (Some(expected), number), "{name}");
    }
}

/// SIGQUIT may have been sent just before the wrapper was killed, and a read of the next wrapper cannot show the requests that it cancelled.
#[test]
fn drain_is_not_clean_after_a_kill_near_sigquit() {
    let (now, policy) = (Moment::now(), Policy::default());
    let again = |saved: Supervision| {
        let later = now;
        let continued = saved.continued(now, &policy).with(Event::Tick, later, &policy).next;
        let of = continued.state.child().unwrap();
        let step = continued.with(read(of, later, Some(0)), later, &policy);
        assert_eq!(step.effects, [QUIT]);
        outcome(step.next, later, &[(0, false)])
    };
    assert_eq!(again(waiting(now, graceful())), (Some(StopOutcome::Unknown), Some(0)));
    // The state file has what was read.
    let quit = waiting(now, graceful()).with(read(child(now), now, Some(0)), now, &policy).next;
    assert_eq!(again(quit.clone()), (Some(StopOutcome::Clean), Some(0)));
    let cancelled = RequestsCancelled { number: 1, is_final: true };
    let quit = quit.with(Event::RequestsCancelled(child(now), cancelled), now, &policy).next;
    assert_eq!(again(quit), (Some(StopOutcome::OpenRequests), Some(1)));
}
