//! The loop of health checks and drains: one step after the other, until the operation ends, its deadline passes, or Terraform stops it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, Reason, Requested},
    retry::{Backoff, Retry},
};
use crate::client::{ClientError, Snapshot, Wrapper};

/// The poll interval for upstream's wrapper, which does not report changes. It is short at first, because most waits are short, and never longer than
/// [`POLL_UPSTREAM_SLOWEST`], so that a change is found after 0.2 s on average. A call over an open tunnel costs both sides less than 1 ms.
const POLL_UPSTREAM_FIRST: Duration = Duration::from_millis(100);
const POLL_UPSTREAM_SLOWEST: Duration = Duration::from_millis(400);
/// The poll interval for grit-wrapper, which reports changes. It finds changes that were missed when the stream of changes broke.
const POLL_WATCHED: Duration = Duration::from_secs(5);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// Time for a call to report its error after the deadline.
const ERROR_GRACE: Duration = Duration::from_millis(500);

/// An operation that waits for a runner.
pub(super) trait Operation: Sized {
    type Success;
    /// Why this operation fails although the wrapper responds.
    type Problem;

    /// Reads the status and does what is due. Returns the result when the operation has ended.
    fn step(
        &mut self,
        state: &mut WaitState<'_>,
    ) -> impl Future<Output = Result<Step<Self>, ClientError>> + Send;

    /// What the operation has requested until now.
    fn requested(&self) -> Requested;

    /// Whether another attempt follows a failed call, which is counted in `state`.
    fn retries(&self, state: &WaitState<'_>, error: &ClientError, retry: &Retry) -> bool {
        error.retryable() && !retry.exhausted(state.failures)
    }

    /// The success of an operation that has not reached its wrapper, if there is one. `expired`: the deadline has passed.
    fn unreached(
        &self,
        _state: &WaitState<'_>,
        _error: &ClientError,
        _expired: bool,
    ) -> Option<Self::Success> {
        None
    }

    /// The deadline has passed. An operation that goes on has set a later one in `state`.
    fn expired(&mut self, state: &mut WaitState<'_>) -> Expired<Self::Problem>;

    /// What the operation waits for, if that is one of its problems.
    fn unmet(&self) -> Option<Self::Problem> {
        None
    }

    /// The time until the next step.
    fn pause(&self, state: &WaitState<'_>) -> Duration {
        state.poll_interval()
    }

    /// Logs what the operation waits for.
    fn log_progress(&self, state: &WaitState<'_>);
}

/// What becomes of an operation at its deadline.
pub(super) enum Expired<P> {
    GoesOn,
    /// With this problem. If its wrapper is not reached, the last error counts instead.
    Fails(P),
}

/// The result of the operation after a step, if it has ended.
pub(super) type Step<O> = Option<Result<<O as Operation>::Success, <O as Operation>::Problem>>;

/// The result of an operation.
pub(super) type Outcome<O> = Result<<O as Operation>::Success, Failure<<O as Operation>::Problem>>;

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
    /// The time of the first of them.
    pub(super) absent_since: Instant,
    /// The last error, until a call succeeds.
    pub(super) lost: Option<ClientError>,
    pub(super) last: Option<Snapshot>,
}

impl<'a> WaitState<'a> {
    pub(super) fn new(manager: &'a str, start: Instant, timeout: Duration) -> Self {
        let (deadline, absent_since) = (start + timeout, start);
        Self { manager, start, deadline, failures: 0, absences: 0, absent_since, lost: None, last: None }
    }

    fn count(&mut self, error: &ClientError) {
        if error.was_tried() {
            self.failures += 1;
            self.absences = if error.is_absent() { self.absences + 1 } else { 0 };
            if self.absences == 1 {
                self.absent_since = Instant::now();
            }
        }
    }

    fn reached(&mut self) {
        (self.failures, self.absences, self.lost) = (0, 0, None);
    }

    fn failure<O: Operation>(&mut self, operation: &O, reason: Reason<O::Problem>) -> Failure<O::Problem> {
        let (waited, requested) = (self.start.elapsed(), operation.requested());
        Failure { waited, requested, last: self.last.take(), lost: self.lost.take().map(Box::new), reason }
    }

    fn interrupted<O: Operation>(&mut self, operation: &O) -> Failure<O::Problem> {
        self.failure(operation, Reason::Interrupted(operation.unmet()))
    }

    fn failure_of_call<O: Operation>(&mut self, operation: &O, error: ClientError) -> Failure<O::Problem> {
        let attempts = self.failures;
        self.failure(operation, Reason::Unreached { attempts, error })
    }

    pub(super) fn poll_interval(&self) -> Duration {
        if self.last.as_ref().is_some_and(|snapshot| snapshot.detail.is_some()) {
            POLL_WATCHED
        } else {
            (self.start.elapsed() / 20).clamp(POLL_UPSTREAM_FIRST, POLL_UPSTREAM_SLOWEST)
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
) -> Outcome<O> {
    let mut backoff = Backoff::default();
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    loop {
        let step = tokio::select! {
            // In this order: Ctrl-C returns immediately.
            biased;
            () = stop.cancelled() => return Err(state.interrupted(&operation)),
            () = sleep_until(state.deadline + ERROR_GRACE) => match expired(&mut operation, &mut state) {
                Some(outcome) => return outcome,
                None => continue,
            },
            step = operation.step(&mut state) => step,
        };
        let pause = match step {
            Ok(Some(Ok(success))) => return Ok(success),
            Ok(Some(Err(problem))) => return Err(state.failure(&operation, Reason::Problem(problem))),
            Ok(None) => {
                state.reached();
                backoff.reset();
                operation.pause(&state)
            }
            // The deadline cut a call short after a successful call: not a connection failure.
            Err(_) if state.lost.is_none() && state.last.is_some() && Instant::now() >= state.deadline => {
                operation.pause(&state)
            }
            Err(error) => {
                state.count(&error);
                if !operation.retries(&state, &error, retry) {
                    return match operation.unreached(&state, &error, false) {
                        Some(success) => Ok(success),
                        None => Err(state.failure_of_call(&operation, error)),
                    };
                }
                let WaitState { manager, failures, .. } = state;
                tracing::debug!(manager, failures, "wrapper unreachable: {error}");
                if error.was_tried() || state.lost.is_none() {
                    state.lost = Some(error);
                }
                backoff.delay()
            }
        };
        if Instant::now() >= next_progress {
            next_progress = Instant::now() + PROGRESS_INTERVAL;
            operation.log_progress(&state);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(state.interrupted(&operation)),
            () = sleep_until(state.deadline) => if let Some(outcome) = expired(&mut operation, &mut state) {
                return outcome;
            },
            () = wrapper.changed(), if state.lost.is_none() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The outcome at the deadline. `None`: there is a new deadline.
fn expired<O: Operation>(operation: &mut O, state: &mut WaitState<'_>) -> Option<Outcome<O>> {
    let Expired::Fails(problem) = operation.expired(state) else { return None };
    let Some(error) = state.lost.take() else {
        return Some(Err(state.failure(operation, Reason::Problem(problem))));
    };
    Some(match operation.unreached(state, &error, true) {
        Some(success) => Ok(success),
        None => Err(state.failure_of_call(operation, error)),
    })
}
