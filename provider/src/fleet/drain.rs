//! Requests the shutdown of a runner, and waits until its process has exited.

mod outcome;
mod policy;
mod process;
mod progress;

use std::time::Duration;

use grit_ssh::Confirmation;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    process::{DrainingProcess, Replaced},
    progress::Lines,
};
use super::{
    failure::Failure,
    retry::Retry,
    wait::{self, Operation, WaitState},
};
use crate::{
    client::{ClientError, DrainRequest, RunnerStatus, Snapshot, Wrapper},
    duration::human,
};

pub use super::{failure::Requested, receipt::OnLostJobs};
pub use outcome::{Drained, Ended, InProgress, NotDrained, StartedBy};
pub use policy::{DrainPolicy, Mode, OnTimeout, OnUnreachable, Until};

/// The time limit of a forceful shutdown after a timeout, in addition to `timeouts.delete`. By default, GitLab Runner's `shutdown_timeout` is
/// 30 s, and the wrapper kills the process 15 s after that. If the first report after the request has a later time, the limit is [`KILL_LIMIT`]
/// after it. Later reports have no effect: a host cannot put off the end of the drain.
pub const FORCE_LIMIT: Duration = Duration::from_secs(120);

/// How long the wrapper may take to kill the runner, and this provider to read that.
const KILL_LIMIT: Duration = Duration::from_secs(75);

/// The maximum time that a wrapper leaves to a runner. A later time is an error of a clock.
const MAX_CLEANUP: Duration = Duration::from_secs(24 * 3600);

/// The minimum interval of repeated requests.
const REQUEST_AGAIN: Duration = Duration::from_secs(5);

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
    let state = WaitState::new(manager, policy.start, policy.timeout);
    let drain = Drain {
        wrapper,
        policy,
        want: policy.mode,
        forced: false,
        force_sent: false,
        aborted: Vec::new(),
        asked: None,
        has_kill_time: false,
        requested: Requested::No,
        started_by: StartedBy::Before,
        recording_refused: false,
        process: DrainingProcess::default(),
        lines: Lines::new(manager),
    };
    wait::run(drain, state, wrapper, &policy.retry, stop).await
}

struct Drain<'a, W> {
    wrapper: &'a W,
    policy: &'a DrainPolicy,
    /// The mode to request: of the policy, or `Forceful` after the deadline.
    want: Mode,
    /// The deadline has passed, and `want` is `Forceful` since then.
    forced: bool,
    /// The wrapper has received a forceful request, or may have received it.
    force_sent: bool,
    /// The jobs that were running before the forceful request.
    aborted: Vec<u64>,
    /// The time of the last accepted request for `want`.
    asked: Option<Instant>,
    /// The wrapper has reported when it kills the runner.
    has_kill_time: bool,
    /// `Accepted` also for the shutdown of another client, before this drain has joined it.
    requested: Requested,
    started_by: StartedBy,
    /// The wrapper refused to record the drain of a runner that had exited.
    recording_refused: bool,
    process: DrainingProcess,
    lines: Lines<'a>,
}

impl<W: Wrapper> Operation for Drain<'_, W> {
    type Success = Drained;
    type Problem = NotDrained;

    async fn step(&mut self, state: &mut WaitState<'_>) -> Result<Step, ClientError> {
        let mut snapshot = self.wrapper.until(state.deadline).read_status().await?;
        self.received(&snapshot, state);
        match self.process.follow(&snapshot) {
            None => {}
            Some(Replaced::ByRestart) => self.asked = None,
            Some(Replaced::Unexplained(pid)) => {
                return Ok(Some(Err(NotDrained::Replaced { pid })));
            }
        }
        match snapshot.report.status {
            // The service manager may start another wrapper, and it another runner: the runner has not exited for this drain.
            RunnerStatus::Stopped if self.asked.is_none() && snapshot.exits_for_itself() => {
                return Ok(None);
            }
            RunnerStatus::Stopped => snapshot = self.record(snapshot, state).await?,
            RunnerStatus::InShutdown => {
                if self.requested == Requested::No {
                    self.started_by = StartedBy::Joined;
                }
                self.requested = Requested::Accepted;
                if self.must_join(&snapshot) {
                    snapshot = self.request(state).await?;
                }
            }
            RunnerStatus::Running | RunnerStatus::Unknown(_) => {
                // The wrapper forgets it when it accepts the next drain, so it is of this one.
                if let Some(cancelled) =
                    snapshot.cancelled().filter(|_| self.requested == Requested::Accepted)
                {
                    return Ok(Some(Err(NotDrained::Cancelled(cancelled.clone()))));
                }
                // Repeated also after it was accepted: the request was lost (upstream's wrapper forgets a request before its process
                // exists), or the host restarted the runner.
                if self.asked.is_none_or(|asked| asked.elapsed() >= REQUEST_AGAIN) {
                    self.started_by = StartedBy::Here;
                    snapshot = self.request(state).await?;
                }
            }
        }
        self.await_kill(&snapshot, state);
        match snapshot.report.status {
            RunnerStatus::Stopped => {}
            RunnerStatus::InShutdown if self.policy.until.is_reached_in(&snapshot) => {
                let in_progress = InProgress { started_by: self.started_by, snapshot };
                return Ok(Some(Ok(Drained::InProgress(Box::new(in_progress)))));
            }
            RunnerStatus::InShutdown | RunnerStatus::Running | RunnerStatus::Unknown(_) => return Ok(None),
        }
        let ended = Ended {
            started_by: self.started_by,
            waited: self.policy.start.elapsed(),
            forced: self.forced && self.force_sent,
            aborted: std::mem::take(&mut self.aborted),
            exit_unseen: self.process.exit_unseen,
            snapshot,
        };
        Ok(Some(Ok(Drained::Ended(Box::new(ended)))))
    }

    fn requested(&self) -> Requested {
        self.requested
    }

    fn retries(&self, state: &WaitState<'_>, error: &ClientError, retry: &Retry) -> bool {
        let failures = match self.failures_of_terminated(state, error) {
            0 => state.failures,
            gone => gone,
        };
        // The user has confirmed that the host is gone: the first attempt is enough.
        let is_over = self.is_confirmed(error) && error.was_tried();
        error.retryable() && !is_over && (self.requested != Requested::No || !retry.exhausted(failures))
    }

    /// A host counts as terminated if a setting allows it. At the deadline, all of its last attempts must show it.
    fn unreached(&self, state: &WaitState<'_>, error: &ClientError, expired: bool) -> Option<Drained> {
        let attempts = self.failures_of_terminated(state, error);
        let counts = attempts > 0 && !(expired && attempts < state.failures);
        let waited = self.policy.start.elapsed();
        let since = state.absent_since;
        counts.then(|| Drained::AssumedTerminated { attempts, since, waited, error: error.clone() })
    }

    /// Requests a forceful shutdown, once, if the policy requires it. Jobs that had no graceful part are not aborted: the runner may not know of
    /// any request.
    fn goes_on(&mut self, state: &mut WaitState<'_>) -> bool {
        let may_force = self.policy.on_timeout == OnTimeout::Force && self.requested != Requested::No;
        if !may_force || self.forced || self.want == Mode::Forceful {
            return false;
        }
        tracing::warn!(manager = state.manager, "not drained in time; requesting a forceful shutdown");
        self.forced = true;
        self.want = Mode::Forceful;
        self.asked = None;
        state.deadline = Instant::now() + FORCE_LIMIT;
        true
    }

    fn timed_out(&mut self) -> NotDrained {
        NotDrained::TimedOut { forceful: self.want == Mode::Forceful }
    }

    fn log_progress(&self, state: &WaitState<'_>) {
        self.lines.state(state.last.as_ref(), state.lost.as_ref());
        let (manager, waited) = (state.manager, human(state.start.elapsed()));
        match &state.lost {
            Some(error) => {
                tracing::info!(
                    manager,
                    waited,
                    "waiting for the runner to exit; wrapper unreachable: {error}"
                );
            }
            None => {
                let left = state.last.as_ref().and_then(Snapshot::jobs_left);
                let problems = state.last.as_ref().and_then(Snapshot::shutdown_problems);
                let wait = state.last.as_ref().and_then(Snapshot::signal_waits_for);
                tracing::info!(
                    manager,
                    waited,
                    left,
                    problems,
                    "{}",
                    wait.unwrap_or("waiting for the runner to finish its jobs and exit")
                );
            }
        }
    }
}

impl<W: Wrapper> Drain<'_, W> {
    async fn request(&mut self, state: &mut WaitState<'_>) -> Result<Snapshot, ClientError> {
        // Before the call, which may be dropped.
        let before = (self.requested, self.force_sent);
        let forceful = self.want == Mode::Forceful;
        if forceful && !self.force_sent {
            // Only for the warning.
            self.aborted = self.wrapper.until(state.deadline).running_jobs().await.unwrap_or_default();
        }
        self.requested = self.requested.max(Requested::Perhaps);
        self.force_sent |= forceful;
        let request = DrainRequest { forceful, ..self.policy.request.clone() };
        match self.wrapper.until(state.deadline).drain(&request).await {
            Ok(snapshot) => {
                let joined = self.started_by == StartedBy::Joined;
                tracing::info!(manager = state.manager, forceful, joined, status = %snapshot.report.status, "shutdown requested");
                self.asked = Some(Instant::now());
                self.requested = Requested::Accepted;
                self.received(&snapshot, state);
                Ok(snapshot)
            }
            Err(error) => {
                if !error.may_have_arrived() {
                    (self.requested, self.force_sent) = before;
                }
                Err(error)
            }
        }
    }

    /// After the forceful request, waits until the wrapper has killed the runner: its `shutdown_timeout` can be longer than [`FORCE_LIMIT`].
    fn await_kill(&mut self, snapshot: &Snapshot, state: &mut WaitState<'_>) {
        let drain = snapshot.drain();
        let kill_at = drain.filter(|drain| self.forced && drain.forceful).and_then(|drain| drain.deadline);
        if let Some(kill_at) = kill_at.filter(|_| !self.has_kill_time) {
            self.has_kill_time = true;
            let until_kill = drain.and_then(|drain| drain.until_deadline);
            let left = until_kill
                .unwrap_or_else(|| (kill_at - OffsetDateTime::now_utc()).try_into().unwrap_or_default());
            state.deadline = state.deadline.max(Instant::now() + left.min(MAX_CLEANUP) + KILL_LIMIT);
        }
    }

    /// Whether to send a request to a runner that is already shutting down. grit-wrapper then refuses a CI job
    /// that would wait for its own runner, also a job that repeats an interrupted drain. A forceful request ends the drain earlier; it is
    /// the only request for upstream's wrapper, which sends a signal for each request.
    fn must_join(&mut self, snapshot: &Snapshot) -> bool {
        if self.asked.is_some() {
            return false;
        }
        let Some(detail) = snapshot.detail.as_deref() else {
            return self.want == Mode::Forceful;
        };
        let request = &self.policy.request;
        let is_ours = detail.drain.as_ref().is_some_and(|drain| drain.id == request.id);
        self.want == Mode::Forceful || !request.job_url.is_empty() || !is_ours
    }

    /// Records this drain at a grit-wrapper whose runner has exited without a drain of a client. Otherwise the next wrapper on the host, for
    /// example after an upgrade, would start another runner.
    ///
    /// A refused request is not an error: the runner has exited.
    async fn record(&mut self, snapshot: Snapshot, state: &WaitState<'_>) -> Result<Snapshot, ClientError> {
        let Some(detail) = snapshot.detail.as_deref() else { return Ok(snapshot) };
        if detail.is_drained_by_client() || self.asked.is_some() || self.recording_refused {
            return Ok(snapshot);
        }
        let manager = state.manager;
        match self.wrapper.until(state.deadline).drain(&self.policy.request).await {
            Ok(after) => {
                tracing::info!(manager, "runner was already stopped; its wrapper recorded the drain");
                // Another runner may have been started in between.
                if after.report.status != RunnerStatus::Stopped {
                    self.requested = Requested::Accepted;
                    self.started_by = StartedBy::Here;
                    self.asked = Some(Instant::now());
                }
                Ok(after)
            }
            Err(error) if error.retryable() => Err(error),
            Err(error) => {
                tracing::warn!(
                    manager,
                    "runner was already stopped; its wrapper did not record the drain: {error}"
                );
                self.recording_refused = true;
                Ok(snapshot)
            }
        }
    }

    /// The number of consecutive failures, with this last one, for which the host can be treated as terminated: only before a shutdown was
    /// requested, and only with a setting of the user.
    fn failures_of_terminated(&self, state: &WaitState<'_>, error: &ClientError) -> u32 {
        match self.policy.on_unreachable {
            OnUnreachable::AssumeTerminated if self.requested == Requested::No => state.absences,
            OnUnreachable::Confirmed if self.is_confirmed(error) => state.failures.max(1),
            OnUnreachable::Fail | OnUnreachable::AssumeTerminated | OnUnreachable::Confirmed => 0,
        }
    }

    /// Whether the user's statement that the host is gone counts: nothing was requested, and the host is not seen to be there.
    fn is_confirmed(&self, error: &ClientError) -> bool {
        self.policy.on_unreachable == OnUnreachable::Confirmed
            && self.requested == Requested::No
            && error.confirmation() != Confirmation::Contradicted
    }

    fn received(&mut self, snapshot: &Snapshot, state: &mut WaitState<'_>) {
        self.lines.read(snapshot);
        if state.last.as_ref().is_none_or(|last| last.report != snapshot.report) {
            let drain = snapshot.drain();
            let drained_by = drain.map(|drain| drain.id.as_str());
            tracing::info!(manager = state.manager, status = %snapshot.report.status, drained_by, "runner status changed");
        }
        state.last = Some(snapshot.clone());
    }
}

#[cfg(test)]
pub(super) mod tests;
