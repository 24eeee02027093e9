use super::*;
use crate::client::{Detail, DrainInfo, Level};

/// A runner under grit-wrapper that another client drained.
pub(in crate::fleet) fn drained_by(id: &str, status: RunnerStatus) -> Snapshot {
    let mut snapshot = Snapshot::from(status);
    snapshot.detail = Some(Box::new(Detail {
        wrapper_version: "0.1.0".into(),
        boot_id: String::new(),
        process: String::new(),
        last_drain: None,
        cancelled: None,
        level: Level::None,
        level_max: None,
        reasons: vec![],
        runner_version: None,
        pid: None,
        started_at: None,
        jobs: None,
        concurrent: None,
        oldest_job: None,
        drain: Some(DrainInfo {
            until_deadline: None,
            id: id.into(),
            reason: String::new(),
            requested_by: String::new(),
            forceful: false,
            signalled: true,
            deadline: None,
            outcome: None,
            open_requests: None,
            waits_for: String::new(),
        }),
        shutting_down: false,
        evidence: crate::client::RunnerEvidence::default(),
        registrations: Vec::new(),
        exit: None,
    }));
    snapshot
}

fn ours() -> DrainPolicy {
    let request = DrainRequest { id: "ours".into(), ..DrainRequest::default() };
    DrainPolicy { request, ..policy() }
}

#[tokio::test(start_paused = true)]
async fn drain_of_another_client_is_joined_with_one_request() {
    let wrapper = Scripted::new(|input: ScriptInput| {
        let ended = input.elapsed.as_secs() >= 60;
        let status = if ended { RunnerStatus::Stopped } else { RunnerStatus::InShutdown };
        Ok::<_, ScriptedFault>(drained_by("operator", status))
    });
    let outcome = drained(&ours(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Joined, false));
    assert_eq!(wrapper.requests(), (1, 0));
}

/// The next wrapper on the host would start another runner: the runner exited without a request, or for a request of the service manager.
#[tokio::test(start_paused = true)]
async fn drain_is_recorded_for_runner_that_exited_without_one() {
    let exited = |id: Option<&'static str>, shutting_down| {
        let mut snapshot = drained_by(id.unwrap_or_default(), RunnerStatus::Stopped);
        let detail = snapshot.detail.as_mut().unwrap();
        detail.drain = detail.drain.take().filter(|_| id.is_some());
        detail.shutting_down = shutting_down;
        snapshot
    };
    for id in [None, Some("signal")] {
        let wrapper = Scripted::new(|_| Ok::<_, ScriptedFault>(exited(id, false)));
        let outcome = drained(&policy(), &wrapper).await.unwrap();
        assert_eq!((end(&outcome), wrapper.requests()), ((StartedBy::Before, false), (1, 0)));
    }
    // The wrapper exits, and the service manager starts the next one with another runner.
    let wrapper = Scripted::new(|input| match (input.elapsed.as_secs(), input.graceful) {
        (0..3, _) => Ok(exited(None, true)),
        (3..5, _) => Err(ScriptedFault::Down),
        (5..20, _) => Ok(RunnerStatus::Running.into()),
        (20..60, _) => Ok(RunnerStatus::InShutdown.into()),
        _ => Ok(exited(Some("ours"), false)),
    });
    drained(&policy(), &wrapper).await.unwrap();
    assert!(wrapper.elapsed() >= Duration::from_secs(60), "{:?}", wrapper.elapsed());

    // The same if this drain could not join the shutdown of the wrapper.
    let reads = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|input| {
        let read = reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match (input.elapsed.as_secs(), input.graceful) {
            // The second call is the request.
            (0..3, _) if read == 0 => Ok(drained_by("signal", RunnerStatus::InShutdown)),
            (0..3, _) if read == 1 => Err(ScriptedFault::Down),
            (0..3, _) => Ok(exited(Some("signal"), true)),
            (3..5, _) => Err(ScriptedFault::Down),
            (_, Some(since)) if since.as_secs() >= 40 => Ok(exited(Some("ours"), false)),
            (_, Some(_)) => Ok(drained_by("ours", RunnerStatus::InShutdown)),
            (_, None) => Ok(RunnerStatus::Running.into()),
        }
    });
    drained(&policy(), &wrapper).await.unwrap();
    assert_eq!(wrapper.requests(), (1, 0), "the next runner is drained");

    // A reader may not drain, and sees the exit.
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|_| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        1 => Err(ScriptedFault::Refused),
        _ => Ok(exited(None, false)),
    });
    assert!(matches!(drained(&policy(), &wrapper).await, Ok(Drained::Ended(_))));
}
