use super::*;
use crate::client::{Detail, DrainInfo, Level, ShutdownCallback};

/// A runner under grit-wrapper that another client drained.
fn drained_by(id: &str, status: RunnerStatus) -> Snapshot {
    let mut snapshot = Snapshot::from(status);
    snapshot.detail = Some(Box::new(Detail {
        wrapper_version: "0.1.0".into(),
        level: Level::None,
        level_max: None,
        reasons: vec![],
        runner_version: None,
        pid: None,
        started_at: None,
        jobs: None,
        oldest_job: None,
        drain: Some(DrainInfo { id: id.into(), reason: String::new(), forceful: false, outcome: None }),
        evidence: crate::client::RunnerEvidence::default(),
        exit: None,
    }));
    snapshot
}

fn with_callback() -> DrainPolicy {
    let url = "http://127.0.0.1/".to_owned();
    let callback = ShutdownCallback { url, method: "POST".to_owned(), headers: Default::default() };
    let request = DrainRequest { id: "ours".into(), callback: Some(callback), ..DrainRequest::default() };
    DrainPolicy { request, ..policy() }
}

#[tokio::test(start_paused = true)]
async fn drain_of_another_client_is_joined_with_one_request() {
    let by = |id: &'static str| {
        Scripted::new(move |input: ScriptInput| {
            let ended = input.elapsed.as_secs() >= 60;
            let status = if ended { RunnerStatus::Stopped } else { RunnerStatus::InShutdown };
            Ok::<_, ScriptedFault>(drained_by(id, status))
        })
    };
    let wrapper = by("operator");
    let outcome = drained(&with_callback(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Joined, false));
    assert_eq!(wrapper.requests(), (1, 0));

    // The provider's drain of an interrupted run already has the callback.
    let wrapper = by("ours");
    let outcome = drained(&with_callback(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Joined, false));
    assert_eq!(wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn callback_is_registered_for_already_stopped_runner() {
    let wrapper = Scripted::new(|_| Ok::<_, ScriptedFault>(drained_by("operator", RunnerStatus::Stopped)));
    let outcome = drained(&with_callback(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Before, false));
    assert_eq!(wrapper.requests(), (1, 0));

    let without = policy();
    let wrapper = Scripted::new(|_| Ok::<_, ScriptedFault>(drained_by("operator", RunnerStatus::Stopped)));
    drained(&without, &wrapper).await.unwrap();
    assert_eq!(wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn unsupported_callback_warns_and_drain_succeeds() {
    // Upstream's wrapper, in a shutdown that another client requested.
    let wrapper = Scripted::new(|input| {
        Ok(if input.elapsed.as_secs() < 60 { RunnerStatus::InShutdown } else { RunnerStatus::Stopped })
    });
    let outcome = drained(&with_callback(), &wrapper).await.unwrap();
    let Drained::Ended(ended) = outcome else { panic!() };
    assert!(matches!(ended.no_callback, Some(NoCallback::Upstream)), "{ended:?}");
    assert_eq!(wrapper.requests(), (0, 0), "each request would be a further signal");

    // grit-wrapper refuses it after the exit of the runner, for example because of its allow list.
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|_| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Ok(drained_by("operator", RunnerStatus::Stopped)),
        _ => Err(ScriptedFault::Refused),
    });
    let Drained::Ended(ended) = drained(&with_callback(), &wrapper).await.unwrap() else { panic!() };
    assert!(matches!(ended.no_callback, Some(NoCallback::Refused(_))), "{ended:?}");
}
