//! Waits until a runner manager is healthy.

mod gitlab;
mod missing;
mod policy;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, Requested},
    receipt::NoReceipt,
    wait::{self, Expired, Operation, WaitState},
};
use crate::{
    client::{ClientError, Level, RunnerStatus, Snapshot, Start, Wrapper},
    duration::human,
};
pub(crate) use gitlab::{Doubt, GitlabWord};
pub(crate) use missing::{Missing, ProofLimit, Wanted, missing};
pub(crate) use policy::HealthPolicy;

/// `stopped` can be a restart in progress for this time. After that the wait fails early: the wrapper does not restart its runner.
const STOPPED_GRACE: Duration = Duration::from_secs(30);

/// The pause between two questions to GitLab about one runner manager. It grows from the first to the longest.
const GITLAB_FIRST: Duration = Duration::from_secs(2);
const GITLAB_SLOWEST: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Healthy {
    pub waited: Duration,
    pub snapshot: Snapshot,
    /// What GitLab could not be asked, if it was to confirm the runner manager.
    pub unconfirmed: Vec<NoReceipt>,
}

/// Why a runner manager is not healthy.
#[derive(Debug)]
pub(crate) enum NotHealthy {
    /// The last unmet condition: at the deadline, when Terraform stopped the wait, or because more time does not change it.
    Missing(Missing),
    /// The runner has exited, and was not restarted.
    Stopped { start: Option<Start> },
}

pub(crate) type Outcome = Result<Healthy, Failure<NotHealthy>>;

type Checked = Result<Healthy, NotHealthy>;

/// Waits until the runner is healthy for `stable_for` without interruption.
///
/// Only the status `running` is healthy: a draining runner accepts no jobs, and a runner with status `unknown` was not started yet. Changes
/// nothing on the host, unless the policy starts an exited runner. The future can be dropped at any time.
pub(crate) async fn wait<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &HealthPolicy,
    stop: &CancellationToken,
) -> Outcome {
    let state = WaitState::new(manager, policy.start, policy.timeout);
    let operation = HealthWait {
        wrapper: wrapper.until(state.deadline),
        policy,
        missing: Missing::Running,
        healthy_since: None,
        stopped_since: None,
        final_since: None,
        requested: Requested::No,
        started: None,
        doubt: None,
    };
    wait::run(operation, state, wrapper, &policy.retry, stop).await
}

struct HealthWait<'a, W> {
    wrapper: W,
    policy: &'a HealthPolicy,
    missing: Missing,
    healthy_since: Option<Instant>,
    stopped_since: Option<Instant>,
    /// Since when a condition is missing that more time does not change.
    final_since: Option<Instant>,
    /// Whether a start was requested: the response may be lost.
    requested: Requested,
    started: Option<Start>,
    /// The last answer of GitLab.
    doubt: Option<Doubt>,
}

impl<W: Wrapper> Operation for HealthWait<'_, W> {
    type Success = Healthy;
    type Problem = NotHealthy;

    async fn step(&mut self, state: &mut WaitState<'_>) -> Result<Option<Checked>, ClientError> {
        let checked = self.check(state).await;
        if checked.is_err() {
            self.healthy_since = None;
        }
        checked
    }

    fn requested(&self) -> Requested {
        self.requested
    }

    fn unmet(&self) -> Option<NotHealthy> {
        Some(NotHealthy::Missing(self.missing.clone()))
    }

    fn expired(&mut self, _state: &mut WaitState<'_>) -> Expired<NotHealthy> {
        Expired::Fails(NotHealthy::Missing(self.missing.clone()))
    }

    /// At most until the runner was healthy for `stable_for`, or until a final condition ends the wait.
    fn pause(&self, state: &WaitState<'_>) -> Duration {
        if let Missing::Gitlab(_) = self.missing {
            return (state.start.elapsed() / 10).clamp(GITLAB_FIRST, GITLAB_SLOWEST);
        }
        let pause = state.poll_interval();
        let end = match (self.healthy_since, self.final_since) {
            (Some(since), _) => since + self.policy.stable_for,
            (None, Some(since)) => since + self.missing.grace(),
            (None, None) => return pause,
        };
        pause.min(end.saturating_duration_since(Instant::now()))
    }

    fn log_progress(&self, state: &WaitState<'_>) {
        let (manager, waited) = (state.manager, human(state.start.elapsed()));
        match (&state.lost, &state.last) {
            (Some(error), _) => {
                tracing::info!(manager, waited, "waiting for a healthy runner; wrapper unreachable: {error}");
            }
            (None, Some(last)) => {
                let status = last.report.status;
                tracing::info!(manager, waited, status = %status, missing = %self.missing, "waiting for a healthy runner");
            }
            (None, None) => {
                tracing::info!(manager, waited, "waiting for the first response of the wrapper");
            }
        }
    }
}

impl<W: Wrapper> HealthWait<'_, W> {
    /// Reads the status, and starts a runner that has exited if the policy says so.
    async fn check(&mut self, state: &mut WaitState<'_>) -> Result<Option<Checked>, ClientError> {
        let snapshot = self.wrapper.read_status().await?;
        if snapshot.report.status == RunnerStatus::Stopped
            && self.policy.start_if_stopped
            && self.started.is_none()
        {
            // Before the call, which may be dropped.
            self.requested = Requested::Perhaps;
            match self.wrapper.start().await {
                Ok(started) => {
                    let accepted = started == Start::Requested;
                    self.requested = if accepted { Requested::Accepted } else { Requested::No };
                    self.started = Some(started);
                }
                Err(error) => {
                    if !error.may_have_arrived() {
                        self.requested = Requested::No;
                    }
                    return Err(error);
                }
            }
            tracing::info!(manager = state.manager, outcome = ?self.started, "start of the runner requested");
        }
        let healthy = match self.evaluate(snapshot, state) {
            Some(Ok(healthy)) => healthy,
            other => return Ok(other),
        };
        Ok(self.confirm(healthy).await)
    }

    /// Asks GitLab about a runner that is healthy for the wrapper.
    async fn confirm(&mut self, healthy: Healthy) -> Option<Checked> {
        let Some(gitlab) = &self.policy.gitlab else { return Some(Ok(healthy)) };
        // If the time ends before the answer.
        let doubt = self.doubt.clone().unwrap_or_else(|| gitlab.pending());
        self.missing = Missing::Gitlab(doubt);
        let doubt = match gitlab.ask(&healthy.snapshot).await {
            Ok(unconfirmed) => return Some(Ok(Healthy { unconfirmed, ..healthy })),
            Err(doubt) => doubt,
        };
        self.doubt = Some(doubt.clone());
        let missing = Missing::Gitlab(doubt);
        self.missing = missing.clone();
        missing.is_final().then_some(Err(NotHealthy::Missing(missing)))
    }

    /// Evaluates a status. Returns the result if it ends the wait.
    fn evaluate(&mut self, snapshot: Snapshot, state: &mut WaitState<'_>) -> Option<Checked> {
        Self::log_change(&snapshot, state);
        let now = Instant::now();
        let last = state.last.insert(snapshot);
        if last.report.status == RunnerStatus::Stopped {
            let since = *self.stopped_since.get_or_insert(now);
            if now - since >= STOPPED_GRACE {
                return Some(Err(NotHealthy::Stopped { start: self.started }));
            }
        } else {
            self.stopped_since = None;
        }
        if let Some(missing) = missing(last, self.policy) {
            self.healthy_since = None;
            if !missing.is_final() {
                self.final_since = None;
            } else if now - *self.final_since.get_or_insert(now) >= missing.grace() {
                return Some(Err(NotHealthy::Missing(missing)));
            }
            self.missing = missing;
            return None;
        }
        (self.missing, self.final_since) = (Missing::Time, None);
        let since = *self.healthy_since.get_or_insert(now);
        let waited = now - self.policy.start;
        (now - since >= self.policy.stable_for)
            .then(|| Ok(Healthy { waited, snapshot: last.clone(), unconfirmed: Vec::new() }))
    }

    fn log_change(snapshot: &Snapshot, state: &WaitState<'_>) {
        let level = |snapshot: &Snapshot| snapshot.detail.as_deref().map(|detail| detail.level);
        let last = state.last.as_ref();
        if last.is_none_or(|last| last.report != snapshot.report || level(last) != level(snapshot)) {
            let level = level(snapshot).map(Level::as_str);
            tracing::info!(manager = state.manager, status = %snapshot.report.status, level, "runner status changed");
        }
    }
}

#[cfg(test)]
mod tests;
