//! Requests the shutdown of a runner, and waits until its process has exited.

mod next;
mod outcome;
mod policy;
mod process;
mod progress;

use std::time::Duration;

use grit_ssh::Confirmation;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    next::{DrainState, Next, next},
    progress::Lines,
};
use super::{
    failure::Failure,
    retry::Retry,
    wait::{self, Expired, Operation, WaitState},
};
use crate::{
    client::{ClientError, DrainRequest, RunnerStatus, Snapshot, Wrapper},
    duration::human,
};

pub use super::{failure::Requested, receipt::OnLostJobs};
pub use outcome::{Drained, Ended, InProgress, NotDrained, StartedBy};
pub use policy::{DrainPolicy, Mode, OnTimeout, OnUnreachable, Until};

/// The time limit of a forceful shutdown after a timeout, in addition to `timeouts.delete`. By default, GitLab Runner's `shutdown_timeout` is
/// 30 s, and the wrapper kills the process 15 s after that. If the first report after the request has a later time, the drain waits for that one. Later
/// reports have no effect: a host cannot put off the end of the drain.
pub const FORCE_LIMIT: Duration = Duration::from_secs(120);

pub type Outcome = Result<Drained, Failure<NotDrained>>;

type Step = Option<Result<Drained, NotDrained>>;

/// Requests the shutdown unless it is in progress, and waits until the wrapper reports `stopped`, or for less (see [`Until`]).
///
/// Can be repeated: a runner that has exited is a success, and a drain in progress is joined. Only `stopped` ends the wait: a runner
/// without jobs, or an unreachable host, is not an exited runner. Dropping the future does not stop the shutdown.
pub async fn run<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &DrainPolicy,
    stop: &CancellationToken,
) -> Outcome {
    let wait = WaitState::new(manager, policy.start, policy.timeout);
    let state = DrainState::new(policy);
    let drain = Drain { wrapper, state, aborted: Vec::new(), lines: Lines::new(manager) };
    wait::run(drain, wait, wrapper, &policy.retry, stop).await
}

struct Drain<'a, W> {
    wrapper: &'a W,
    state: DrainState<'a>,
    /// The jobs that were running before the forceful request.
    aborted: Vec<u64>,
    lines: Lines<'a>,
}

impl<W: Wrapper> Operation for Drain<'_, W> {
    type Success = Drained;
    type Problem = NotDrained;

    async fn step(&mut self, wait: &mut WaitState<'_>) -> Result<Step, ClientError> {
        let mut snapshot = self.wrapper.until(wait.deadline).read_status().await?;
        loop {
            self.received(&snapshot, wait);
            match next(&self.state, &snapshot, Instant::now()) {
                Next::Wait => return Ok(None),
                Next::Request => snapshot = self.request(&snapshot, wait).await?,
                Next::Record => snapshot = self.record(snapshot, wait).await?,
                Next::Done => return Ok(Some(Ok(self.drained(snapshot)))),
                Next::Fail(problem) => return Ok(Some(Err(problem))),
            }
        }
    }

    fn requested(&self) -> Requested {
        self.state.requested
    }

    fn retries(&self, wait: &WaitState<'_>, error: &ClientError, retry: &Retry) -> bool {
        let failures = match self.failures_of_terminated(wait, error) {
            0 => wait.failures,
            gone => gone,
        };
        // The user has confirmed that the host is gone: the first attempt is enough.
        let is_over = self.is_confirmed(error) && error.was_tried();
        error.retryable() && !is_over && (self.state.requested != Requested::No || !retry.exhausted(failures))
    }

    /// A host counts as terminated if a setting allows it. At the deadline, all of its last attempts must show it.
    fn unreached(&self, wait: &WaitState<'_>, error: &ClientError, expired: bool) -> Option<Drained> {
        let attempts = self.failures_of_terminated(wait, error);
        let counts = attempts > 0 && !(expired && attempts < wait.failures);
        let waited = self.state.policy.start.elapsed();
        let since = wait.absent_since;
        counts.then(|| Drained::AssumedTerminated { attempts, since, waited, error: error.clone() })
    }

    fn expired(&mut self, wait: &mut WaitState<'_>) -> Expired<NotDrained> {
        if let Some(problem) = self.state.at_deadline() {
            return Expired::Fails(problem);
        }
        tracing::warn!(manager = wait.manager, "not drained in time; requesting a forceful shutdown");
        wait.deadline = Instant::now() + FORCE_LIMIT;
        Expired::GoesOn
    }

    fn log_progress(&self, wait: &WaitState<'_>) {
        self.lines.state(wait.last.as_ref(), wait.lost.as_ref());
        let (manager, waited) = (wait.manager, human(wait.start.elapsed()));
        match &wait.lost {
            Some(error) => {
                tracing::info!(
                    manager,
                    waited,
                    "waiting for the runner to exit; wrapper unreachable: {error}"
                );
            }
            None => {
                let left = wait.last.as_ref().and_then(Snapshot::jobs_left);
                let problems = wait.last.as_ref().and_then(Snapshot::shutdown_problems);
                let waits_for = wait.last.as_ref().and_then(Snapshot::signal_waits_for);
                tracing::info!(
                    manager,
                    waited,
                    left,
                    problems,
                    "{}",
                    waits_for.unwrap_or("waiting for the runner to finish its jobs and exit")
                );
            }
        }
    }
}

impl<W: Wrapper> Drain<'_, W> {
    async fn request(&mut self, before: &Snapshot, wait: &WaitState<'_>) -> Result<Snapshot, ClientError> {
        let state = &mut self.state;
        if before.report.status != RunnerStatus::InShutdown {
            state.started_by = StartedBy::Here;
        }
        // Before the call, which may be dropped.
        let before = (state.requested, state.force_sent);
        let forceful = state.want == Mode::Forceful;
        if forceful && !state.force_sent {
            // Only for the warning.
            self.aborted = self.wrapper.until(wait.deadline).running_jobs().await.unwrap_or_default();
        }
        state.requested = state.requested.max(Requested::Perhaps);
        state.force_sent |= forceful;
        let request = DrainRequest { forceful, ..state.policy.request.clone() };
        match self.wrapper.until(wait.deadline).drain(&request).await {
            Ok(snapshot) => {
                let joined = state.started_by == StartedBy::Joined;
                tracing::info!(manager = wait.manager, forceful, joined, status = %snapshot.report.status, "shutdown requested");
                state.accepted();
                Ok(snapshot)
            }
            Err(error) => {
                if !error.may_have_arrived() {
                    (state.requested, state.force_sent) = before;
                }
                Err(error)
            }
        }
    }

    /// Records this drain. A refused request is not an error: the runner has exited.
    async fn record(&mut self, snapshot: Snapshot, wait: &WaitState<'_>) -> Result<Snapshot, ClientError> {
        let manager = wait.manager;
        match self.wrapper.until(wait.deadline).drain(&self.state.policy.request).await {
            Ok(after) => {
                tracing::info!(manager, "runner was already stopped; its wrapper recorded the drain");
                self.state.recorded = true;
                // Another runner may have been started in between.
                if after.report.status != RunnerStatus::Stopped {
                    self.state.accepted();
                    self.state.started_by = StartedBy::Here;
                }
                Ok(after)
            }
            Err(error) if error.retryable() => Err(error),
            Err(error) => {
                tracing::warn!(
                    manager,
                    "runner was already stopped; its wrapper did not record the drain: {error}"
                );
                self.state.recorded = true;
                Ok(snapshot)
            }
        }
    }

    fn drained(&mut self, snapshot: Snapshot) -> Drained {
        let started_by = self.state.started_by;
        if snapshot.report.status != RunnerStatus::Stopped {
            return Drained::InProgress(Box::new(InProgress { started_by, snapshot }));
        }
        Drained::Ended(Box::new(Ended {
            started_by,
            waited: self.state.policy.start.elapsed(),
            forced: self.state.is_forced() && self.state.force_sent,
            aborted: std::mem::take(&mut self.aborted),
            exit_unseen: self.state.process.exit_unseen,
            snapshot,
        }))
    }

    /// The number of consecutive failures, with this last one, for which the host can be treated as terminated: only before a shutdown was
    /// requested, and only with a setting of the user.
    fn failures_of_terminated(&self, wait: &WaitState<'_>, error: &ClientError) -> u32 {
        match self.state.policy.on_unreachable {
            OnUnreachable::AssumeTerminated if self.state.requested == Requested::No => wait.absences,
            OnUnreachable::Confirmed if self.is_confirmed(error) => wait.failures.max(1),
            OnUnreachable::Fail | OnUnreachable::AssumeTerminated | OnUnreachable::Confirmed => 0,
        }
    }

    /// Whether the user's statement that the host is gone counts: nothing was requested, and the host is not seen to be there.
    fn is_confirmed(&self, error: &ClientError) -> bool {
        self.state.policy.on_unreachable == OnUnreachable::Confirmed
            && self.state.requested == Requested::No
            && error.confirmation() != Confirmation::Contradicted
    }

    fn received(&mut self, snapshot: &Snapshot, wait: &mut WaitState<'_>) {
        self.state.read(snapshot);
        self.lines.read(snapshot);
        if let Some(killed_at) = self.state.killed_at(snapshot) {
            wait.deadline = wait.deadline.max(killed_at);
        }
        if wait.last.as_ref().is_none_or(|last| last.report != snapshot.report) {
            let drain = snapshot.drain();
            let drained_by = drain.map(|drain| drain.id.as_str());
            tracing::info!(manager = wait.manager, status = %snapshot.report.status, drained_by, "runner status changed");
        }
        wait.last = Some(snapshot.clone());
    }
}

#[cfg(test)]
pub(super) mod tests;
