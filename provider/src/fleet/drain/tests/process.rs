//! The exit of another process is not the end of a drain.

use super::*;

/// Process, drain, previous drain.
type Reported = (RunnerStatus, &'static str, Option<&'static str>, Option<&'static str>);

fn snapshot((status, process, drain, last_drain): Reported) -> Snapshot {
    let mut snapshot = callback::drained_by(drain.unwrap_or_default(), status);
    let detail = snapshot.detail.as_mut().unwrap();
    detail.process = process.to_owned();
    detail.drain = detail.drain.take().filter(|_| drain.is_some());
    detail.last_drain = last_drain.map(str::to_owned);
    snapshot
}

/// The first process drains for 60 s. Then `after` is reported for 60 s, and after that the drain of `last`. Returns the former processes that the
/// requests name, too. The wrapper refuses requests that name one if `is_alive`.
async fn drained_with(after: Reported, last: &'static str, is_alive: bool) -> (Outcome, Vec<String>) {
    let policy =
        DrainPolicy { request: DrainRequest { id: "ours".to_owned(), ..Default::default() }, ..policy() };
    let wrapper = Scripted::new(move |input: ScriptInput| {
        let reported = match (input.graceful, input.elapsed.as_secs()) {
            (None, _) => (RunnerStatus::Running, "first", None, None),
            (Some(_), 0..60) => (RunnerStatus::InShutdown, "first", Some("ours"), None),
            (Some(_), 60..120) => after,
            (Some(_), 0..200) => (RunnerStatus::InShutdown, last, Some("ours"), after.3),
            (Some(_), _) => (RunnerStatus::Stopped, "", Some("ours"), after.3),
        };
        Ok::<_, ScriptedFault>(snapshot(reported))
    })
    .refusing_beside(is_alive);
    let outcome = drained(&policy, &wrapper).await;
    (outcome, wrapper.former_processes())
}

#[tokio::test(start_paused = true)]
async fn drain_fails_while_former_process_runs_beside_another_runner() {
    for after in [
        (RunnerStatus::Running, "second", None, None),
        // Between two starts of the second one.
        (RunnerStatus::Unknown(0), "", None, None),
        (RunnerStatus::InShutdown, "second", Some("ours"), None),
        // The second one has already exited.
        (RunnerStatus::Stopped, "", None, None),
        (RunnerStatus::Stopped, "", Some("of another client"), None),
    ] {
        let (outcome, named) = drained_with(after, "second", true).await;
        assert!(matches!(outcome, Err(NotDrained::Connect { .. })), "{after:?}: {outcome:?}");
        assert!(named.len() > 1 && named.iter().all(|name| name == "first"), "{after:?}: {named:?}");
    }
}

/// The command of the wrapper has exited, and the runner that it started runs for 100 s more, or for ever.
#[tokio::test(start_paused = true)]
async fn drain_waits_for_a_runner_that_outlives_its_command() {
    for (runs_for, is_drained) in [(100, true), (u64::MAX, false)] {
        let wrapper = Scripted::new(move |input: ScriptInput| {
            let mut snapshot = snapshot(match input.graceful {
                None => (RunnerStatus::Running, "first", None, None),
                Some(_) => (RunnerStatus::Stopped, "", Some("ours"), None),
            });
            let is_left = input.graceful.is_some() && input.elapsed.as_secs() < runs_for;
            snapshot.detail.as_mut().unwrap().left_runner = is_left.then_some(7);
            Ok::<_, ScriptedFault>(snapshot)
        });
        let outcome = drained(&policy(), &wrapper).await;
        match outcome {
            Ok(Drained::Ended(ended)) => {
                assert!(is_drained && ended.waited.as_secs() >= runs_for, "{ended:?}");
            }
            Err(NotDrained::TimedOut { last: Some(last), .. }) => assert!(!is_drained, "{last:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn successor_of_a_process_that_ended_unseen_is_drained_with_a_warning() {
    for after in [
        (RunnerStatus::Running, "second", None, None),
        (RunnerStatus::Unknown(0), "", None, None),
        (RunnerStatus::InShutdown, "second", Some("of another client"), None),
        (RunnerStatus::Stopped, "", None, None),
    ] {
        let (outcome, named) = drained_with(after, "second", false).await;
        assert!(matches!(&outcome, Ok(Drained::Ended(ended)) if ended.exit_unseen), "{after:?}: {outcome:?}");
        assert_eq!(named, ["first"], "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reported_exit_and_same_process_need_no_check() {
    for (after, last) in [
        // A client started another runner after the drain.
        ((RunnerStatus::Running, "second", None, Some("ours")), "second"),
        ((RunnerStatus::Stopped, "", Some("ours"), None), "second"),
        // An older wrapper.
        ((RunnerStatus::InShutdown, "", Some("ours"), None), "first"),
        // The drain was cancelled, and the process then ended by itself.
        ((RunnerStatus::Running, "first", None, None), "second"),
    ] {
        let (outcome, named) = drained_with(after, last, true).await;
        assert!(
            matches!(&outcome, Ok(Drained::Ended(ended)) if !ended.exit_unseen),
            "{after:?}: {outcome:?}"
        );
        assert_eq!(named, [""; 0], "{after:?}");
    }
}
