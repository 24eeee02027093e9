use super::*;
use crate::fleet::scripted::{Scene, Scripted, ScriptedFault, retry};

fn policy() -> DrainPolicy {
    DrainPolicy {
        mode: Mode::Graceful,
        timeout: Duration::from_secs(3 * 3600),
        on_timeout: OnTimeout::Fail,
        on_unreachable: OnUnreachable::Fail,
        request: DrainRequest::default(),
        retry: retry(Some(5)),
    }
}

/// Runs until asked, then drains for `jobs` seconds.
fn draining(jobs: u64) -> impl Fn(Scene) -> Result<RunnerStatus, ScriptedFault> + Sync {
    move |scene| {
        Ok(match (scene.graceful, scene.forceful) {
            (_, Some(since)) if since.as_secs() >= 5 => RunnerStatus::Stopped,
            (Some(since), _) if since.as_secs() >= jobs => RunnerStatus::Stopped,
            (None, None) => RunnerStatus::Running,
            _ => RunnerStatus::InShutdown,
        })
    }
}

async fn drained(
    policy: &DrainPolicy,
    wrapper: &impl Wrapper<Error = ScriptedFault>,
) -> Result<Drained<ScriptedFault>, NotDrained<ScriptedFault>> {
    run("m1", wrapper, policy, &CancellationToken::new()).await
}

#[tokio::test(start_paused = true)]
async fn a_drain_asks_once_and_waits_for_the_end_of_the_process() {
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::Terminated { forced: false, .. }), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_ended_before_is_a_success() {
    let wrapper = Scripted::new(|_| Ok(RunnerStatus::Stopped));
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::AlreadyStopped { .. }), "{outcome:?}");
    assert_eq!(wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_under_way_is_joined_without_a_second_request() {
    let wrapper = Scripted::new(|scene| {
        Ok(if scene.elapsed.as_secs() < 60 { RunnerStatus::InShutdown } else { RunnerStatus::Stopped })
    });
    assert!(drained(&policy(), &wrapper).await.is_ok());
    assert_eq!(wrapper.requests(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_wrapper_forgot_is_made_again() {
    // Upstream's wrapper answers "ok" to a shutdown before its process exists, and then starts the process.
    let wrapper = Scripted::new(|scene| {
        Ok(match (scene.elapsed.as_secs(), scene.graceful) {
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
async fn unknown_and_unreachable_are_never_taken_for_stopped() {
    let policy = DrainPolicy { timeout: Duration::from_secs(600), ..policy() };
    let unknown = Scripted::new(|_| Ok(RunnerStatus::Unknown(0)));
    let error = drained(&policy, &unknown).await.unwrap_err();
    assert!(matches!(error, NotDrained::TimedOut { .. }), "{error:?}");

    let down = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Down));
    let error = drained(&policy, &down).await.unwrap_err();
    assert!(matches!(error, NotDrained::Connect { attempts: 5, requested: false, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_refused_is_not_one_that_was_made() {
    // It looks well, and refuses the request, as for a job that would drain its own runner.
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let wrapper = Scripted::new(|_| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Ok(RunnerStatus::Running),
        _ => Err(ScriptedFault::Refused),
    });
    let error = drained(&policy(), &wrapper).await.unwrap_err();
    assert!(matches!(error, NotDrained::Connect { requested: false, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_network_cut_during_the_drain_is_waited_out() {
    let wrapper = Scripted::new(|scene: Scene| match scene.elapsed.as_secs() {
        100..700 => Err(ScriptedFault::Down),
        _ => draining(900)(scene),
    });
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::Terminated { .. }), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 0));
}

/// A connection that nobody closed: calls do not fail, they hang until their own limit, or for ever where there is none.
struct HalfOpen<F> {
    wrapper: Scripted<F>,
    cut: std::ops::Range<u64>,
    limit: Option<Duration>,
}

impl<F: Fn(Scene) -> Result<RunnerStatus, ScriptedFault> + Sync> HalfOpen<F> {
    async fn pass(&self) -> Result<(), ScriptedFault> {
        if !self.cut.contains(&self.wrapper.elapsed().as_secs()) {
            return Ok(());
        }
        match self.limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
        Err(ScriptedFault::Down)
    }
}

impl<F: Fn(Scene) -> Result<RunnerStatus, ScriptedFault> + Sync> Wrapper for HalfOpen<F> {
    type Error = ScriptedFault;

    async fn look(&self) -> Result<Look, ScriptedFault> {
        self.pass().await?;
        self.wrapper.look().await
    }

    async fn changed(&self) {
        self.wrapper.changed().await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Look, ScriptedFault> {
        self.pass().await?;
        self.wrapper.drain(request).await
    }

    async fn start(&self) -> Result<crate::client::Start, ScriptedFault> {
        self.pass().await?;
        self.wrapper.start().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_that_leaves_calls_hanging_is_waited_out_too() {
    // The default limits of a connection and a call, together.
    let limit = Some(Duration::from_secs(40));
    let wrapper = HalfOpen { wrapper: Scripted::new(draining(900)), cut: 100..700, limit };
    let start = Instant::now();
    let outcome = drained(&policy(), &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::Terminated { forced: false, .. }), "{outcome:?}");
    assert_eq!(wrapper.wrapper.requests(), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(910), "{:?}", start.elapsed());

    // The runner ends during the cut: that is seen at most one call and one pause after it.
    let wrapper = HalfOpen { wrapper: Scripted::new(draining(300)), cut: 100..700, limit };
    let start = Instant::now();
    assert!(drained(&policy(), &wrapper).await.is_ok());
    assert!((700..=752).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_returns_holds_up_neither_deadline_nor_stop() {
    let hung = || HalfOpen { wrapper: Scripted::new(draining(900)), cut: 100..u64::MAX, limit: None };
    let short = DrainPolicy { timeout: Duration::from_secs(600), ..policy() };
    let start = Instant::now();
    let error = drained(&short, &hung()).await.unwrap_err();
    assert!(matches!(error, NotDrained::TimedOut { requested: true, last: Some(_), .. }), "{error:?}");
    assert_eq!(start.elapsed().as_secs(), 600);

    let (stop, wrapper, policy) = (CancellationToken::new(), hung(), policy());
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(run("m1", &wrapper, &policy, &stop), async {
        tokio::time::sleep(Duration::from_secs(200)).await;
        stop.cancel();
    });
    assert!(matches!(outcome, Err(NotDrained::Interrupted { requested: true, .. })), "{outcome:?}");
    assert_eq!(start.elapsed().as_secs(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_gone_host_is_terminated_only_where_the_user_said_so() {
    let policy = DrainPolicy { on_unreachable: OnUnreachable::AssumeTerminated, ..policy() };
    let down = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Down));
    let outcome = drained(&policy, &down).await.unwrap();
    assert!(matches!(outcome, Drained::AssumedTerminated { attempts: 5, .. }), "{outcome:?}");

    // A host that answers and refuses is not gone.
    let refusing = Scripted::new(|_| Err::<RunnerStatus, _>(ScriptedFault::Refused));
    let error = drained(&policy, &refusing).await.unwrap_err();
    assert!(matches!(error, NotDrained::Connect { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_fails_or_forces_as_asked() {
    let short = DrainPolicy { timeout: Duration::from_secs(60), ..policy() };
    let wrapper = Scripted::new(draining(7200));
    let error = drained(&short, &wrapper).await.unwrap_err();
    assert!(matches!(error, NotDrained::TimedOut { requested: true, forced: false, .. }), "{error:?}");
    assert_eq!(wrapper.requests(), (1, 0));

    let force = DrainPolicy { on_timeout: OnTimeout::Force, ..short };
    let wrapper = Scripted::new(draining(7200));
    let outcome = drained(&force, &wrapper).await.unwrap();
    assert!(matches!(outcome, Drained::Terminated { forced: true, .. }), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn forceful_hurries_a_drain_that_is_under_way() {
    let policy = DrainPolicy { mode: Mode::Forceful, ..policy() };
    let wrapper = Scripted::new(|scene: Scene| {
        Ok(match scene.forceful {
            Some(since) if since.as_secs() >= 5 => RunnerStatus::Stopped,
            _ => RunnerStatus::InShutdown,
        })
    });
    assert!(drained(&policy, &wrapper).await.is_ok());
    assert_eq!(wrapper.requests(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn stop_leaves_the_shutdown_running_and_says_that_it_was_requested() {
    let stop = CancellationToken::new();
    let wrapper = Scripted::new(draining(7200));
    let policy = policy();
    let (outcome, ()) = tokio::join!(run("m1", &wrapper, &policy, &stop), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    });
    assert!(matches!(outcome, Err(NotDrained::Interrupted { requested: true, .. })), "{outcome:?}");
    assert_eq!(wrapper.requests(), (1, 0));
}
