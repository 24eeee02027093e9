//! `on_timeout = "force"` and `mode = "forceful"`.

use time::OffsetDateTime;

use super::*;

#[tokio::test(start_paused = true)]
async fn drain_timeout_fails_or_forces_per_on_timeout() {
    let short = DrainPolicy { timeout: Duration::from_secs(60), ..policy() };
    let wrapper = Scripted::new(draining(7200));
    let error = drained(&short, &wrapper).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Problem(NotDrained::TimedOut { forceful: false })), "{error:?}");
    assert_eq!(error.requested, Requested::Accepted);
    assert_eq!(wrapper.requests(), (1, 0));

    let force = DrainPolicy { on_timeout: OnTimeout::Force, ..short };
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&force, &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, true));
    assert_eq!(wrapper.requests(), (1, 1));
    let Drained::Ended(ended) = outcome else { panic!("{outcome:?}") };
    assert_eq!(ended.aborted, [17, 18]);
}

#[tokio::test(start_paused = true)]
async fn forceful_mode_terminates_drain_in_progress() {
    let policy = DrainPolicy { mode: Mode::Forceful, ..policy() };
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok(match input.forceful {
            Some(since) if since.as_secs() >= 5 => RunnerStatus::Stopped,
            _ => RunnerStatus::InShutdown,
        })
    });
    assert!(drained(&policy, &wrapper).await.is_ok());
    assert_eq!(wrapper.requests(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn ignored_forceful_request_times_out_at_force_limit() {
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, ..policy() };
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok(if input.graceful.is_some() { RunnerStatus::InShutdown } else { RunnerStatus::Running })
    });
    let start = Instant::now();
    let error = drained(&force, &wrapper).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Problem(NotDrained::TimedOut { forceful: true })), "{error:?}");
    assert_eq!((error.requested, error.last.is_some()), (Requested::Accepted, true));
    assert_eq!((start.elapsed().as_secs(), error.waited.as_secs()), (180, 180));
    assert_eq!(wrapper.requests(), (1, 1));
}

/// The runner may clean up for ten minutes, and needs nine. The clock of a host can be wrong.
#[tokio::test(start_paused = true)]
async fn force_limit_is_after_reported_kill() {
    const CLEANUP: u64 = 540;
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, ..policy() };
    let ends_at = async |kill_in: i64, until_kill: Option<Duration>, is_forceful: bool| {
        let kill_at = OffsetDateTime::now_utc() + time::Duration::seconds(kill_in);
        let wrapper = Scripted::new(move |input: ScriptInput| {
            let ended = input.forceful.is_some_and(|since| since.as_secs() >= CLEANUP);
            let status = if ended { RunnerStatus::Stopped } else { RunnerStatus::InShutdown };
            let mut snapshot = joined::drained_by("ours", status);
            let drain = snapshot.detail.as_mut().unwrap().drain.as_mut().unwrap();
            drain.forceful = is_forceful && input.forceful.is_some();
            drain.deadline = Some(kill_at);
            drain.until_deadline = until_kill;
            Ok::<_, ScriptedFault>(snapshot)
        });
        let start = Instant::now();
        (drained(&force, &wrapper).await.is_ok(), start.elapsed().as_secs())
    };
    let ends = async |kill_in, is_forceful| ends_at(kill_in, None, is_forceful).await;
    let (is_drained, seconds) = ends(600, true).await;
    assert!(is_drained && (600..=605).contains(&seconds), "{seconds}");
    assert_eq!(ends(45, true).await, (false, 180));
    assert_eq!(ends(600, false).await, (false, 180), "the deadline of the graceful drain");
    let (is_drained, seconds) = ends(200, true).await;
    assert!(!is_drained && (330..=340).contains(&seconds), "{seconds}");
    assert_eq!(ends(-1_000_000, true).await, (false, 180));
    assert!(ends(i64::from(i32::MAX), true).await.0);
    // A wrapper that reports the time until the kill needs no correct clock.
    for clock_error in [-1_000_000, 1_000_000] {
        let (is_drained, seconds) = ends_at(clock_error, Some(Duration::from_secs(600)), true).await;
        assert!(is_drained && (600..=605).contains(&seconds), "{seconds}");
    }
}

/// A host that puts the kill off with each report.
#[tokio::test(start_paused = true)]
async fn later_kill_times_do_not_extend_the_force_limit() {
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, ..policy() };
    let wrapper = Scripted::new(|input: ScriptInput| {
        let mut snapshot = joined::drained_by("ours", RunnerStatus::InShutdown);
        let drain = snapshot.detail.as_mut().unwrap().drain.as_mut().unwrap();
        drain.forceful = input.forceful.is_some();
        let left = Duration::from_secs(60) + Duration::from_millis(input.elapsed.as_secs() % 7);
        drain.deadline = Some(OffsetDateTime::now_utc() + left + input.elapsed);
        drain.until_deadline = Some(left);
        Ok::<_, ScriptedFault>(snapshot)
    });
    let start = Instant::now();
    // In a simulated day, a deadline that moves would not pass.
    let drained = tokio::time::timeout(Duration::from_secs(86_400), drained(&force, &wrapper)).await;
    let error = drained.expect("an end").unwrap_err();
    assert!(matches!(error.reason, Reason::Problem(NotDrained::TimedOut { forceful: true })), "{error:?}");
    let seconds = start.elapsed().as_secs();
    assert!((180..=200).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn runner_exit_before_forceful_request_is_not_forced() {
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, ..policy() };
    // The runner exits after 50 s. No call succeeds from before the deadline until after it.
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        40..90 => Err(ScriptedFault::Down),
        _ => draining(50)(input),
    });
    let outcome = drained(&force, &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, false));
    assert_eq!(wrapper.requests(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn forceful_request_without_response_counts_as_forced() {
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, ..policy() };
    for (fault, forced) in [(ScriptedFault::Lost, true), (ScriptedFault::Down, false)] {
        // The wrapper gives no response to the forceful request, and the runner then exits.
        let wrapper = Scripted::new(|input: ScriptInput| match (input.elapsed.as_secs(), input.forceful) {
            (90.., _) => Ok(RunnerStatus::Stopped),
            (60.., Some(_)) => Err(fault),
            _ => draining(7200)(input),
        });
        let outcome = drained(&force, &wrapper).await.unwrap();
        assert_eq!(end(&outcome), (StartedBy::Here, forced), "{fault:?}");
    }
}

/// A host that was unreachable until the timeout: its runner had no graceful part.
#[tokio::test(start_paused = true)]
async fn runner_without_drain_request_is_not_forced() {
    let timeout = Duration::from_secs(60);
    let force = DrainPolicy { on_timeout: OnTimeout::Force, timeout, retry: retry(Some(10_000)), ..policy() };
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        0..70 => Err(ScriptedFault::Down),
        _ => draining(7200)(input),
    });
    let error = drained(&force, &wrapper).await.unwrap_err();
    assert_eq!((is_unreached(&error), error.requested), (true, Requested::No));
    assert_eq!(wrapper.requests(), (0, 0));
}
