//! Waiting until a runner manager is healthy.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Fault, Progress, Retry, Wrapper, poll_interval};
use crate::{
    args::duration::human,
    client::{RunnerStatus, StatusReport},
};

/// How long `stopped` is taken for a restart in progress. After that the wait fails early: upstream's wrapper never starts its
/// runner again, so nothing would change until the deadline.
const STOPPED_GRACE: Duration = Duration::from_secs(30);

/// What counts as healthy, and for how long it is waited for.
#[derive(Debug, Clone)]
pub struct HealthPolicy {
    /// Overall limit.
    pub timeout: Duration,
    /// How long `running` has to hold without a break.
    pub stable_for: Duration,
    pub retry: Retry,
}

/// Proof that a manager is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Healthy {
    /// From the start of the wait to the proof.
    pub waited: Duration,
}

/// Why a manager is not known to be healthy.
#[derive(Debug)]
pub enum NotHealthy<E> {
    /// The wrapper was not reached, or no longer: attempts exhausted, deadline passed while disconnected, or a final refusal.
    Connect { attempts: u32, waited: Duration, error: E },
    /// The wrapper answered, but not with a lasting `running`, until the deadline.
    TimedOut { waited: Duration, last: Option<StatusReport> },
    /// The wrapper says that the runner ended, and nothing started it again.
    Stopped { waited: Duration, reason: String },
    /// The stop token fired.
    Interrupted { waited: Duration, last: Option<StatusReport> },
}

/// Waits until the wrapper reports `running` for `stable_for` without a break.
///
/// Only `running` counts: a draining runner takes no jobs, and `unknown` is a runner that was not started yet. May be dropped at
/// any moment: it changes nothing on the host.
pub async fn wait<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &HealthPolicy,
    stop: &CancellationToken,
) -> Result<Healthy, NotHealthy<W::Error>> {
    let start = Instant::now();
    let deadline = start + policy.timeout;
    let mut waiting = Waiting { manager, start, last: None, running_since: None, stopped_since: None };
    let mut backoff = policy.retry.backoff();
    let mut progress = Progress::new();
    let mut failures = 0;
    let mut lost: Option<W::Error> = None;
    loop {
        let answer = tokio::select! {
            // Stop before deadline before answer: a user who presses Ctrl-C waits for nothing.
            biased;
            () = stop.cancelled() => return Err(NotHealthy::Interrupted { waited: start.elapsed(), last: waiting.last }),
            () = sleep_until(deadline) => return Err(waiting.timed_out(failures, lost)),
            answer = wrapper.check_status() => answer,
        };
        let pause = match answer {
            Ok(report) => {
                (failures, lost) = (0, None);
                backoff.reset();
                if let Some(outcome) = waiting.heard(report, policy) {
                    return outcome;
                }
                poll_interval(start.elapsed())
            }
            Err(error) => {
                failures += 1;
                waiting.running_since = None;
                if !error.retryable() || policy.retry.exhausted(failures) {
                    return Err(NotHealthy::Connect { attempts: failures, waited: start.elapsed(), error });
                }
                tracing::debug!(manager, failures, "not reached: {error}");
                lost = Some(error);
                backoff.delay()
            }
        };
        if progress.due() {
            waiting.log_progress(lost.as_ref());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(NotHealthy::Interrupted { waited: start.elapsed(), last: waiting.last }),
            () = sleep_until(deadline) => return Err(waiting.timed_out(failures, lost)),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What was seen of one manager so far.
struct Waiting<'a> {
    manager: &'a str,
    start: Instant,
    last: Option<StatusReport>,
    running_since: Option<Instant>,
    stopped_since: Option<Instant>,
}

impl Waiting<'_> {
    /// Takes an answer in; an outcome when it decides the wait.
    fn heard<E>(
        &mut self,
        report: StatusReport,
        policy: &HealthPolicy,
    ) -> Option<Result<Healthy, NotHealthy<E>>> {
        if self.last.as_ref() != Some(&report) {
            tracing::info!(manager = self.manager, status = %report.status, "runner status");
        }
        let now = Instant::now();
        let status = report.status;
        let reason = report.failure_reason.clone();
        self.last = Some(report);
        if status != RunnerStatus::Running {
            self.running_since = None;
        }
        if status != RunnerStatus::Stopped {
            self.stopped_since = None;
        }
        match status {
            RunnerStatus::Running => {
                let since = *self.running_since.get_or_insert(now);
                (now - since >= policy.stable_for).then(|| Ok(Healthy { waited: now - self.start }))
            }
            RunnerStatus::Stopped => {
                let since = *self.stopped_since.get_or_insert(now);
                (now - since >= STOPPED_GRACE)
                    .then(|| Err(NotHealthy::Stopped { waited: now - self.start, reason }))
            }
            RunnerStatus::InShutdown | RunnerStatus::Unknown(_) => None,
        }
    }

    /// The deadline passed: was it the connection, or the runner?
    fn timed_out<E>(self, failures: u32, lost: Option<E>) -> NotHealthy<E> {
        let waited = self.start.elapsed();
        match lost {
            Some(error) => NotHealthy::Connect { attempts: failures, waited, error },
            None => NotHealthy::TimedOut { waited, last: self.last },
        }
    }

    fn log_progress(&self, lost: Option<&impl Fault>) {
        let waited = human(self.start.elapsed());
        match (lost, &self.last) {
            (Some(error), _) => {
                tracing::info!(manager = self.manager, waited, "waiting for a healthy runner: {error}");
            }
            (None, Some(report)) => {
                tracing::info!(manager = self.manager, waited, status = %report.status, "waiting for a healthy runner");
            }
            (None, None) => {
                tracing::info!(manager = self.manager, waited, "waiting for the wrapper's first answer");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::scripted::{Scene, Scripted, ScriptedFault, retry};

    fn policy(timeout: u64, stable_for: u64, attempts: Option<u32>) -> HealthPolicy {
        HealthPolicy {
            timeout: Duration::from_secs(timeout),
            stable_for: Duration::from_secs(stable_for),
            retry: retry(attempts),
        }
    }

    async fn run(
        policy: &HealthPolicy,
        script: impl Fn(Scene) -> Result<RunnerStatus, ScriptedFault> + Sync,
    ) -> Result<Healthy, NotHealthy<ScriptedFault>> {
        wait("m1", &Scripted::new(script), policy, &CancellationToken::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_boots_late_becomes_healthy() {
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
    async fn a_draining_runner_is_not_healthy() {
        let error = run(&policy(60, 0, None), |_| Ok(RunnerStatus::InShutdown)).await.unwrap_err();
        assert!(
            matches!(&error, NotHealthy::TimedOut { last: Some(report), .. } if report.status == RunnerStatus::InShutdown),
            "{error:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn running_has_to_hold_for_the_stable_time() {
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
    async fn attempts_bound_the_connection_and_not_the_wait() {
        let error = run(&policy(600, 0, Some(3)), |_| Err(ScriptedFault::Down)).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { attempts: 3, .. }), "{error:?}");

        let policy = policy(600, 0, Some(3));
        let slow = run(&policy, |scene| {
            Ok(if scene.elapsed.as_secs() < 500 { RunnerStatus::Unknown(0) } else { RunnerStatus::Running })
        });
        assert!(slow.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_without_a_connection_is_a_connection_failure() {
        let error = run(&policy(60, 0, None), |_| Err(ScriptedFault::Down)).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { error: ScriptedFault::Down, .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_tried_again() {
        let error = run(&policy(600, 0, None), |_| Err(ScriptedFault::Refused)).await.unwrap_err();
        assert!(matches!(error, NotHealthy::Connect { attempts: 1, .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_runner_that_ended_for_good_fails_before_the_deadline() {
        let error = run(&policy(600, 0, None), |_| Ok(RunnerStatus::Stopped)).await.unwrap_err();
        let NotHealthy::Stopped { waited, .. } = error else { panic!("{error:?}") };
        assert!(waited < Duration::from_secs(60), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn stop_ends_the_wait_at_once() {
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
}
