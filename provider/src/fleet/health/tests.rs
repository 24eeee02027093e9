use super::*;
use crate::{
    client::{Detail, DrainRequest, RunnerEvidence},
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
        level: Level::Process,
        expected_version: None,
        start_if_stopped: false,
        gitlab: None,
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
        Reason::Problem(NotHealthy::Missing(missing)) => missing,
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
    assert!(matches!(error.reason, Reason::Interrupted(_)), "{error:?}");
    assert_eq!(error.waited.as_secs(), 100);
}

/// Ctrl-C shows what the wait was for.
#[tokio::test(start_paused = true)]
async fn interrupted_health_wait_has_the_last_cause() {
    for is_lost in [false, true] {
        let (stop, policy) = (CancellationToken::new(), polling());
        let wrapper = &Scripted::new(|input: ScriptInput| match input.elapsed.as_secs() {
            50.. if is_lost => Err(ScriptedFault::Down),
            _ => Ok(seen(Level::Ready, Some(Level::Working), None)),
        });
        let (outcome, ()) = tokio::join!(wait("m1", &wrapper, &policy, &stop), async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            stop.cancel();
        });
        let error = outcome.unwrap_err();
        let unmet = |it: &_| matches!(it, NotHealthy::Missing(Missing::Level { .. }));
        assert!(matches!(&error.reason, Reason::Interrupted(Some(it)) if unmet(it)), "{error:?}");
        assert_eq!(error.lost.is_some(), is_lost, "{error:?}");
    }
}

fn down() -> Result<RunnerStatus, ScriptedFault> {
    Err(ScriptedFault::Down)
}

/// A runner under grit-wrapper.
pub(super) fn seen(level: Level, level_max: Option<Level>, version: Option<&str>) -> Snapshot {
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
        concurrent: None,
        oldest_job: None,
        drain: None,
        shutting_down: false,
        evidence: RunnerEvidence::default(),
        registrations: Vec::new(),
        exit: None,
    }));
    snapshot
}

pub(super) fn polling() -> HealthPolicy {
    HealthPolicy { level: Level::Polling, ..policy(600, 0, None) }
}

#[tokio::test(start_paused = true)]
async fn level_is_waited_for_until_it_is_reached() {
    let climbing = |input: ScriptInput| {
        Ok(match input.elapsed.as_secs() {
            // Before the first probe, and just after a start or a restart.
            0..5 => seen(Level::None, None, None),
            5..30 => seen(Level::None, Some(Level::Process), None),
            30..60 => seen(Level::Ready, Some(Level::Working), None),
            _ => seen(Level::Polling, Some(Level::Working), None),
        })
    };
    let healthy = run(&polling(), climbing).await.unwrap();
    assert!(healthy.waited >= Duration::from_secs(60), "{healthy:?}");
}

/// What cannot be proved ends the wait at once. `process` is the explicit way to accept less.
#[tokio::test(start_paused = true)]
async fn unprovable_condition_ends_the_wait() {
    let upstream = || Snapshot::from(RunnerStatus::Running);
    let starting = || Snapshot::from(RunnerStatus::Unknown(0));
    let no_server = || seen(Level::Process, Some(Level::Process), None);
    let version = |version: &str| Some(version.to_owned());
    let cases = [
        (upstream(), Level::Polling, None, true),
        (starting(), Level::Polling, None, true),
        (upstream(), Level::Ready, None, true),
        (upstream(), Level::Process, None, false),
        (upstream(), Level::Process, version("19.2.0"), true),
        (no_server(), Level::Working, None, true),
        (no_server(), Level::Polling, None, true),
        (no_server(), Level::Ready, None, true),
        (no_server(), Level::Process, None, false),
        (no_server(), Level::Process, version("19.2.0"), true),
    ];
    for (snapshot, level, expected_version, is_refused) in cases {
        let case = format!("{level} {expected_version:?} {snapshot:?}");
        let policy = HealthPolicy { level, expected_version, ..policy(600, 0, None) };
        match run(&policy, |_| Ok(snapshot.clone())).await {
            Ok(_) => assert!(!is_refused, "{case}"),
            Err(error) => {
                assert!(
                    matches!(missing_in(&error), Missing::Proof { .. }) && is_refused,
                    "{case}: {error:?}"
                );
                assert!(error.waited <= Duration::from_secs(5), "{case}: {error:?}");
            }
        }
    }
}

/// A host that boots writes the configuration in several steps.
#[tokio::test(start_paused = true)]
async fn late_listen_address_is_waited_for() {
    let policy = polling();
    let healthy = run(&policy, |input| {
        Ok(match input.elapsed.as_secs() {
            0..2 => seen(Level::Process, Some(Level::Process), None),
            2..20 => seen(Level::Process, Some(Level::Working), None),
            _ => seen(Level::Polling, Some(Level::Working), None),
        })
    });
    assert!(healthy.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn timeout_names_missing_level_or_version() {
    let strict = HealthPolicy { level: Level::Polling, ..policy(60, 0, None) };
    let error = run(&strict, |_| Ok(seen(Level::Ready, Some(Level::Polling), None))).await.unwrap_err();
    let Missing::Level { wanted, reasons, .. } = missing_in(&error) else { panic!("{error:?}") };
    assert_eq!((*wanted, reasons.len()), (Level::Polling, 1));

    let versioned = HealthPolicy { expected_version: Some("19.3.0".into()), ..policy(60, 0, None) };
    let old = seen(Level::Polling, Some(Level::Polling), Some("19.2.0"));
    let error = run(&versioned, |_| Ok(old.clone())).await.unwrap_err();
    let Missing::Version { found, .. } = missing_in(&error) else { panic!("{error:?}") };
    assert_eq!(found.as_deref(), Some("19.2.0"));
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
        assert!(matches!(error.reason, Reason::Interrupted(_)), "{error:?}");
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
    let working = HealthPolicy { level: Level::Working, min_jobs: 2, ..policy(600, 0, None) };
    let healthy = run(&working, |input| Ok(with_jobs(input.elapsed.as_secs() / 60, 0))).await.unwrap();
    assert!(healthy.waited >= Duration::from_secs(120), "{healthy:?}");

    let error = run(&working, |_| Ok(with_jobs(1, 3))).await.unwrap_err();
    let missing = missing_in(&error);
    assert_eq!(*missing, Missing::Jobs { succeeded: 1, failed: 3, wanted: 2 });
    assert!(missing.to_string().starts_with("1 of 2 jobs"), "{missing}");

    assert!(run(&polling(), |_| Ok(with_jobs(0, 0))).await.is_ok(), "it waits for no jobs");
}

/// More time does not change the token. A lower level does not need it.
#[tokio::test(start_paused = true)]
async fn rejected_token_ends_the_wait() {
    let rejected = || {
        let mut snapshot = seen(Level::Ready, Some(Level::Working), None);
        snapshot.detail.as_mut().unwrap().evidence.rejected_sections = 1;
        snapshot
    };
    let error = run(&polling(), |input| {
        Ok(if input.elapsed.as_secs() < 9 {
            seen(Level::Ready, Some(Level::Working), None)
        } else {
            rejected()
        })
    })
    .await
    .unwrap_err();
    assert!(matches!(missing_in(&error), Missing::Token { .. }), "{error:?}");
    assert!(error.waited < Duration::from_secs(20), "{error:?}");
    let ready = HealthPolicy { level: Level::Ready, ..policy(60, 0, None) };
    assert!(run(&ready, |_| Ok(rejected())).await.is_ok());
}
