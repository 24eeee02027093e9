use super::*;
use crate::{
    client::{Detail, DrainRequest},
    fleet::{
        failure::Reason,
        test_wrapper::{ScriptInput, Scripted, ScriptedFault, retry},
    },
};

fn policy(timeout: u64, stable_for: u64, attempts: Option<u32>) -> HealthPolicy {
    HealthPolicy {
        start: Instant::now(),
        timeout: Duration::from_secs(timeout),
        stable_for: Duration::from_secs(stable_for),
        min_jobs: 1,
        level: None,
        expected_version: None,
        start_if_stopped: false,
        retry: retry(attempts),
    }
}

async fn run<S: Into<Snapshot> + Send>(
    policy: &HealthPolicy,
    script: impl Fn(ScriptInput) -> Result<S, ScriptedFault> + Sync,
) -> Outcome {
    wait("m1", &&Scripted::new(script), policy, &CancellationToken::new()).await
}

/// What was missing at the deadline.
#[track_caller]
fn missing_in(failure: &Failure<NotHealthy>) -> &Missing {
    match &failure.reason {
        Reason::Problem(NotHealthy::TimedOut(missing)) => missing,
        _ => panic!("{failure:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn late_booting_host_becomes_healthy() {
    let healthy = run(&policy(600, 0, None), |input| match input.elapsed.as_secs() {
        0..60 => Err(ScriptedFault::Down),
        60..80 => Ok(RunnerStatus::Unknown(0)),
        _ => Ok(RunnerStatus::Running),
    })
    .await
    .unwrap();
    assert!(healthy.waited >= Duration::from_secs(80), "{healthy:?}");
    assert!(healthy.waited < Duration::from_secs(92), "the longest delay is 10 s: {healthy:?}");
}

#[tokio::test(start_paused = true)]
async fn draining_runner_is_not_healthy() {
    let error = run(&policy(60, 0, None), |_| Ok(RunnerStatus::InShutdown)).await.unwrap_err();
    assert!(matches!(&error.last, Some(last) if last.report.status == RunnerStatus::InShutdown), "{error:?}");
    assert_eq!(missing_in(&error), &Missing::Running);
}

#[tokio::test(start_paused = true)]
async fn crash_loop_restarts_stable_for() {
    let healthy = run(&policy(600, 30, None), |input| {
        // A crash loop, down for the first 5 s of every 25, until 105 s.
        let up = input.elapsed.as_secs() >= 105 || input.elapsed.as_secs() % 25 >= 5;
        Ok(if up { RunnerStatus::Running } else { RunnerStatus::Stopped })
    })
    .await
    .unwrap();
    assert!(healthy.waited >= Duration::from_secs(135), "{healthy:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_limit_connects_but_not_health_wait() {
    let error = run(&policy(600, 0, Some(3)), |_| down()).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Unreached { attempts: 3, .. }), "{error:?}");

    let policy = policy(600, 0, Some(3));
    let slow = run(&policy, |input| {
        Ok(if input.elapsed.as_secs() < 500 { RunnerStatus::Unknown(0) } else { RunnerStatus::Running })
    });
    assert!(slow.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn health_timeout_without_connection_is_connect_error() {
    let error = run(&policy(60, 0, None), |_| down()).await.unwrap_err();
    assert!(matches!(&error.reason, Reason::Unreached { error, .. } if error.is_absent()), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_connection_is_not_retried() {
    let error =
        run(&policy(600, 0, None), |_| Err::<RunnerStatus, _>(ScriptedFault::Refused)).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Unreached { attempts: 1, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn stopped_runner_fails_health_before_timeout() {
    let error = run(&policy(600, 0, None), |_| Ok(RunnerStatus::Stopped)).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Problem(NotHealthy::Stopped { .. })), "{error:?}");
    assert!(error.waited < Duration::from_secs(60), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn stop_token_ends_health_wait_immediately() {
    let stop = CancellationToken::new();
    let wrapper = &Scripted::new(|_| Ok(RunnerStatus::Unknown(0)));
    let policy = policy(3600, 0, None);
    let (outcome, ()) = tokio::join!(wait("m1", &wrapper, &policy, &stop), async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        stop.cancel();
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.reason, Reason::Interrupted), "{error:?}");
    assert_eq!(error.waited.as_secs(), 100);
}

fn down() -> Result<RunnerStatus, ScriptedFault> {
    Err(ScriptedFault::Down)
}

/// A runner under grit-wrapper.
fn seen(level: Level, level_max: Option<Level>, version: Option<&str>) -> Snapshot {
    let mut snapshot = Snapshot::from(RunnerStatus::Running);
    snapshot.detail = Some(Box::new(Detail {
        wrapper_version: "0.1.0".into(),
        process: String::new(),
        boot_id: String::new(),
        last_drain: None,
        cancelled: None,
        level,
        level_max,
        reasons: vec!["no job request was answered yet".into()],
        runner_version: version.map(str::to_owned),
        pid: Some(1),
        started_at: None,
        jobs: None,
        oldest_job: None,
        drain: None,
        shutting_down: false,
        evidence: RunnerEvidence::default(),
        registrations: Vec::new(),
        exit: None,
    }));
    snapshot
}

#[tokio::test(start_paused = true)]
async fn level_auto_waits_for_maximum_level() {
    let climbing = |input: ScriptInput| {
        Ok(match input.elapsed.as_secs() {
            0..5 => seen(Level::None, None, None),
            5..60 => seen(Level::Ready, Some(Level::Polling), None),
            _ => seen(Level::Polling, Some(Level::Polling), None),
        })
    };
    let healthy = run(&policy(600, 0, None), climbing).await.unwrap();
    assert!(healthy.waited >= Duration::from_secs(60), "{healthy:?}");

    let blind = run(&policy(600, 0, None), |_| Ok(seen(Level::Process, Some(Level::Process), None))).await;
    assert!(blind.is_ok(), "{blind:?}");
}

#[tokio::test(start_paused = true)]
async fn timeout_names_missing_level_or_version() {
    let strict = HealthPolicy { level: Some(Level::Polling), ..policy(60, 0, None) };
    let error = run(&strict, |_| Ok(seen(Level::Ready, Some(Level::Polling), None))).await.unwrap_err();
    let Missing::Level { wanted, reasons } = missing_in(&error) else { panic!("{error:?}") };
    assert_eq!((*wanted, reasons.len()), (Level::Polling, 1));

    let versioned = HealthPolicy { expected_version: Some("19.3.0".into()), ..policy(60, 0, None) };
    let old = seen(Level::Polling, Some(Level::Polling), Some("19.2.0"));
    let error = run(&versioned, |_| Ok(old.clone())).await.unwrap_err();
    let Missing::Version { found, .. } = missing_in(&error) else { panic!("{error:?}") };
    assert_eq!(found.as_deref(), Some("19.2.0"));
}

#[tokio::test(start_paused = true)]
async fn unsupported_level_fails_immediately_with_upstream() {
    let strict = HealthPolicy { level: Some(Level::Ready), ..policy(600, 0, None) };
    let error = run(&strict, |_| Ok(RunnerStatus::Running)).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::Problem(NotHealthy::NotVerifiable { wanted: "level" })),
        "{error:?}"
    );
    let process = HealthPolicy { level: Some(Level::Process), ..policy(600, 0, None) };
    assert!(run(&process, |_| Ok(RunnerStatus::Running)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn start_if_stopped_starts_runner_once() {
    let starting = HealthPolicy { start_if_stopped: true, ..policy(600, 0, None) };
    let wrapper = Scripted::new(|input: ScriptInput| {
        Ok(if input.starts == 0 { RunnerStatus::Stopped } else { RunnerStatus::Running })
    });
    wait("m1", &&wrapper, &starting, &CancellationToken::new()).await.unwrap();

    // It exits again immediately, and is not started again.
    let wrapper = Scripted::new(|_| Ok(RunnerStatus::Stopped));
    let error = wait("m1", &&wrapper, &starting, &CancellationToken::new()).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::Problem(NotHealthy::Stopped { start: Some(Start::Requested) })),
        "{error:?}"
    );
}

/// A wrapper with a stopped runner that stays stopped. It never responds to a request to start the runner if there is no response.
struct StaysStopped(Option<Start>);

impl Wrapper for &StaysStopped {
    fn until(&self, _: Instant) -> Self {
        self
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        Ok(RunnerStatus::Stopped.into())
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    async fn drain(&self, _: &DrainRequest) -> Result<Snapshot, ClientError> {
        panic!("a health check drains nothing")
    }

    async fn cancel(&self, _: &str) -> Result<Option<Snapshot>, ClientError> {
        panic!("a health check cancels no drain")
    }

    async fn start(&self) -> Result<Start, ClientError> {
        match self.0 {
            Some(start) => Ok(start),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_health_wait_reports_requested_start() {
    let starting = HealthPolicy { start_if_stopped: true, ..policy(600, 0, None) };
    for (response, reported) in
        [(Some(Start::Requested), true), (None, true), (Some(Start::NotSupported), false)]
    {
        let (stop, wrapper) = (CancellationToken::new(), &StaysStopped(response));
        let (outcome, ()) = tokio::join!(wait("m1", &wrapper, &starting, &stop), async {
            // Before the wait fails because the runner was not restarted.
            tokio::time::sleep(STOPPED_GRACE / 2).await;
            stop.cancel();
        });
        let error = outcome.unwrap_err();
        assert!(matches!(error.reason, Reason::Interrupted), "{error:?}");
        assert_eq!(error.requested != Requested::No, reported, "{response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn working_waits_for_successful_jobs() {
    let with_jobs = |succeeded: u64, failed: u64| {
        let level = if succeeded > 0 { Level::Working } else { Level::Polling };
        let mut snapshot = seen(level, Some(Level::Working), None);
        let evidence = &mut snapshot.detail.as_mut().unwrap().evidence;
        (evidence.jobs_succeeded, evidence.jobs_failed) = (Some(succeeded), Some(failed));
        snapshot
    };
    let working = HealthPolicy { level: Some(Level::Working), min_jobs: 2, ..policy(600, 0, None) };
    let healthy = run(&working, |input| Ok(with_jobs(input.elapsed.as_secs() / 60, 0))).await.unwrap();
    assert!(healthy.waited >= Duration::from_secs(120), "{healthy:?}");

    let error = run(&working, |_| Ok(with_jobs(1, 3))).await.unwrap_err();
    let missing = missing_in(&error);
    assert_eq!(*missing, Missing::Jobs { succeeded: 1, failed: 3, wanted: 2 });
    assert_eq!(missing.progress().as_deref(), Some("1 of 2 jobs"));

    // `auto` waits for no jobs.
    assert!(run(&policy(600, 0, None), |_| Ok(with_jobs(0, 0))).await.is_ok());
}

/// More time does not change the token. A lower level does not need it.
#[tokio::test(start_paused = true)]
async fn rejected_token_ends_the_wait() {
    let rejected = || {
        let mut snapshot = seen(Level::Ready, Some(Level::Working), None);
        snapshot.detail.as_mut().unwrap().evidence.rejected_sections = 1;
        snapshot
    };
    let error = run(&policy(600, 0, None), |input| {
        Ok(if input.elapsed.as_secs() < 9 {
            seen(Level::Ready, Some(Level::Working), None)
        } else {
            rejected()
        })
    })
    .await
    .unwrap_err();
    assert!(matches!(missing_in(&error), Missing::Level { .. }), "{error:?}");
    assert!(error.waited < Duration::from_secs(20), "{error:?}");
    let ready = HealthPolicy { level: Some(Level::Ready), ..policy(60, 0, None) };
    assert!(run(&ready, |_| Ok(rejected())).await.is_ok());
}
