//! The progress of a wait, and its end.

use tokio::time::advance;

use grit_proto::wrapper_v1::{Mode, State};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn wait_without_terminal_prints_a_line_each_minute() {
    {
        let mut watcher = Watcher::new(Goal::Stopped, Progress::Lines, false);
        watcher.last = "is draining, 2 jobs".to_owned();
        let mut printed = Vec::new();
        // A status can also be shown twice in a second.
        for second in 0..=150 {
            for text in [watcher.due_progress(), watcher.due_progress()].into_iter().flatten() {
                printed.push((second, text));
            }
            advance(SECOND).await;
        }
        let line = |waited| format!("grit-wrapper: the runner is draining, 2 jobs; waited {waited}\n");
        assert_eq!(printed, [(60, line("1m")), (120, line("2m"))]);
    }
}

#[tokio::test(start_paused = true)]
async fn wait_on_terminal_always_rewrites_its_line() {
    let mut watcher = Watcher::new(Goal::Stopped, Progress::Terminal, false);
    watcher.last = "is draining".to_owned();
    assert_eq!(watcher.due_progress().as_deref(), Some("\r\x1b[Kis draining; waited 0s"));
    advance(61 * SECOND).await;
    assert_eq!(watcher.due_progress().as_deref(), Some("\r\x1b[Kis draining; waited 1m1s"));
}

fn status(drain: Option<Drain>, last_drain: Option<Drain>) -> Status {
    Status { state: State::Running.into(), drain, last_drain, ..Status::default() }
}

fn drain(id: &str, second: i64, outcome: DrainOutcome) -> Drain {
    Drain {
        id: id.to_owned(),
        mode: Mode::Graceful.into(),
        requested_at: Some(prost_types::Timestamp { seconds: second, nanos: 0 }),
        outcome: outcome.into(),
        ..Drain::default()
    }
}

/// Ids are reused: the default of the command is always the same.
#[test]
fn ended_drain_is_found_after_another_start() {
    use DrainOutcome::{Clean, Failed, Unspecified};
    let next = || Some(drain("next", 200, Unspecified));
    for (drain_now, last, outcome) in [
        (None, Some(drain("operator", 100, Clean)), Some(Clean)),
        (None, Some(drain("operator", 100, Failed)), Some(Failed)),
        (next(), Some(drain("operator", 100, Clean)), Some(Clean)),
        // It was cancelled, and an earlier drain had the same id.
        (None, Some(drain("operator", 50, Clean)), None),
        (None, Some(drain("other", 101, Clean)), None),
        (None, None, None),
    ] {
        let mut watcher = Watcher::new(Goal::Stopped, Progress::Lines, true);
        let requested = Some(drain("operator", 100, Unspecified));
        assert_eq!(watcher.ended_drain(&status(requested, None)), None);
        assert_eq!(watcher.ended_drain(&status(drain_now, last.clone())), outcome, "{last:?}");
    }
}

#[test]
fn earlier_drain_with_same_id_is_ignored() {
    use DrainOutcome::{Clean, Failed, Unspecified};
    let mut watcher = Watcher::new(Goal::Stopped, Progress::Lines, true);
    let (earlier, requested) = (drain("operator", 99, Failed), drain("operator", 100, Unspecified));
    for _ in 0..2 {
        let status = status(Some(requested.clone()), Some(earlier.clone()));
        assert_eq!(watcher.ended_drain(&status), None);
    }
    assert_eq!(watcher.ended_drain(&status(None, Some(earlier))), None, "it was cancelled");
    let ended = Some(drain("operator", 100, Clean));
    assert_eq!(watcher.ended_drain(&status(None, ended)), Some(Clean));
}

#[test]
fn wait_for_a_level_ends_when_the_runner_cannot_reach_it_alone() {
    let status = |state: State, crash_loop| Status { state: state.into(), crash_loop, ..Status::default() };
    for (status, error) in [
        (status(State::Running, false), None),
        (status(State::Backoff, false), None),
        (status(State::Backoff, true), Some("is in a crash loop")),
        (status(State::Failed, false), Some("has exited")),
    ] {
        let found = unreachable_goal(Goal::Process, &status).map(|error| error.to_string());
        assert_eq!(found.is_some(), error.is_some(), "{status:?}");
        assert!(found.unwrap_or_default().contains(error.unwrap_or_default()), "{status:?}");
    }
}
