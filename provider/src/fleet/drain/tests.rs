use super::*;
use crate::fleet::{
    Reason,
    test_wrapper::{ScriptInput, Scripted, ScriptedFault, retry},
};

pub(in crate::fleet) fn policy() -> DrainPolicy {
    DrainPolicy {
        mode: Mode::Graceful,
        until: Until::Exit,
        start: Instant::now(),
        timeout: Duration::from_secs(3 * 3600),
        on_timeout: OnTimeout::Fail,
        on_unreachable: OnUnreachable::Fail,
        on_lost_jobs: OnLostJobs::Warn,
        request: DrainRequest::default(),
        retry: retry(Some(5)),
    }
}

/// Runs until a drain is requested, then drains for `jobs` seconds.
fn draining(jobs: u64) -> impl Fn(ScriptInput) -> Result<RunnerStatus, ScriptedFault> + Sync {
    move |input| {
        Ok(match (input.graceful, input.forceful) {
            (_, Some(since)) if since.as_secs() >= 5 => RunnerStatus::Stopped,
            (Some(since), _) if since.as_secs() >= jobs => RunnerStatus::Stopped,
            (None, None) => RunnerStatus::Running,
            _ => RunnerStatus::InShutdown,
        })
    }
}

async fn drained(policy: &DrainPolicy, wrapper: impl Wrapper) -> Outcome {
    let policy = DrainPolicy { start: Instant::now(), ..policy.clone() };
    run("m1", &wrapper, &policy, &CancellationToken::new()).await
}

fn is_timed_out(failure: &Failure<NotDrained>) -> bool {
    matches!(failure.reason, Reason::Problem(NotDrained::TimedOut { .. }))
}

fn is_unreached(failure: &Failure<NotDrained>) -> bool {
    matches!(failure.reason, Reason::Unreached { .. })
}

#[track_caller]
fn attempts(failure: &Failure<NotDrained>) -> u32 {
    match failure.reason {
        Reason::Unreached { attempts, .. } => attempts,
        _ => panic!("{failure:?}"),
    }
}

fn end(outcome: &Drained) -> (StartedBy, bool) {
    match outcome {
        Drained::Ended(ended) => (ended.started_by, ended.forced),
        Drained::InProgress(_) | Drained::AssumedTerminated { .. } => panic!("{outcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn drain_requests_once_and_waits_for_process_exit() {
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, false));
    assert_eq!(wrapper.requests(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn drain_in_progress_is_joined_without_request() {
    let wrapper = Scripted::new(|input| {
        Ok(if input.elapsed.as_secs() < 60 { RunnerStatus::InShutdown } else { RunnerStatus::Stopped })
    });
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Joined, false));
    assert_eq!(wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn forgotten_shutdown_request_is_repeated() {
    // Upstream's wrapper answers "ok" to a shutdown before its process exists, and then starts the process.
    let wrapper = Scripted::new(|input| {
        Ok(match (input.elapsed.as_secs(), input.graceful) {
            (0..10, _) => RunnerStatus::Unknown(0),
            (10..20, _) => RunnerStatus::Running,
            (20..40, _) => RunnerStatus::InShutdown,
            _ => RunnerStatus::Stopped,
        })
    });
    assert!(drained(&policy(), &wrapper).await.is_ok());
    let (graceful, forceful) = wrapper.requests();
    assert!((3..=5).contains(&graceful), "one at once, then every 5 s until it drains: {graceful}");
    assert_eq!(forceful, 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_or_unreachable_runner_is_not_stopped() {
    let policy = DrainPolicy { timeout: Duration::from_secs(600), ..policy() };
    let unknown = Scripted::new(|_| Ok(RunnerStatus::Unknown(0)));
    let error = drained(&policy, &unknown).await.unwrap_err();
    assert!(is_timed_out(&error), "{error:?}");

    let down = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Down));
    let error = drained(&policy, &down).await.unwrap_err();
    assert_eq!((attempts(&error), error.requested), (5, Requested::No));
}

#[tokio::test(start_paused = true)]
async fn rejected_shutdown_is_not_recorded_as_requested() {
    // It is healthy, and refuses the request, as for a job that would drain its own runner.
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|_| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Ok(RunnerStatus::Running),
        _ => Err(ScriptedFault::Refused),
    });
    let error = drained(&policy(), &wrapper).await.unwrap_err();
    assert_eq!((is_unreached(&error), error.requested), (true, Requested::No));
}

#[tokio::test(start_paused = true)]
async fn drain_continues_after_network_cut() {
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        100..700 => Err(ScriptedFault::Down),
        _ => draining(900)(input),
    });
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, false));
    assert_eq!(wrapper.requests(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn stopped_apply_reports_request_and_leaves_drain_running() {
    let stop = CancellationToken::new();
    let wrapper = &Scripted::new(draining(7200));
    let policy = policy();
    let (outcome, ()) = tokio::join!(run("m1", &wrapper, &policy, &stop), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.reason, Reason::Interrupted(_)), "{error:?}");
    assert_eq!(error.requested, Requested::Accepted);
    assert_eq!(wrapper.requests(), (1, 0));
}

fn assuming() -> DrainPolicy {
    DrainPolicy { on_unreachable: OnUnreachable::AssumeTerminated, ..policy() }
}

#[tokio::test(start_paused = true)]
async fn accepted_drain_is_never_assumed_terminated() {
    // The host is cut off in an accepted drain for longer than all attempts take, while its jobs run.
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        10..3000 => Err(ScriptedFault::Down),
        _ => draining(4000)(input),
    });
    let outcome = drained(&assuming(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Here, false));

    // The same for a drain that was already in progress.
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        0..10 => Ok(RunnerStatus::InShutdown),
        10..3000 => Err(ScriptedFault::Down),
        _ => Ok(RunnerStatus::Stopped),
    });
    let start = Instant::now();
    let outcome = drained(&assuming(), &wrapper).await.unwrap();
    assert_eq!(end(&outcome), (StartedBy::Joined, false));
    assert!(start.elapsed().as_secs() >= 3000, "{:?}", start.elapsed());

    // It does not come back: the drain fails at its deadline, and the instance stays.
    let wrapper = Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
        0..10 => draining(7200)(input),
        _ => Err(ScriptedFault::Down),
    });
    let short = DrainPolicy { timeout: Duration::from_secs(1800), ..assuming() };
    let error = drained(&short, &wrapper).await.unwrap_err();
    assert_eq!((is_unreached(&error), error.requested), (true, Requested::Accepted));
}

#[tokio::test(start_paused = true)]
async fn possibly_sent_request_is_never_assumed_terminated() {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|_| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Ok(RunnerStatus::Running),
        1 => Err(ScriptedFault::Broken),
        _ => Err(ScriptedFault::Down),
    });
    let error = drained(&assuming(), &wrapper).await.unwrap_err();
    assert_eq!((is_unreached(&error), error.requested), (true, Requested::Perhaps));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_handshake_permit_is_not_an_attempt() {
    let wrapper = Scripted::new(|input| match input.elapsed.as_secs() {
        0..300 => Err(ScriptedFault::HandshakeQueueTimeout),
        _ => Ok(RunnerStatus::Stopped),
    });
    assert!(drained(&policy(), &wrapper).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn drain_timeout_counts_from_operation_start() {
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let policy = DrainPolicy { start, timeout: Duration::from_secs(60), ..policy() };
    let wrapper = Scripted::new(draining(7200));
    let error = run("m1", &&wrapper, &policy, &CancellationToken::new()).await.unwrap_err();
    assert!(is_timed_out(&error), "{error:?}");
    assert_eq!(start.elapsed().as_secs(), 60);
}

mod absence;
mod cancelled;
mod force;
mod half_open;
pub(in crate::fleet) mod joined;
mod next;
mod no_wait;
mod process;
