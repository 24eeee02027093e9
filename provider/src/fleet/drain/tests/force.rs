//! `on_timeout = "force"` and `mode = "forceful"`.

use super::*;

#[tokio::test(start_paused = true)]
async fn drain_timeout_fails_or_forces_per_on_timeout() {
    let short = DrainPolicy { timeout: Duration::from_secs(60), ..policy() };
    let wrapper = Scripted::new(draining(7200));
    let error = drained(&short, &wrapper).await.unwrap_err();
    assert!(
        matches!(error, NotDrained::TimedOut { requested: Requested::Accepted, forced: false, .. }),
        "{error:?}"
    );
    assert_eq!(wrapper.requests(), (1, 0));

    let force = DrainPolicy { on_timeout: OnTimeout::Force, ..short };
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&force, &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, true));
    assert_eq!(wrapper.requests(), (1, 1));
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
    let NotDrained::TimedOut { waited, requested: Requested::Accepted, forced: true, last: Some(_), .. } =
        error
    else {
        panic!("{error:?}")
    };
    assert_eq!((start.elapsed().as_secs(), waited.as_secs()), (180, 180));
    assert_eq!(wrapper.requests(), (1, 1));
}
