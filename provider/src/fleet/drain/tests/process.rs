//! The exit of another process is not the end of a drain.

use super::*;

/// Process, drain, previous drain.
type Reported = (RunnerStatus, &'static str, Option<&'static str>, Option<&'static str>);

const FIRST: &str = "boot/7/100";
const SECOND: &str = "boot/8/200";

fn snapshot((status, process, drain, last_drain): Reported, boot_id: &str) -> Snapshot {
    let mut snapshot = joined::drained_by(drain.unwrap_or_default(), status);
    let detail = snapshot.detail.as_mut().unwrap();
    (detail.process, detail.boot_id) = (process.to_owned(), boot_id.to_owned());
    detail.drain = detail.drain.take().filter(|_| drain.is_some());
    detail.last_drain = last_drain.map(str::to_owned);
    snapshot
}

/// The first process drains for 60 s. Then `after` is reported for 60 s, and after that the drain of `last`.
async fn drained_with(after: Reported, last: &'static str, boot_id: &'static str) -> Outcome {
    let policy =
        DrainPolicy { request: DrainRequest { id: "ours".to_owned(), ..Default::default() }, ..policy() };
    let wrapper = Scripted::new(move |input: ScriptInput| {
        let reported = match (input.graceful, input.elapsed.as_secs()) {
            (None, _) => return Ok(snapshot((RunnerStatus::Running, FIRST, None, None), "boot")),
            (Some(_), 0..60) => {
                return Ok(snapshot((RunnerStatus::InShutdown, FIRST, Some("ours"), None), "boot"));
            }
            (Some(_), 60..120) => after,
            (Some(_), 0..200) => (RunnerStatus::InShutdown, last, Some("ours"), after.3),
            (Some(_), _) => (RunnerStatus::Stopped, "", Some("ours"), after.3),
        };
        Ok::<_, ScriptedFault>(snapshot(reported, boot_id))
    });
    drained(&policy, &wrapper).await
}

/// What is reported after the first process without its exit.
const WITHOUT_EXIT: [Reported; 5] = [
    (RunnerStatus::Running, SECOND, None, None),
    // Between two starts of the second one.
    (RunnerStatus::Unknown(0), "", None, None),
    (RunnerStatus::InShutdown, SECOND, Some("ours"), None),
    // The second one has already exited.
    (RunnerStatus::Stopped, "", None, None),
    (RunnerStatus::Stopped, "", Some("of another client"), None),
];

#[tokio::test(start_paused = true)]
async fn drain_fails_when_its_process_is_replaced_without_an_exit() {
    for after in WITHOUT_EXIT {
        let failure = drained_with(after, SECOND, "boot").await.unwrap_err();
        assert!(
            matches!(&failure.reason, Reason::Problem(NotDrained::Replaced { pid }) if pid == "7"),
            "{after:?}: {failure:?}"
        );
    }
}

/// A restart ends each process of the host.
#[tokio::test(start_paused = true)]
async fn runner_started_after_host_restart_is_drained_with_warning() {
    for after in WITHOUT_EXIT {
        let outcome = drained_with(after, "later/8/200", "later").await;
        assert!(matches!(&outcome, Ok(Drained::Ended(ended)) if ended.exit_unseen), "{after:?}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reported_exit_and_same_process_need_no_check() {
    for (after, last) in [
        // A client started another runner after the drain.
        ((RunnerStatus::Running, SECOND, None, Some("ours")), SECOND),
        ((RunnerStatus::Stopped, "", Some("ours"), None), SECOND),
        // An older wrapper.
        ((RunnerStatus::InShutdown, "", Some("ours"), None), FIRST),
        // The drain was cancelled, and the process then ended by itself.
        ((RunnerStatus::Running, FIRST, None, None), SECOND),
    ] {
        let outcome = drained_with(after, last, "boot").await;
        assert!(
            matches!(&outcome, Ok(Drained::Ended(ended)) if !ended.exit_unseen),
            "{after:?}: {outcome:?}"
        );
    }
}
