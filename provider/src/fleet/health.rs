//! Waiting until a runner manager is healthy.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Fault, Progress, Retry, Wrapper, poll_interval};
use crate::{
    client::{Level, Look, RunnerStatus, Start},
    duration::human,
};

/// How long `stopped` is taken for a restart in progress. After that the wait fails early: a wrapper that reports it will not start its
/// runner again by itself, so nothing would change until the deadline.
const STOPPED_GRACE: Duration = Duration::from_secs(30);

/// How long a call may go on past the deadline to say why it failed. Calls end at the deadline by themselves.
const LAST_WORD: Duration = Duration::from_millis(500);

/// What counts as healthy, and for how long it is waited for.
#[derive(Debug, Clone)]
pub struct HealthPolicy {
    /// When the operation began: `timeout` counts from here.
    pub start: Instant,
    /// Overall limit.
    pub timeout: Duration,
    /// How long it has to be healthy without a break.
    pub stable_for: Duration,
    /// The rung to reach; `None`: the highest on which the wrapper can see this runner.
    pub level: Option<Level>,
    /// The version that the runner has to tell.
    pub expected_version: Option<String>,
    /// Start a runner that has ended.
    pub start_if_stopped: bool,
    pub retry: Retry,
}

/// Proof that a manager is healthy.
#[derive(Debug, Clone, PartialEq)]
pub struct Healthy {
    /// From the start of the wait to the proof.
    pub waited: Duration,
    pub look: Look,
}

/// Why a manager is not known to be healthy.
#[derive(Debug)]
pub enum NotHealthy<E> {
    /// The wrapper was not reached, or no longer: attempts exhausted, deadline passed while disconnected, or a final refusal.
    Connect { attempts: u32, waited: Duration, error: E },
    /// The wrapper answered, but not with lasting health, until the deadline. `missing` says what was wanting at last.
    TimedOut { waited: Duration, last: Option<Look>, missing: Missing },
    /// The wrapper says that the runner ended, and nothing started it again.
    Stopped { waited: Duration, reason: String, start: Option<Start> },
    /// What is wanted cannot be seen through upstream's wrapper.
    NotProvable { wanted: &'static str },
    /// The stop token fired.
    Interrupted { waited: Duration, last: Option<Look>, start_requested: bool },
}

/// What a runner lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Nothing but time: it was healthy, and not yet for long enough.
    Time,
    /// It does not run.
    Running,
    /// It runs, and has not reached the rung; the wrapper's reasons.
    Level { wanted: Level, reasons: Vec<String> },
    /// It tells another version, or none.
    Version { wanted: String, found: Option<String> },
}

/// Waits until the runner is healthy for `stable_for` without a break.
///
/// Only `running` counts: a draining runner takes no jobs, and `unknown` is a runner that was not started yet. Changes nothing on the
/// host, unless it was told to start a runner that has ended. May be dropped at any moment.
pub async fn wait<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &HealthPolicy,
    stop: &CancellationToken,
) -> Result<Healthy, NotHealthy<W::Error>> {
    let start = policy.start;
    let deadline = start + policy.timeout;
    let mut waiting = Waiting::new(manager, policy, deadline);
    let mut backoff = policy.retry.backoff();
    let mut progress = Progress::new();
    let mut failures = 0;
    let mut lost: Option<W::Error> = None;
    loop {
        let answer = tokio::select! {
            // Stop before deadline before answer: a user who presses Ctrl-C waits for nothing.
            biased;
            () = stop.cancelled() => return Err(waiting.interrupted()),
            () = sleep_until(deadline + LAST_WORD) => return Err(waiting.timed_out(failures, lost)),
            answer = waiting.step(wrapper) => answer,
        };
        let pause = match answer {
            Ok(outcome) => {
                (failures, lost) = (0, None);
                backoff.reset();
                if let Some(outcome) = outcome {
                    return outcome;
                }
                waiting.pause()
            }
            // The deadline cut a call short, and the one before was answered: not the connection has failed.
            Err(_) if failures == 0 && waiting.last.is_some() && Instant::now() >= deadline => {
                return Err(waiting.timed_out(0, None));
            }
            Err(error) => {
                failures += u32::from(error.was_tried());
                waiting.healthy_since = None;
                if !error.retryable() || policy.retry.exhausted(failures) {
                    return Err(NotHealthy::Connect { attempts: failures, waited: start.elapsed(), error });
                }
                tracing::debug!(manager, failures, "wrapper unreachable: {error}");
                lost = Some(error);
                backoff.delay()
            }
        };
        if progress.due() {
            waiting.log_progress(lost.as_ref());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(waiting.interrupted()),
            () = sleep_until(deadline) => return Err(waiting.timed_out(failures, lost)),
            () = wrapper.changed(), if lost.is_none() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What was seen of one manager so far.
struct Waiting<'a> {
    manager: &'a str,
    policy: &'a HealthPolicy,
    deadline: Instant,
    last: Option<Look>,
    missing: Missing,
    healthy_since: Option<Instant>,
    stopped_since: Option<Instant>,
    /// A start was requested, or may have been: its answer may be lost.
    start_requested: bool,
    started: Option<Start>,
}

type Outcome<E> = Result<Healthy, NotHealthy<E>>;

impl<'a> Waiting<'a> {
    fn new(manager: &'a str, policy: &'a HealthPolicy, deadline: Instant) -> Self {
        Self {
            manager,
            policy,
            deadline,
            last: None,
            missing: Missing::Running,
            healthy_since: None,
            stopped_since: None,
            start_requested: false,
            started: None,
        }
    }

    /// Looks, starts the runner when that is wanted, and takes in what was seen; an outcome when it decides the wait.
    async fn step<W: Wrapper>(&mut self, wrapper: &W) -> Result<Option<Outcome<W::Error>>, W::Error> {
        let look = wrapper.look(self.deadline).await?;
        if look.report.status == RunnerStatus::Stopped
            && self.policy.start_if_stopped
            && self.started.is_none()
        {
            // Before the call, which may be dropped in the middle.
            self.start_requested = true;
            match wrapper.start(self.deadline).await {
                Ok(started) => {
                    self.start_requested = started == Start::Requested;
                    self.started = Some(started);
                }
                Err(error) => {
                    self.start_requested = error.may_have_arrived();
                    return Err(error);
                }
            }
            tracing::info!(manager = self.manager, outcome = ?self.started, "start of the runner requested");
        }
        Ok(self.heard(look))
    }

    fn heard<E>(&mut self, look: Look) -> Option<Outcome<E>> {
        self.log_change(&look);
        let now = Instant::now();
        let waited = now - self.policy.start;
        if look.report.status == RunnerStatus::Stopped {
            let since = *self.stopped_since.get_or_insert(now);
            if now - since >= STOPPED_GRACE {
                let reason = look.report.failure_reason;
                return Some(Err(NotHealthy::Stopped { waited, reason, start: self.started }));
            }
        } else {
            self.stopped_since = None;
        }
        let missing = match missing(&look, self.policy) {
            Ok(missing) => missing,
            Err(wanted) => return Some(Err(NotHealthy::NotProvable { wanted })),
        };
        self.last = Some(look.clone());
        if let Some(missing) = missing {
            self.missing = missing;
            self.healthy_since = None;
            return None;
        }
        self.missing = Missing::Time;
        let since = *self.healthy_since.get_or_insert(now);
        (now - since >= self.policy.stable_for).then(|| Ok(Healthy { waited, look }))
    }

    /// The time to the next look; not past the moment at which health has lasted long enough.
    fn pause(&self) -> Duration {
        let pause = poll_interval(self.policy.start.elapsed(), self.last.as_ref());
        match self.healthy_since {
            Some(since) => {
                pause.min((since + self.policy.stable_for).saturating_duration_since(Instant::now()))
            }
            None => pause,
        }
    }

    /// The deadline passed: was it the connection, or the runner?
    fn timed_out<E>(self, failures: u32, lost: Option<E>) -> NotHealthy<E> {
        let waited = self.policy.start.elapsed();
        match lost {
            Some(error) => NotHealthy::Connect { attempts: failures, waited, error },
            None => NotHealthy::TimedOut { waited, last: self.last, missing: self.missing },
        }
    }

    fn interrupted<E>(self) -> NotHealthy<E> {
        NotHealthy::Interrupted {
            waited: self.policy.start.elapsed(),
            last: self.last,
            start_requested: self.start_requested,
        }
    }

    fn log_change(&self, look: &Look) {
        let level = |look: &Look| look.detail.as_deref().map(|detail| detail.level);
        if self.last.as_ref().is_none_or(|last| last.report != look.report || level(last) != level(look)) {
            let level = level(look).map(Level::as_str);
            tracing::info!(manager = self.manager, status = %look.report.status, level, "runner status changed");
        }
    }

    fn log_progress(&self, lost: Option<&impl Fault>) {
        let waited = human(self.policy.start.elapsed());
        match (lost, &self.last) {
            (Some(error), _) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for a healthy runner; wrapper unreachable: {error}"
                );
            }
            (None, Some(look)) => {
                let (status, missing) = (look.report.status, &self.missing);
                tracing::info!(manager = self.manager, waited, %status, ?missing, "waiting for a healthy runner");
            }
            (None, None) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for the first response of the wrapper"
                );
            }
        }
    }
}

/// What the runner lacks; an error names what upstream's wrapper cannot tell.
pub fn missing(look: &Look, policy: &HealthPolicy) -> Result<Option<Missing>, &'static str> {
    let Some(detail) = look.detail.as_deref() else {
        if matches!(policy.level, Some(Level::Ready | Level::Polling)) {
            return Err("level");
        }
        if policy.expected_version.is_some() {
            return Err("expected_version");
        }
        return Ok((look.report.status != RunnerStatus::Running).then_some(Missing::Running));
    };
    if look.report.status != RunnerStatus::Running {
        return Ok(Some(Missing::Running));
    }
    // Before the wrapper's first probe nobody knows how far the runner can be seen: then it is not healthy yet.
    let wanted = policy.level.or(detail.goal).unwrap_or(Level::Polling);
    if detail.level < wanted {
        return Ok(Some(Missing::Level { wanted, reasons: detail.reasons.clone() }));
    }
    Ok(policy
        .expected_version
        .as_ref()
        .filter(|wanted| detail.runner_version.as_ref() != Some(*wanted))
        .map(|wanted| Missing::Version { wanted: wanted.clone(), found: detail.runner_version.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Detail;
    use crate::fleet::test_wrapper::{Scene, Scripted, ScriptedFault, retry};

    fn policy(timeout: u64, stable_for: u64, attempts: Option<u32>) -> HealthPolicy {
        HealthPolicy {
            start: Instant::now(),
            timeout: Duration::from_secs(timeout),
            stable_for: Duration::from_secs(stable_for),
            level: None,
            expected_version: None,
            start_if_stopped: false,
            retry: retry(attempts),
        }
    }

    async fn run<S: Into<Look> + Send>(
        policy: &HealthPolicy,
        script: impl Fn(Scene) -> Result<S, ScriptedFault> + Sync,
    ) -> Result<Healthy, NotHealthy<ScriptedFault>> {
        wait("m1", &Scripted::new(script), policy, &CancellationToken::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn late_booting_host_becomes_healthy() {
        let healthy = run(&policy(600, 0, None), |scene| match scene.elapsed.as_secs() {
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
        assert!(
            matches!(&error, NotHealthy::TimedOut { last: Some(look), .. } if look.report.status == RunnerStatus::InShutdown),
            "{error:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn crash_loop_restarts_stable_for() {
        let healthy = run(&policy(600, 30, None), |scene| {
            // A crash loop, down for the first 5 s of every 25, until 105 s.
            let up = scene.elapsed.as_secs() >= 105 || scene.elapsed.as_secs() % 25 >= 5;
            Ok(if up { RunnerStatus::Running } else { RunnerStatus::Stopped })
        })
        .await
        .unwrap();
        assert!(healthy.waited >= Duration::from_secs(135), "{healthy:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_limit_connects_but_not_health_wait() {
        let error = run(&policy(600, 0, Some(3)), |_| down()).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { attempts: 3, .. }), "{error:?}");

        let policy = policy(600, 0, Some(3));
        let slow = run(&policy, |scene| {
            Ok(if scene.elapsed.as_secs() < 500 { RunnerStatus::Unknown(0) } else { RunnerStatus::Running })
        });
        assert!(slow.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn health_timeout_without_connection_is_connect_error() {
        let error = run(&policy(60, 0, None), |_| down()).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { error: ScriptedFault::Down, .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connection_is_not_retried() {
        let error =
            run(&policy(600, 0, None), |_| Err::<RunnerStatus, _>(ScriptedFault::Refused)).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { attempts: 1, .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_runner_fails_health_before_timeout() {
        let error = run(&policy(600, 0, None), |_| Ok(RunnerStatus::Stopped)).await.unwrap_err();
        let NotHealthy::Stopped { waited, .. } = error else { panic!("{error:?}") };
        assert!(waited < Duration::from_secs(60), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn stop_token_ends_health_wait_immediately() {
        let stop = CancellationToken::new();
        let wrapper = Scripted::new(|_| Ok(RunnerStatus::Unknown(0)));
        let policy = policy(3600, 0, None);
        let (outcome, ()) = tokio::join!(wait("m1", &wrapper, &policy, &stop), async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            stop.cancel();
        });
        let Err(NotHealthy::Interrupted { waited, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(waited.as_secs(), 100);
    }

    fn down() -> Result<RunnerStatus, ScriptedFault> {
        Err(ScriptedFault::Down)
    }

    /// A runner behind our own wrapper.
    fn seen(level: Level, goal: Option<Level>, version: Option<&str>) -> Look {
        let mut look = Look::from(RunnerStatus::Running);
        look.detail = Some(Box::new(Detail {
            wrapper_version: "0.1.0".into(),
            level,
            goal,
            reasons: vec!["no job request was answered yet".into()],
            runner_version: version.map(str::to_owned),
            pid: Some(1),
            started_at: None,
            jobs: None,
            oldest_job: None,
            drain: None,
            exit: None,
        }));
        look
    }

    #[tokio::test(start_paused = true)]
    async fn level_auto_waits_for_maximum_level() {
        let climbing = |scene: Scene| {
            Ok(match scene.elapsed.as_secs() {
                0..5 => seen(Level::None, None, None),
                5..60 => seen(Level::Ready, Some(Level::Polling), None),
                _ => seen(Level::Polling, Some(Level::Polling), None),
            })
        };
        let healthy = run(&policy(600, 0, None), climbing).await.unwrap();
        assert!(healthy.waited >= Duration::from_secs(60), "{healthy:?}");

        let blind =
            run(&policy(600, 0, None), |_| Ok(seen(Level::Process, Some(Level::Process), None))).await;
        assert!(blind.is_ok(), "{blind:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_names_missing_level_or_version() {
        let strict = HealthPolicy { level: Some(Level::Polling), ..policy(60, 0, None) };
        let error = run(&strict, |_| Ok(seen(Level::Ready, Some(Level::Polling), None))).await.unwrap_err();
        let NotHealthy::TimedOut { missing: Missing::Level { wanted, reasons }, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((wanted, reasons.len()), (Level::Polling, 1));

        let versioned = HealthPolicy { expected_version: Some("19.3.0".into()), ..policy(60, 0, None) };
        let old = seen(Level::Polling, Some(Level::Polling), Some("19.2.0"));
        let error = run(&versioned, |_| Ok(old.clone())).await.unwrap_err();
        let NotHealthy::TimedOut { missing: Missing::Version { found, .. }, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(found.as_deref(), Some("19.2.0"));
    }

    #[tokio::test(start_paused = true)]
    async fn unsupported_level_fails_immediately_with_upstream() {
        let strict = HealthPolicy { level: Some(Level::Ready), ..policy(600, 0, None) };
        let error = run(&strict, |_| Ok(RunnerStatus::Running)).await.unwrap_err();
        assert!(matches!(error, NotHealthy::NotProvable { wanted: "level" }), "{error:?}");
        let process = HealthPolicy { level: Some(Level::Process), ..policy(600, 0, None) };
        assert!(run(&process, |_| Ok(RunnerStatus::Running)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn start_if_stopped_starts_runner_once() {
        let starting = HealthPolicy { start_if_stopped: true, ..policy(600, 0, None) };
        let wrapper = Scripted::new(|scene: Scene| {
            Ok(if scene.starts == 0 { RunnerStatus::Stopped } else { RunnerStatus::Running })
        });
        wait("m1", &wrapper, &starting, &CancellationToken::new()).await.unwrap();

        // It ends again at once: not started for ever.
        let wrapper = Scripted::new(|_| Ok(RunnerStatus::Stopped));
        let error = wait("m1", &wrapper, &starting, &CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Stopped { start: Some(Start::Requested), .. }), "{error:?}");
    }
}
