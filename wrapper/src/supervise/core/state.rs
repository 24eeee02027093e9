//! The state of the child and of its supervision. `transition` has the transitions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    callback::Callback,
    end::End,
    moment::Moment,
    observation::Observation,
    stop::{Cancelled, Mode, Stop, StopId},
};
use crate::supervise::process::Identity;

/// The state of the child and of its supervision. It is also the content of the state file, except what the next wrapper finds out itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervision {
    pub state: State,
    /// The wrapper exits when the child has ended.
    pub leaving: bool,
    pub restarts: Restarts,
    /// The stop of an earlier child, after another child was started.
    pub last_stop: Option<Arc<PastStop>>,
    /// The stop that was cancelled last, until the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Arc<Cancelled>>,
    /// What the probes show of the present child.
    #[serde(default)]
    pub observed: Observation,
    /// The last error in the log of the child that has failed.
    #[serde(skip)]
    pub last_error: Option<Arc<str>>,
    /// Why the last signal to the child was refused, for example because the child runs as another user now.
    #[serde(skip)]
    pub signal_error: Option<Arc<str>>,
    /// Why the state file does not have this state, if there is such a file.
    #[serde(skip)]
    pub save_error: Option<Arc<str>>,
}

/// The restarts by systemd since the last requested start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    pub count: u32,
    /// The number of consecutive unexpected ends before a child was stable.
    pub failures: u32,
    /// This child is a restart.
    pub automatic: bool,
}

/// A stop that is over, and the end of its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastStop {
    pub stop: Stop,
    pub end: End,
}

/// The state of the child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// No child was started yet.
    #[default]
    Idle,
    /// A child is being started.
    Starting,
    /// `reload_at`: when SIGHUP is sent.
    Running { child: ChildInfo, reload_at: Option<Moment> },
    /// It is being stopped.
    Stopping { child: ChildInfo, stop: Stop, phase: Phase },
    /// It ended unexpectedly, and systemd restarts it.
    Backoff { end: End },
    /// It has ended, or was never started. `stop` is the request that caused this.
    Exited { end: End, stop: Option<Stop> },
}

/// The states that the log, the status, the APIs and the metrics have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerState {
    /// No runner was started yet.
    Idle,
    Starting,
    Running,
    Draining,
    Terminating,
    /// It ended unexpectedly, and waits for its restart.
    Backoff,
    /// It has exited with code 0 or, after a requested stop, with an unknown status, or it was never started.
    Stopped,
    /// It has exited in another way, or could not be started.
    Failed,
}

impl RunnerState {
    pub const ALL: [Self; 8] = [
        Self::Idle,
        Self::Starting,
        Self::Running,
        Self::Draining,
        Self::Terminating,
        Self::Backoff,
        Self::Stopped,
        Self::Failed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Terminating => "terminating",
            Self::Backoff => "backoff",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A child: made when it is started or found, and never read from `/proc` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildInfo {
    pub process: Identity,
    pub started: Moment,
}

impl ChildInfo {
    pub fn pid(&self) -> u32 {
        self.process.pid
    }
}

#[cfg(test)]
impl ChildInfo {
    /// A child with this PID that was started now.
    pub(crate) fn example(pid: u32) -> Self {
        let process = Identity { pid, start_ticks: 1, boot: crate::supervise::process::boot_id().unwrap() };
        Self { process, started: Moment::now() }
    }
}

/// The progress of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Graceful. From `not_before` on, SIGQUIT is sent when no job request is open, at the latest at `until`: the child cancels its open requests, and
    /// a job that GitLab has assigned to one is lost. `open` is the number of open requests, if it is known. `quit_sent_at` is when an earlier wrapper
    /// sent SIGQUIT, or was about to send it. It is then sent again.
    AwaitingGap { not_before: Moment, until: Moment, open: Option<u32>, quit_sent_at: Option<Moment> },
    /// Graceful. SIGQUIT was sent, and the child finishes its jobs. `repeated`: a previous wrapper may also have sent it.
    Draining { since: Moment, repeated: bool },
    /// Forceful. SIGTERM is held back until the child has read SIGQUIT, and the next wrapper has probed the child.
    Spacing { until: Moment },
    /// Forceful. SIGTERM was sent. The process group is killed at `until`.
    Terminating { until: Moment },
    /// SIGKILL was sent to the process group.
    Killed,
}

#[cfg(test)]
impl Phase {
    /// SIGQUIT was sent for the first time.
    pub(crate) fn draining(since: Moment) -> Self {
        Self::Draining { since, repeated: false }
    }
}

impl Phase {
    /// The stop is forceful: the child aborts its jobs.
    pub fn is_forceful(&self) -> bool {
        match self {
            Self::AwaitingGap { .. } | Self::Draining { .. } => false,
            Self::Spacing { .. } | Self::Terminating { .. } | Self::Killed => true,
        }
    }
}

impl Supervision {
    /// The next instant at which [`Event::Tick`](super::event::Event::Tick) changes something.
    pub fn due(&self) -> Option<Instant> {
        let due = match &self.state {
            State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => None,
            State::Running { reload_at, .. } => *reload_at,
            State::Stopping { stop, phase, .. } => match *phase {
                Phase::AwaitingGap { until, .. } => stop.deadline.into_iter().chain([until]).min(),
                Phase::Draining { .. } => stop.deadline,
                Phase::Spacing { until } | Phase::Terminating { until } => Some(until),
                Phase::Killed => None,
            },
        };
        due.map(|moment| moment.at)
    }

    /// Whether only a request of a client may start another child: one has stopped this one, or stops it.
    pub(crate) fn is_held(&self) -> bool {
        self.state.stop().is_some_and(|stop| stop.id != StopId::Signal)
    }

    /// Whether the child aborts its jobs during a graceful stop.
    pub(in crate::supervise) fn is_drain_aborted(&self) -> bool {
        let stop = self.state.stop().filter(|stop| stop.mode == Mode::Graceful);
        stop.is_some_and(|stop| stop.aborts_jobs)
    }

    /// Whether the child has given up reporting the end of a job during a graceful stop.
    pub(in crate::supervise) fn has_lost_results(&self, now: Moment) -> bool {
        let stop = self.state.stop().filter(|stop| stop.mode == Mode::Graceful);
        stop.is_some_and(|stop| stop.lost_results || self.observed.has_lost_results(now))
    }

    /// The PID of the child that has just failed, where its log may explain the failure.
    pub(super) fn failed_child(&self) -> Option<u32> {
        match &self.state {
            // It may have exited as requested.
            State::Exited { end, stop: Some(_) } if end.is_unknown() => None,
            State::Backoff { end, .. } | State::Exited { end, .. } => match end {
                End::Exited { pid, .. } if !end.is_success() => Some(*pid),
                End::NeverStarted | End::SpawnFailed(_) | End::Exited { .. } => None,
            },
            State::Idle | State::Starting | State::Running { .. } | State::Stopping { .. } => None,
        }
    }

    /// Whether SIGQUIT is held back until no job request is open.
    pub fn awaits_gap(&self) -> bool {
        matches!(self.state, State::Stopping { phase: Phase::AwaitingGap { .. }, .. })
    }
}

impl State {
    /// The state as every output names it.
    pub fn public(&self) -> RunnerState {
        match self {
            Self::Idle => RunnerState::Idle,
            Self::Starting => RunnerState::Starting,
            Self::Running { .. } => RunnerState::Running,
            Self::Stopping { phase, .. } if phase.is_forceful() => RunnerState::Terminating,
            Self::Stopping { .. } => RunnerState::Draining,
            Self::Backoff { .. } => RunnerState::Backoff,
            Self::Exited { end, .. } if end.is_success() => RunnerState::Stopped,
            // It may have exited as requested.
            Self::Exited { end, stop: Some(_) } if end.is_unknown() => RunnerState::Stopped,
            Self::Exited { .. } => RunnerState::Failed,
        }
    }

    /// The stop that is in progress or is over.
    pub fn stop(&self) -> Option<&Stop> {
        match self {
            Self::Exited { stop, .. } => stop.as_ref(),
            Self::Stopping { stop, .. } => Some(stop),
            Self::Idle | Self::Starting | Self::Running { .. } | Self::Backoff { .. } => None,
        }
    }

    pub fn child(&self) -> Option<ChildInfo> {
        match self {
            Self::Running { child, .. } | Self::Stopping { child, .. } => Some(*child),
            Self::Idle | Self::Starting | Self::Backoff { .. } | Self::Exited { .. } => None,
        }
    }

    /// The name of the state; of a stop, that of its phase.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stopping { phase, .. } => match phase {
                Phase::AwaitingGap { .. } => "awaiting gap",
                Phase::Draining { .. } => "draining",
                Phase::Spacing { .. } => "spacing",
                Phase::Terminating { .. } => "terminating",
                Phase::Killed => "killed",
            },
            other => other.public().name(),
        }
    }

    /// The callbacks of a stop that is over, which are not finished.
    pub(in crate::supervise) fn due_callbacks(&self) -> &[Callback] {
        match self {
            Self::Exited { stop: Some(stop), .. } => &stop.callbacks,
            _ => &[],
        }
    }
}
