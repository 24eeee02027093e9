//! Waiting until a runner manager is healthy.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    retry::Retry,
    wait::{self, ConnectionState, Operation},
};
use crate::{
    client::{ClientError, Level, RunnerStatus, Snapshot, Start, Wrapper},
    duration::human,
};

/// How long `stopped` is taken for a restart in progress. After that the wait fails early: a wrapper that reports it will not start its
/// runner again by itself, so nothing would change until the deadline.
const STOPPED_GRACE: Duration = Duration::from_secs(30);

/// What counts as healthy, and for how long it is waited for.
#[derive(Debug, Clone)]
pub(crate) struct HealthPolicy {
    /// When the operation began: `timeout` counts from here.
    pub start: Instant,
    /// Overall limit.
    pub timeout: Duration,
    /// How long it has to be healthy without a break.
    pub stable_for: Duration,
    /// The level to reach; `None`: the highest that the wrapper can observe.
    pub level: Option<Level>,
    /// The required version of the runner.
    pub expected_version: Option<String>,
    /// Start a runner that has ended.
    pub start_if_stopped: bool,
    pub retry: Retry,
}

/// Proof that a manager is healthy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Healthy {
    /// From the start of the wait to the proof.
    pub waited: Duration,
    pub snapshot: Snapshot,
}

/// Why a manager is not known to be healthy.
#[derive(Debug)]
pub(crate) enum NotHealthy {
    /// The wrapper was not reached, or no longer: attempts exhausted, deadline passed while disconnected, or a final refusal.
    Connect { attempts: u32, waited: Duration, error: ClientError },
    /// The wrapper answered, but not with lasting health, until the deadline. `missing` says what was wanting at last.
    TimedOut { waited: Duration, last: Option<Snapshot>, missing: Missing },
    /// The wrapper says that the runner ended, and nothing started it again.
    Stopped { waited: Duration, reason: String, start: Option<Start> },
    /// What is wanted cannot be seen through upstream's wrapper.
    NotVerifiable { wanted: &'static str },
    /// The stop token fired.
    Interrupted { waited: Duration, last: Option<Snapshot>, start_requested: bool },
}

/// What a runner lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing but time: it was healthy, and not yet for long enough.
    Time,
    /// It does not run.
    Running,
    /// It runs, and has not reached the level; the wrapper's reasons.
    Level { wanted: Level, reasons: Vec<String> },
    /// It has another version, or none is known.
    Version { wanted: String, found: Option<String> },
}

/// How a wait for health ends.
pub(crate) type Outcome = Result<Healthy, NotHealthy>;

/// Waits until the runner is healthy for `stable_for` without a break.
///
/// Only `running` counts: a draining runner takes no jobs, and `unknown` is a runner that was not started yet. Changes nothing on the
/// host, unless the policy has it start a runner that has ended. May be dropped at any moment.
pub(crate) async fn wait<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &HealthPolicy,
    stop: &CancellationToken,
) -> Outcome {
    let deadline = policy.start + policy.timeout;
    let operation = HealthWait {
        manager,
        wrapper: wrapper.until(deadline),
        policy,
        deadline,
        missing: Missing::Running,
        healthy_since: None,
        stopped_since: None,
        start_requested: false,
        started: None,
    };
    wait::run(operation, wrapper, &policy.retry, stop).await
}

/// What is known of one manager so far.
struct HealthWait<'a, W> {
    manager: &'a str,
    wrapper: W,
    policy: &'a HealthPolicy,
    deadline: Instant,
    missing: Missing,
    healthy_since: Option<Instant>,
    stopped_since: Option<Instant>,
    /// A start was requested, or may have been: its answer may be lost.
    start_requested: bool,
    started: Option<Start>,
}

impl<W: Wrapper> Operation for HealthWait<'_, W> {
    type Outcome = Outcome;

    fn manager(&self) -> &str {
        self.manager
    }

    fn start(&self) -> Instant {
        self.policy.start
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    async fn step(&mut self, connection: &mut ConnectionState) -> Result<Option<Outcome>, ClientError> {
        let snapshot = self.wrapper.read_status().await?;
        if snapshot.report.status == RunnerStatus::Stopped
            && self.policy.start_if_stopped
            && self.started.is_none()
        {
            // Before the call, which may be dropped in the middle.
            self.start_requested = true;
            match self.wrapper.start().await {
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
        Ok(self.evaluate(snapshot, connection))
    }

    fn failed(&mut self, connection: &ConnectionState, error: ClientError) -> Result<ClientError, Outcome> {
        self.healthy_since = None;
        if error.retryable() && !self.policy.retry.exhausted(connection.failures) {
            return Ok(error);
        }
        let waited = self.policy.start.elapsed();
        Err(Err(NotHealthy::Connect { attempts: connection.failures, waited, error }))
    }

    /// Was it the connection, or the runner?
    fn expired(&mut self, connection: &mut ConnectionState) -> Option<Outcome> {
        let waited = self.policy.start.elapsed();
        Some(Err(match connection.lost.take() {
            Some(error) => NotHealthy::Connect { attempts: connection.failures, waited, error },
            None => {
                NotHealthy::TimedOut { waited, last: connection.last.take(), missing: self.missing.clone() }
            }
        }))
    }

    fn interrupted(&mut self, connection: &mut ConnectionState) -> Outcome {
        Err(NotHealthy::Interrupted {
            waited: self.policy.start.elapsed(),
            last: connection.last.take(),
            start_requested: self.start_requested,
        })
    }

    /// Not past the moment at which health has lasted long enough.
    fn pause(&self, connection: &ConnectionState) -> Duration {
        let pause = connection.poll_interval(self.policy.start);
        match self.healthy_since {
            Some(since) => {
                pause.min((since + self.policy.stable_for).saturating_duration_since(Instant::now()))
            }
            None => pause,
        }
    }

    fn log_progress(&self, connection: &ConnectionState) {
        let waited = human(self.policy.start.elapsed());
        match (&connection.lost, &connection.last) {
            (Some(error), _) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for a healthy runner; wrapper unreachable: {error}"
                );
            }
            (None, Some(last)) => {
                let (status, missing) = (last.report.status, &self.missing);
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

impl<W> HealthWait<'_, W> {
    /// Takes in a status; the outcome when it decides the wait.
    fn evaluate(&mut self, snapshot: Snapshot, connection: &mut ConnectionState) -> Option<Outcome> {
        self.log_change(&snapshot, connection);
        let now = Instant::now();
        let waited = now - self.policy.start;
        if snapshot.report.status == RunnerStatus::Stopped {
            let since = *self.stopped_since.get_or_insert(now);
            if now - since >= STOPPED_GRACE {
                let reason = snapshot.report.failure_reason;
                return Some(Err(NotHealthy::Stopped { waited, reason, start: self.started }));
            }
        } else {
            self.stopped_since = None;
        }
        let missing = match missing(&snapshot, self.policy) {
            Ok(missing) => missing,
            Err(wanted) => return Some(Err(NotHealthy::NotVerifiable { wanted })),
        };
        connection.last = Some(snapshot.clone());
        if let Some(missing) = missing {
            self.missing = missing;
            self.healthy_since = None;
            return None;
        }
        self.missing = Missing::Time;
        let since = *self.healthy_since.get_or_insert(now);
        (now - since >= self.policy.stable_for).then_some(Ok(Healthy { waited, snapshot }))
    }

    fn log_change(&self, snapshot: &Snapshot, connection: &ConnectionState) {
        let level = |snapshot: &Snapshot| snapshot.detail.as_deref().map(|detail| detail.level);
        let last = connection.last.as_ref();
        if last.is_none_or(|last| last.report != snapshot.report || level(last) != level(snapshot)) {
            let level = level(snapshot).map(Level::as_str);
            tracing::info!(manager = self.manager, status = %snapshot.report.status, level, "runner status changed");
        }
    }
}

/// What the runner lacks; an error names what upstream's wrapper cannot tell.
pub(crate) fn missing(snapshot: &Snapshot, policy: &HealthPolicy) -> Result<Option<Missing>, &'static str> {
    let Some(detail) = snapshot.detail.as_deref() else {
        if matches!(policy.level, Some(Level::Ready | Level::Polling)) {
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
    // Before the wrapper's first probe nobody knows how far the runner can be seen: then it is not healthy yet.
    let wanted = policy.level.or(detail.level_max).unwrap_or(Level::Polling);
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
mod tests;
