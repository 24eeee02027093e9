//! The loop of health checks and drains: one step after the other, until the operation ends, its deadline passes, or Terraform stops it;
//! and the same operation for several runner managers in parallel.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::retry::Retry;
use crate::{
    client::{ClientError, Snapshot, Wrapper},
    log_key as key,
};

/// The poll interval for a wrapper that does not report changes. It is short at first, because most waits are short, and never longer than
/// [`POLL_SLOWEST`], so that a change is found after 0.2 s on average. A call over an open tunnel costs both sides less than 1 ms.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_SLOWEST: Duration = Duration::from_millis(400);
/// The poll interval for a wrapper that reports changes. It finds changes that were missed when the stream of changes broke.
const POLL_WATCHED: Duration = Duration::from_secs(5);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// Time for a call to report its error after the deadline.
const ERROR_GRACE: Duration = Duration::from_millis(500);

/// An operation that waits for a runner.
pub(super) trait Operation {
    type Outcome;

    /// Reads the status and does what is due. Returns the outcome when the operation has ended.
    fn step(
        &mut self,
        state: &mut WaitState<'_>,
    ) -> impl Future<Output = Result<Option<Self::Outcome>, ClientError>> + Send;

    /// Decides about a failed call, which is counted in `state`. Returns the error if the call is retried.
    fn failed(&mut self, state: &WaitState<'_>, error: ClientError) -> Result<ClientError, Self::Outcome>;

    /// The deadline has passed. `None`: `state` has a new deadline.
    fn expired(&mut self, state: &mut WaitState<'_>) -> Option<Self::Outcome>;

    /// Terraform stops the operation.
    fn interrupted(&mut self, state: &mut WaitState<'_>) -> Self::Outcome;

    /// The time until the next step.
    fn pause(&self, state: &WaitState<'_>) -> Duration {
        state.poll_interval()
    }

    /// Logs what the operation waits for.
    fn log_progress(&self, state: &WaitState<'_>);
}

/// The state of a wait, and of the connection to its wrapper.
#[derive(Debug)]
pub(super) struct WaitState<'a> {
    /// The key of the runner manager.
    pub(super) manager: &'a str,
    pub(super) start: Instant,
    pub(super) deadline: Instant,
    /// Consecutive failed calls, without those that had no connection slot or no time.
    pub(super) failures: u32,
    /// How many of the last failed calls found the host absent.
    pub(super) absences: u32,
    /// The last error, until a call succeeds.
    pub(super) lost: Option<ClientError>,
    pub(super) last: Option<Snapshot>,
}

impl<'a> WaitState<'a> {
    pub(super) fn new(manager: &'a str, start: Instant, timeout: Duration) -> Self {
        Self { manager, start, deadline: start + timeout, failures: 0, absences: 0, lost: None, last: None }
    }

    fn count(&mut self, error: &ClientError) {
        if error.was_tried() {
            self.failures += 1;
            self.absences = if error.is_absent() { self.absences + 1 } else { 0 };
        }
    }

    fn reached(&mut self) {
        (self.failures, self.absences, self.lost) = (0, 0, None);
    }

    pub(super) fn poll_interval(&self) -> Duration {
        if self.last.as_ref().is_some_and(|snapshot| snapshot.detail.is_some()) {
            POLL_WATCHED
        } else {
            (self.start.elapsed() / 20).clamp(POLL_FIRST, POLL_SLOWEST)
        }
    }
}

/// Runs an operation until it ends. Dropping the future changes nothing on the host.
pub(super) async fn run<O: Operation>(
    mut operation: O,
    mut state: WaitState<'_>,
    wrapper: &impl Wrapper,
    retry: &Retry,
    stop: &CancellationToken,
) -> O::Outcome {
    let mut backoff = retry.backoff();
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    loop {
        let step = tokio::select! {
            // In this order: Ctrl-C returns immediately.
            biased;
            () = stop.cancelled() => return operation.interrupted(&mut state),
            () = sleep_until(state.deadline + ERROR_GRACE) => match operation.expired(&mut state) {
                Some(outcome) => return outcome,
                None => continue,
            },
            step = operation.step(&mut state) => step,
        };
        let pause = match step {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => {
                state.reached();
                backoff.reset();
                operation.pause(&state)
            }
            // The deadline cut a call short, and the one before was answered: the state has not failed.
            Err(_) if state.lost.is_none() && state.last.is_some() && Instant::now() >= state.deadline => {
                operation.pause(&state)
            }
            Err(error) => {
                state.count(&error);
                match operation.failed(&state, error) {
                    Ok(error) => {
                        let WaitState { manager, failures, .. } = state;
                        tracing::debug!(
                            { key::MANAGER } = manager,
                            { key::FAILURES } = failures,
                            "wrapper unreachable: {error}"
                        );
                        if error.was_tried() || state.lost.is_none() {
                            state.lost = Some(error);
                        }
                        backoff.delay()
                    }
                    Err(outcome) => return outcome,
                }
            }
        };
        if Instant::now() >= next_progress {
            next_progress = Instant::now() + PROGRESS_INTERVAL;
            operation.log_progress(&state);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return operation.interrupted(&mut state),
            () = sleep_until(state.deadline) => if let Some(outcome) = operation.expired(&mut state) {
                return outcome;
            },
            () = wrapper.changed(), if state.lost.is_none() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The outcome for each runner manager, by its key.
pub(crate) type Outcomes<T> = BTreeMap<String, T>;

/// Runs `operation` for all items in parallel, and waits for all: a failure does not stop the others.
///
/// There is no limit, because operations mostly wait. The transport limits the parallel handshakes.
///
/// Dropping the future drops every operation.
pub(crate) async fn for_each<I, T, F>(
    items: BTreeMap<String, I>,
    operation: impl Fn(String, I) -> F,
) -> Outcomes<T>
where
    F: Future<Output = T>,
{
    let running = items.into_iter().map(|(key, item)| {
        let work = operation(key.clone(), item);
        async move { (key, work.await) }
    });
    futures::future::join_all(running).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_outcomes_are_kept_and_waits_run_in_parallel() {
        let start = Instant::now();
        let items = (0..20).map(|n| (format!("m{n:02}"), n)).collect();
        let outcomes = for_each(items, |_, n| async move {
            sleep(Duration::from_secs(10)).await;
            if n % 2 == 0 { Ok(n) } else { Err(n) }
        })
        .await;
        assert_eq!(outcomes.len(), 20);
        assert_eq!(outcomes.values().filter(|o| o.is_err()).count(), 10);
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}
