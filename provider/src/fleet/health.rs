//! Waits until a runner manager is healthy.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, Requested},
    retry::Retry,
    wait::{self, Operation, WaitState},
};
use crate::{
    client::{ClientError, Level, RunnerEvidence, RunnerStatus, Snapshot, Start, Wrapper},
    duration::human,
};

/// `stopped` can be a restart in progress for this time. After that the wait fails early: the wrapper does not restart its runner.
const STOPPED_GRACE: Duration = Duration::from_secs(30);

/// The required health, and the time limit.
#[derive(Debug, Clone)]
pub(crate) struct HealthPolicy {
    /// The start of the operation, from which `timeout` counts.
    pub start: Instant,
    pub timeout: Duration,
    /// The time for which the runner must stay healthy without interruption.
    pub stable_for: Duration,
    /// The number of successful jobs that [`Level::Working`] requires.
    pub min_jobs: u64,
    /// The required level; `None`: the maximum level that the wrapper can check.
    pub level: Option<Level>,
    /// The required version of the runner.
    pub expected_version: Option<String>,
    /// Start a runner that has exited.
    pub start_if_stopped: bool,
    pub retry: Retry,
}

impl HealthPolicy {
    /// The required level. A paused or idle runner never reaches `working`, so that level must be requested.
    pub(crate) fn required(&self, level_max: Option<Level>) -> Level {
        let auto = || level_max.map_or(Level::Polling, |max| max.min(Level::Polling));
        self.level.unwrap_or_else(auto)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Healthy {
    pub waited: Duration,
    pub snapshot: Snapshot,
}

/// Why a runner manager is not healthy.
#[derive(Debug)]
pub(crate) enum NotHealthy {
    /// The runner was not healthy for long enough until the deadline, or GitLab rejects its token. With the last unmet condition.
    TimedOut(Missing),
    /// The runner has exited, and was not restarted.
    Stopped { start: Option<Start> },
    /// Upstream's wrapper cannot check the required condition.
    NotVerifiable { wanted: &'static str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is healthy, but not yet for long enough.
    Time,
    Running,
    /// It has not reached the level; with the wrapper's reasons.
    Level {
        wanted: Level,
        reasons: Vec<String>,
    },
    /// It polls, and too few jobs have ended successfully since the start of its process.
    Jobs {
        succeeded: u64,
        failed: u64,
        wanted: u64,
    },
    /// It has another version, or its version is unknown.
    Version {
        wanted: String,
        found: Option<String>,
    },
}

impl Missing {
    /// The progress of a wait for jobs: `0 of 1 jobs`.
    pub(crate) fn progress(&self) -> Option<String> {
        match self {
            Self::Jobs { succeeded, wanted, .. } => Some(format!("{succeeded} of {wanted} jobs")),
            Self::Time | Self::Running | Self::Level { .. } | Self::Version { .. } => None,
        }
    }
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
        requested: Requested::No,
        started: None,
    };
    wait::run(operation, state, wrapper, &policy.retry, stop).await
}

struct HealthWait<'a, W> {
    wrapper: W,
    policy: &'a HealthPolicy,
    missing: Missing,
    healthy_since: Option<Instant>,
    stopped_since: Option<Instant>,
    /// Whether a start was requested: the response may be lost.
    requested: Requested,
    started: Option<Start>,
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

    fn timed_out(&mut self) -> NotHealthy {
        NotHealthy::TimedOut(self.missing.clone())
    }

    /// At most until the runner was healthy for `stable_for`.
    fn pause(&self, state: &WaitState<'_>) -> Duration {
        let pause = state.poll_interval();
        match self.healthy_since {
            Some(since) => {
                pause.min((since + self.policy.stable_for).saturating_duration_since(Instant::now()))
            }
            None => pause,
        }
    }

    fn log_progress(&self, state: &WaitState<'_>) {
        let (manager, waited) = (state.manager, human(state.start.elapsed()));
        match (&state.lost, &state.last) {
            (Some(error), _) => {
                tracing::info!(manager, waited, "waiting for a healthy runner; wrapper unreachable: {error}");
            }
            (None, Some(last)) => {
                let (status, missing) = (last.report.status, &self.missing);
                let progress = missing.progress();
                tracing::info!(manager, waited, status = %status, progress, missing = ?missing, "waiting for a healthy runner");
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
        Ok(self.evaluate(snapshot, state))
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
        let missing = match missing(last, self.policy) {
            Ok(missing) => missing,
            Err(wanted) => return Some(Err(NotHealthy::NotVerifiable { wanted })),
        };
        if let Some(missing) = missing {
            // More time does not change the token.
            let is_rejected = matches!(missing, Missing::Level { wanted, .. } if wanted >= Level::Polling)
                && last.detail.as_deref().is_some_and(|detail| detail.evidence.rejected_sections > 0);
            if is_rejected {
                return Some(Err(NotHealthy::TimedOut(missing)));
            }
            self.missing = missing;
            self.healthy_since = None;
            return None;
        }
        self.missing = Missing::Time;
        let since = *self.healthy_since.get_or_insert(now);
        let waited = now - self.policy.start;
        (now - since >= self.policy.stable_for).then(|| Ok(Healthy { waited, snapshot: last.clone() }))
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

/// The unmet condition, if any. The error is the attribute that upstream's wrapper cannot check.
pub(crate) fn missing(snapshot: &Snapshot, policy: &HealthPolicy) -> Result<Option<Missing>, &'static str> {
    let Some(detail) = snapshot.detail.as_deref() else {
        if policy.level.is_some_and(|level| level > Level::Process) {
            return Err("level");
        }
        if policy.expected_version.is_some() {
            return Err("expected_version");
        }
        return Ok((snapshot.report.status != RunnerStatus::Running).then_some(Missing::Running));
    };
    if snapshot.report.status != RunnerStatus::Running {
        return Ok(Some(Missing::Running));
    }
    // Before the wrapper's first probe, the maximum level is unknown: the runner is not healthy yet.
    let wanted = policy.required(detail.level_max);
    if detail.level < wanted.min(Level::Polling) {
        return Ok(Some(Missing::Level { wanted, reasons: detail.reasons.clone() }));
    }
    if wanted == Level::Working {
        let RunnerEvidence { jobs_succeeded, jobs_failed, .. } = detail.evidence;
        let (succeeded, failed) = (jobs_succeeded.unwrap_or_default(), jobs_failed.unwrap_or_default());
        if succeeded < policy.min_jobs {
            return Ok(Some(Missing::Jobs { succeeded, failed, wanted: policy.min_jobs }));
        }
    }
    Ok(policy
        .expected_version
        .as_ref()
        .filter(|wanted| detail.runner_version.as_ref() != Some(*wanted))
        .map(|wanted| Missing::Version { wanted: wanted.clone(), found: detail.runner_version.clone() }))
}

#[cfg(test)]
mod tests;
