//! The loop that health and drain share: one call after the other, until the operation ends, its deadline passes, or Terraform stops it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::retry::Retry;
use crate::client::{ClientError, Snapshot, Wrapper};

/// How often a wrapper that reports no changes is called. Short at first, because most waits are short; never longer than
/// [`POLL_SLOWEST`], so that a change is seen after a fifth of a second on average. A call over an open tunnel costs both ends less than a
/// millisecond.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_SLOWEST: Duration = Duration::from_millis(400);
/// Where the wrapper reports changes, calls find only what was missed when the stream of changes broke.
const POLL_WATCHED: Duration = Duration::from_secs(5);

/// How often a long wait logs its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// How long a call may go on past the deadline to report why it failed. Calls end at the deadline by themselves.
const ERROR_GRACE: Duration = Duration::from_millis(500);

/// What a wait is for.
pub(super) trait Operation {
    /// How it ends.
    type Outcome;

    /// The key of the runner manager.
    fn manager(&self) -> &str;

    /// When the operation began.
    fn start(&self) -> Instant;

    /// When it ends at the latest.
    fn deadline(&self) -> Instant;

    /// Reads the status and does what is due; the outcome when the operation is over.
    fn step(
        &mut self,
        connection: &mut ConnectionState,
    ) -> impl Future<Output = Result<Option<Self::Outcome>, ClientError>> + Send;

    /// Decides about a failed call, which is counted in `connection`: the error comes back where it is worth another attempt.
    fn failed(
        &mut self,
        connection: &ConnectionState,
        error: ClientError,
    ) -> Result<ClientError, Self::Outcome>;

    /// The deadline has passed. `None`: the operation goes on until its new deadline.
    fn expired(&mut self, connection: &mut ConnectionState) -> Option<Self::Outcome>;

    /// Terraform stops the operation.
    fn interrupted(&mut self, connection: &mut ConnectionState) -> Self::Outcome;

    /// The time until the next step.
    fn pause(&self, connection: &ConnectionState) -> Duration {
        connection.poll_interval(self.start())
    }

    /// Logs what the operation waits for.
    fn log_progress(&self, connection: &ConnectionState);
}

/// What is known about the connection to the wrapper.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Failed calls in a row. A call that other connections kept from being begun does not count.
    pub(super) failures: u32,
    /// How many of the last failed calls found the host absent.
    pub(super) absences: u32,
    /// The last failure, while the wrapper is not reached.
    pub(super) lost: Option<ClientError>,
    /// The last status.
    pub(super) last: Option<Snapshot>,
}

impl ConnectionState {
    fn count(&mut self, error: &ClientError) {
        self.failures += u32::from(error.was_tried());
        self.absences = if error.is_absent() { self.absences + 1 } else { 0 };
    }

    fn reached(&mut self) {
        (self.failures, self.absences, self.lost) = (0, 0, None);
    }

    pub(super) fn poll_interval(&self, start: Instant) -> Duration {
        if self.last.as_ref().is_some_and(|snapshot| snapshot.detail.is_some()) {
            POLL_WATCHED
        } else {
            (start.elapsed() / 20).clamp(POLL_FIRST, POLL_SLOWEST)
        }
    }
}

/// Runs an operation to its end. May be dropped at any moment; that changes nothing on the host.
pub(super) async fn run<O: Operation>(
    mut operation: O,
    wrapper: &impl Wrapper,
    retry: &Retry,
    stop: &CancellationToken,
) -> O::Outcome {
    let mut connection = ConnectionState::default();
    let mut backoff = retry.backoff();
    let mut next_progress = Instant::now() + PROGRESS_EVERY;
    loop {
        let step = tokio::select! {
            // Stop before deadline before answer: Ctrl-C returns at once.
            biased;
            () = stop.cancelled() => return operation.interrupted(&mut connection),
            () = sleep_until(operation.deadline() + ERROR_GRACE) => match operation.expired(&mut connection) {
                Some(outcome) => return outcome,
                None => continue,
            },
            step = operation.step(&mut connection) => step,
        };
        let pause = match step {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => {
                connection.reached();
                backoff.reset();
                operation.pause(&connection)
            }
            // The deadline cut a call short, and the one before was answered: the connection has not failed.
            Err(_)
                if connection.lost.is_none()
                    && connection.last.is_some()
                    && Instant::now() >= operation.deadline() =>
            {
                operation.pause(&connection)
            }
            Err(error) => {
                connection.count(&error);
                match operation.failed(&connection, error) {
                    Ok(error) => {
                        let (manager, failures) = (operation.manager(), connection.failures);
                        tracing::debug!(manager, failures, "wrapper unreachable: {error}");
                        connection.lost = Some(error);
                        backoff.delay()
                    }
                    Err(outcome) => return outcome,
                }
            }
        };
        if Instant::now() >= next_progress {
            next_progress = Instant::now() + PROGRESS_EVERY;
            operation.log_progress(&connection);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return operation.interrupted(&mut connection),
            () = sleep_until(operation.deadline()) => if let Some(outcome) = operation.expired(&mut connection) {
                return outcome;
            },
            () = wrapper.changed(), if connection.lost.is_none() => {}
            () = sleep(pause) => {}
        }
    }
}
