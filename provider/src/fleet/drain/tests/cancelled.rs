//! Drains that an operator cancels on the host.

use super::*;
use crate::client::CancelledDrain;

/// The runner keeps running.
fn cancelled(id: &str) -> Snapshot {
    let mut snapshot = joined::drained_by(id, RunnerStatus::Running);
    let detail = snapshot.detail.as_mut().unwrap();
    detail.drain = None;
    let by = "uid 1000 (deploy), unix socket".to_owned();
    detail.cancelled = Some(CancelledDrain { id: id.to_owned(), by, at: None });
    snapshot
}

fn running() -> Snapshot {
    let mut snapshot = cancelled("");
    snapshot.detail.as_mut().unwrap().cancelled = None;
    snapshot
}

#[track_caller]
fn cancelled_id(failure: &Failure<NotDrained>) -> &str {
    match &failure.reason {
        Reason::Problem(NotDrained::Cancelled(cancelled)) => &cancelled.id,
        _ => panic!("{failure:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_drain_ends_the_wait_and_is_not_requested_again() {
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok::<_, ScriptedFault>(match input.graceful.map(|since| since.as_secs()) {
            None => running(),
            Some(0..60) => joined::drained_by("ours", RunnerStatus::InShutdown),
            Some(_) => cancelled("ours"),
        })
    });
    let error = drained(&policy(), &wrapper).await.unwrap_err();
    assert_eq!((cancelled_id(&error), error.requested), ("ours", Requested::Accepted));
    assert_eq!(wrapper.requests(), (1, 0));
}

/// This drain has joined it.
#[tokio::test(start_paused = true)]
async fn cancelled_drain_of_another_client_ends_the_wait() {
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok::<_, ScriptedFault>(match input.elapsed.as_secs() {
            0..60 => joined::drained_by("operator", RunnerStatus::InShutdown),
            _ => cancelled("operator"),
        })
    });
    assert_eq!(cancelled_id(&drained(&policy(), &wrapper).await.unwrap_err()), "operator");
}

/// Between two reads of the status.
#[tokio::test(start_paused = true)]
async fn drain_of_another_client_after_the_cancel_is_joined() {
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok::<_, ScriptedFault>(match input.graceful.map(|since| since.as_secs()) {
            None => running(),
            Some(0..60) => joined::drained_by("ours", RunnerStatus::InShutdown),
            Some(60..120) => joined::drained_by("operator", RunnerStatus::InShutdown),
            Some(_) => joined::drained_by("operator", RunnerStatus::Stopped),
        })
    });
    assert_eq!(end(&drained(&policy(), &wrapper).await.unwrap()), (StartedBy::Here, false));
}
