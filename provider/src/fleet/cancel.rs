//! Cancelling a drain whose signal was not sent to the runner yet.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, Requested},
    retry::Retry,
    wait::{self, Operation, WaitState},
};
use crate::client::{ClientError, RunnerStatus, Snapshot, Wrapper};

/// What is cancelled, and for how long it is tried.
#[derive(Debug, Clone)]
pub(crate) struct CancelPolicy {
    /// Start of the operation: `timeout` counts from here.
    pub start: Instant,
    pub timeout: Duration,
    /// Id of the drain; empty: any.
    pub id: String,
    pub retry: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The drain was cancelled, and the runner accepts jobs.
    Done,
    /// No drain is in progress.
    NotDraining,
}

/// Why the drain was not cancelled.
#[derive(Debug)]
pub(crate) enum NotCancelled {
    TimedOut,
    /// The runner has exited.
    Exited,
    /// Upstream's wrapper does not support it.
    NotSupported,
}

pub(crate) type Outcome = Result<Cancelled, Failure<NotCancelled>>;

/// Cancels the drain in progress, if there is one. The future can be dropped at any time.
pub(crate) async fn run<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &CancelPolicy,
    stop: &CancellationToken,
) -> Outcome {
    let state = WaitState::new(manager, policy.start, policy.timeout);
    let cancel = Cancel { wrapper: wrapper.until(state.deadline), policy, requested: Requested::No };
    wait::run(cancel, state, wrapper, &policy.retry, stop).await
}

struct Cancel<'a, W> {
    wrapper: W,
    policy: &'a CancelPolicy,
    requested: Requested,
}

impl<W: Wrapper> Operation for Cancel<'_, W> {
    type Success = Cancelled;
    type Problem = NotCancelled;

    async fn step(
        &mut self,
        state: &mut WaitState<'_>,
    ) -> Result<Option<Result<Cancelled, NotCancelled>>, ClientError> {
        let snapshot = self.wrapper.read_status().await?;
        state.last = Some(snapshot.clone());
        if snapshot.report.status == RunnerStatus::Stopped {
            return Ok(Some(Err(NotCancelled::Exited)));
        }
        if !is_draining(&snapshot) {
            // This is also the status of a cancelled drain if the response to the request was lost.
            let was_requested = self.requested != Requested::No;
            return Ok(Some(Ok(if was_requested { Cancelled::Done } else { Cancelled::NotDraining })));
        }
        // Before the call, which can be dropped.
        self.requested = Requested::Perhaps;
        match self.wrapper.cancel(&self.policy.id).await {
            Ok(Some(_)) => {
                tracing::info!(manager = state.manager, "drain cancelled");
                Ok(Some(Ok(Cancelled::Done)))
            }
            Ok(None) => Ok(Some(Err(NotCancelled::NotSupported))),
            Err(error) => {
                if !error.may_have_arrived() {
                    self.requested = Requested::No;
                }
                Err(error)
            }
        }
    }

    fn requested(&self) -> Requested {
        self.requested
    }

    fn timed_out(&mut self) -> NotCancelled {
        NotCancelled::TimedOut
    }

    fn log_progress(&self, state: &WaitState<'_>) {
        tracing::info!(manager = state.manager, "waiting for the wrapper to cancel the drain");
    }
}

fn is_draining(snapshot: &Snapshot) -> bool {
    let drain = snapshot.detail.as_deref().and_then(|detail| detail.drain.as_ref());
    snapshot.report.status == RunnerStatus::InShutdown || drain.is_some_and(|drain| drain.outcome.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{
        failure::Reason,
        test_wrapper::{ScriptInput, Scripted, ScriptedFault, retry},
    };

    async fn cancel<S: Into<Snapshot>>(
        script: impl Fn(ScriptInput) -> Result<S, ScriptedFault> + Sync,
        stop: &CancellationToken,
    ) -> Outcome {
        let wrapper = Scripted::new(script);
        let timeout = Duration::from_secs(60);
        let policy =
            CancelPolicy { start: Instant::now(), timeout, id: String::new(), retry: retry(Some(3)) };
        run("m1", &&wrapper, &policy, stop).await
    }

    fn token() -> CancellationToken {
        CancellationToken::new()
    }

    #[tokio::test(start_paused = true)]
    async fn drain_in_progress_is_cancelled() {
        let script = |input: ScriptInput| {
            Ok(if input.cancels == 0 { RunnerStatus::InShutdown } else { RunnerStatus::Running })
        };
        assert_eq!(cancel(script, &token()).await.unwrap(), Cancelled::Done);
    }

    #[tokio::test(start_paused = true)]
    async fn running_runner_has_no_drain_to_cancel() {
        let outcome = cancel(|_| Ok(RunnerStatus::Running), &token()).await;
        assert_eq!(outcome.unwrap(), Cancelled::NotDraining);
    }

    #[tokio::test(start_paused = true)]
    async fn exited_runner_cannot_be_cancelled() {
        let failure = cancel(|_| Ok(RunnerStatus::Stopped), &token()).await.unwrap_err();
        assert!(matches!(failure.reason, Reason::Problem(NotCancelled::Exited)), "{failure:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_wrapper_fails_after_all_attempts() {
        let failure = cancel::<RunnerStatus>(|_| Err(ScriptedFault::Down), &token()).await.unwrap_err();
        assert!(matches!(failure.reason, Reason::Unreached { attempts: 3, .. }), "{failure:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn stop_interrupts_the_retries() {
        let stop = token();
        stop.cancel();
        let failure = cancel::<RunnerStatus>(|_| Err(ScriptedFault::Down), &stop).await.unwrap_err();
        assert!(matches!(failure.reason, Reason::Interrupted(_)), "{failure:?}");
        assert_eq!(failure.requested, Requested::No);
    }
}
