//! The rows of [`next`].

use super::{joined::drained_by, *};
use crate::{client::CancelledDrain, fleet::drain::next::REQUEST_AGAIN};

/// A status, and what the drain has done before.
type Row = (&'static str, Snapshot, fn(&mut DrainState<'_>), &'static str);

fn nothing(_: &mut DrainState<'_>) {}

fn asked(state: &mut DrainState<'_>) {
    state.accepted();
}

/// The wrapper reports no drain, and `change`.
fn without_drain(status: RunnerStatus, change: fn(&mut crate::client::Detail)) -> Snapshot {
    let mut snapshot = drained_by("", status);
    let detail = snapshot.detail.as_mut().unwrap();
    detail.drain = None;
    change(detail);
    snapshot
}

fn due(
    policy: &DrainPolicy,
    snapshot: &Snapshot,
    before: fn(&mut DrainState<'_>),
    later: Duration,
) -> String {
    let mut state = DrainState::new(policy);
    before(&mut state);
    state.read(snapshot);
    match next(&state, snapshot, Instant::now() + later) {
        Next::Fail(problem) => format!("{problem:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
        next => format!("{next:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_status_has_its_next_step() {
    use RunnerStatus::{InShutdown, Running, Stopped, Unknown};
    let cancelled = |detail: &mut crate::client::Detail| {
        detail.cancelled = Some(CancelledDrain { id: "ours".to_owned(), by: String::new(), at: None });
    };
    let rows: [Row; 19] = [
        ("a runner works", Running.into(), nothing, "Request"),
        ("its wrapper starts it", Unknown(0).into(), nothing, "Request"),
        ("the request was accepted just now", Running.into(), asked, "Wait"),
        ("a drain was cancelled before this one", without_drain(Running, cancelled), nothing, "Request"),
        ("this drain was cancelled", without_drain(Running, cancelled), asked, "Cancelled"),
        ("upstream's wrapper shuts it down", InShutdown.into(), nothing, "Wait"),
        ("the drain of an interrupted run", drained_by("ours", InShutdown), nothing, "Wait"),
        ("the drain of an operator", drained_by("operator", InShutdown), nothing, "Request"),
        ("it was joined", drained_by("operator", InShutdown), asked, "Wait"),
        ("upstream's, forced", InShutdown.into(), |state| state.want = Mode::Forceful, "Request"),
        ("upstream's, after its exit", Stopped.into(), nothing, "Done"),
        ("drained by a client", drained_by("operator", Stopped), nothing, "Done"),
        ("drained by this one", drained_by("ours", Stopped), asked, "Done"),
        ("exited by itself", without_drain(Stopped, |_| {}), nothing, "Record"),
        ("stopped by the service manager", drained_by("signal", Stopped), nothing, "Record"),
        ("recorded, or refused", without_drain(Stopped, |_| {}), |state| state.recorded = true, "Done"),
        ("exited after the request", without_drain(Stopped, |_| {}), asked, "Done"),
        ("its wrapper exits", without_drain(Stopped, |it| it.shutting_down = true), nothing, "Wait"),
        ("it exits after the drain", without_drain(Stopped, |it| it.shutting_down = true), asked, "Done"),
    ];
    let request = DrainRequest { id: "ours".to_owned(), ..DrainRequest::default() };
    let policy = DrainPolicy { request, ..policy() };
    for (name, snapshot, before, expected) in &rows {
        assert_eq!(due(&policy, snapshot, *before, Duration::ZERO), *expected, "{name}");
    }
    // A request that was accepted, and has no effect, is repeated.
    assert_eq!(due(&policy, &Running.into(), asked, REQUEST_AGAIN), "Request");
    // It may be a job of this runner.
    let mut in_job = policy.clone();
    in_job.request.job_url = "https://gitlab.example/-/jobs/17".to_owned();
    assert_eq!(due(&in_job, &drained_by("ours", InShutdown), nothing, Duration::ZERO), "Request");
    let no_wait = DrainPolicy { until: Until::Signal, ..policy };
    assert_eq!(due(&no_wait, &drained_by("ours", InShutdown), asked, Duration::ZERO), "Done");
}

#[tokio::test(start_paused = true)]
async fn deadline_forces_only_a_drain_that_was_requested() {
    for (on_timeout, mode, requested, fails) in [
        (OnTimeout::Fail, Mode::Graceful, Requested::Accepted, true),
        (OnTimeout::Force, Mode::Graceful, Requested::No, true),
        (OnTimeout::Force, Mode::Graceful, Requested::Perhaps, false),
        (OnTimeout::Force, Mode::Graceful, Requested::Accepted, false),
        (OnTimeout::Force, Mode::Forceful, Requested::Accepted, true),
    ] {
        let policy = DrainPolicy { on_timeout, mode, ..policy() };
        let mut state = DrainState::new(&policy);
        state.requested = requested;
        assert_eq!(state.at_deadline().is_some(), fails, "{on_timeout:?} {mode:?} {requested:?}");
        // It is forced once.
        assert!(state.at_deadline().is_some());
    }
}
