use super::*;

fn no_wait() -> DrainPolicy {
    DrainPolicy { until: Until::Signal, ..policy() }
}

#[tokio::test(start_paused = true)]
async fn drain_without_wait_ends_when_shutdown_has_begun() {
    let start = Instant::now();
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&no_wait(), &wrapper).await.unwrap();
    assert!(matches!(&outcome, Drained::InProgress(it) if it.started_by == StartedBy::Here), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());

    // The next one joins it.
    let outcome = drained(&no_wait(), &wrapper).await.unwrap();
    assert!(matches!(&outcome, Drained::InProgress(it) if it.started_by == StartedBy::Joined), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 0));
}

/// Before SIGQUIT the runner still accepts jobs, and the drain can be cancelled.
#[tokio::test(start_paused = true)]
async fn drain_without_wait_waits_until_sigquit_is_sent() {
    let wrapper = Scripted::new(|input: ScriptInput| {
        let mut snapshot = joined::drained_by("ours", RunnerStatus::InShutdown);
        let drain = snapshot.detail.as_mut().unwrap().drain.as_mut().unwrap();
        drain.signalled = input.elapsed.as_secs() >= 8;
        Ok::<_, ScriptedFault>(snapshot)
    });
    let start = Instant::now();
    let outcome = drained(&no_wait(), &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::InProgress(_)), "{outcome:?}");
    assert!(start.elapsed() >= Duration::from_secs(8), "{:?}", start.elapsed());

    let accepted = DrainPolicy { until: Until::Accepted, ..policy() };
    let start = Instant::now();
    let outcome = drained(&accepted, &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::InProgress(_)), "{outcome:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}
