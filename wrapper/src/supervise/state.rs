//! The state of the child and of its supervision. `table` has the transitions.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;

use super::{
    callback::Callback,
    end::End,
    policy::{Leftovers, Policy},
    process::{Exit, Signal},
    stop::{Mode, Stop},
};

/// The state of the child and of its supervision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supervision {
    pub state: State,
    /// The wrapper shuts down when the child has ended.
    pub leaving: bool,
    /// The stop in progress is for the shutdown of an earlier wrapper: another child follows.
    pub revive: bool,
    /// The number of automatic restarts since the last requested start.
    pub restarts: u32,
    /// The number of consecutive unexpected ends before a child was stable.
    pub failures: u32,
    /// This child, or the next one, is an automatic restart.
    pub restarted: bool,
    /// When the child counts as stable and `failures` is reset. `None` while there are no failures.
    pub stable_at: Option<Instant>,
    /// The signal that the state waits for could not be sent.
    pub refused_signal: Option<RefusedSignal>,
    /// The child drains, and an earlier wrapper may have sent SIGQUIT to it, too.
    pub repeated_quit: bool,
    /// The last log lines of the child that failed last.
    pub last_lines: LastLines,
    /// Why the state file does not have this state, if there is such a file.
    pub save_error: Option<Arc<str>>,
    /// The stop of an earlier child, after another child was started.
    pub last_stop: Option<Arc<PastStop>>,
}

/// A signal that the kernel refused to send, for example because the child runs as another user now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSignal {
    pub signal: Signal,
    pub error: Arc<str>,
    pub retry_at: Instant,
}

/// A stop that is over, and the end of its child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStop {
    pub stop: Stop,
    pub end: End,
}

/// The last log lines of a failed child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastLines {
    /// No child has failed, or its log cannot be read.
    #[default]
    NotRead,
    /// They are being read.
    Reading,
    Read(Arc<[String]>),
}

/// The state of the child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No child was started yet.
    #[default]
    Idle,
    /// A child is being started. A stop that is requested now is kept until then.
    Starting { stop: Option<Stop> },
    /// `reload` is a SIGHUP that is held back until the child handles signals, at the latest until this instant.
    Running { child: ChildInfo, reload: Option<Instant> },
    /// It is being stopped.
    Stopping { child: ChildInfo, stop: Stop, phase: Phase },
    /// It ended unexpectedly, and is restarted at `until`.
    Backoff { until: Instant, end: End },
    /// It has ended, or was never started. `stop` is the request that caused this.
    Exited { end: End, stop: Option<Stop> },
}

/// The states that the log, the status, the APIs and the metrics have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildInfo {
    pub pid: u32,
    pub started: Instant,
}

/// The progress of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Graceful. SIGQUIT is held back until the child handles it, at the latest until `until`.
    /// `quit_sent_at` is when an earlier wrapper sent it, or was about to send it. It is then sent again.
    Holding { until: Instant, quit_sent_at: Option<Instant> },
    /// Graceful. The child handles SIGQUIT, which is held back until no job request is open, at the latest until `until`: the child cancels its open
    /// requests, and a job that GitLab has assigned to one is lost. `open` is the number of open requests, if it is known. `quit_sent_at` is when an
    /// earlier wrapper sent SIGQUIT, or could have sent it.
    AwaitingGap { until: Instant, open: Option<u32>, quit_sent_at: Option<Instant> },
    /// Graceful. SIGQUIT was sent, and the child finishes its jobs.
    Draining { since: Instant },
    /// Forceful. SIGTERM is held back until the child has read SIGQUIT.
    Spacing { until: Instant },
    /// Forceful. SIGTERM was sent. The process group is killed at `until`.
    Terminating { until: Instant },
    /// SIGKILL was sent to the process group.
    Killed,
}

impl Supervision {
    /// The next instant at which [`Event::Tick`](super::event::Event::Tick) changes something.
    pub fn due(&self) -> Option<Instant> {
        let retry = self.refused_signal.as_ref().filter(|refused| refused.is_needed_in(&self.state));
        let retry = retry.map(|refused| refused.retry_at);
        self.state_due().into_iter().chain(retry).min()
    }

    fn state_due(&self) -> Option<Instant> {
        match &self.state {
            State::Idle | State::Starting { .. } | State::Exited { .. } => None,
            State::Running { reload, .. } => reload.iter().chain(&self.stable_at).min().copied(),
            State::Backoff { until, .. } => Some(*until),
            State::Stopping { stop, phase, .. } => match *phase {
                Phase::Holding { until, .. } | Phase::AwaitingGap { until, .. } => {
                    Some(stop.deadline.map_or(until, |deadline| deadline.min(until)))
                }
                Phase::Draining { .. } => stop.deadline,
                Phase::Spacing { until } | Phase::Terminating { until } => Some(until),
                Phase::Killed => None,
            },
        }
    }

    /// The PID of the child that has just failed, where its log may explain the failure.
    pub(super) fn failed_child(&self) -> Option<u32> {
        match &self.state {
            // It may have exited as requested.
            State::Exited { end: End::Exited { exit: Exit::Unknown, killed: false, .. }, stop: Some(_) } => {
                None
            }
            State::Backoff { end, .. } | State::Exited { end, .. } => match end {
                End::Exited { pid, .. } if !end.is_success() => Some(*pid),
                End::NeverStarted | End::SpawnFailed(_) | End::Exited { .. } => None,
            },
            State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => None,
        }
    }

    /// What happens to the processes that the child leaves behind: after a forceful stop they are killed, whatever the policy.
    pub(super) fn leftovers(&self, policy: &Policy) -> Leftovers {
        let is_forceful = self.state.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
        if is_forceful { Leftovers::Kill } else { policy.leftovers }
    }

    /// Whether SIGQUIT was refused, so that the drain in progress has not reached the child.
    pub fn is_quit_refused(&self) -> bool {
        self.refused_signal.as_ref().is_some_and(|refused| refused.signal == Signal::Drain)
    }

    /// Whether SIGQUIT is held back until no job request is open.
    pub fn awaits_gap(&self) -> bool {
        matches!(self.state, State::Stopping { phase: Phase::AwaitingGap { .. }, .. })
    }

    /// Whether a signal is held back until the child handles it.
    pub fn holds_signal(&self) -> bool {
        matches!(
            self.state,
            State::Running { reload: Some(_), .. } | State::Stopping { phase: Phase::Holding { .. }, .. }
        )
    }
}

impl RefusedSignal {
    /// Whether this state waits for the signal.
    pub(super) fn is_needed_in(&self, state: &State) -> bool {
        match (self.signal, state) {
            (Signal::Reload, State::Running { .. }) => true,
            (Signal::Drain, State::Stopping { phase, .. }) => matches!(phase, Phase::Draining { .. }),
            (Signal::Terminate, State::Stopping { phase, .. }) => matches!(phase, Phase::Terminating { .. }),
            (Signal::Kill, State::Stopping { phase, .. }) => *phase == Phase::Killed,
            _ => false,
        }
    }
}

impl State {
    /// The state as every output names it.
    pub fn public(&self) -> RunnerState {
        match self {
            Self::Idle => RunnerState::Idle,
            Self::Starting { .. } => RunnerState::Starting,
            Self::Running { .. } => RunnerState::Running,
            Self::Stopping { phase, .. } => match phase {
                Phase::Holding { .. } | Phase::AwaitingGap { .. } | Phase::Draining { .. } => {
                    RunnerState::Draining
                }
                Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => RunnerState::Terminating,
            },
            Self::Backoff { .. } => RunnerState::Backoff,
            Self::Exited { end, .. } if end.is_success() => RunnerState::Stopped,
            // It may have exited as requested.
            Self::Exited { end: End::Exited { exit: Exit::Unknown, killed: false, .. }, stop: Some(_) } => {
                RunnerState::Stopped
            }
            Self::Exited { .. } => RunnerState::Failed,
        }
    }

    /// The stop that is in progress or is over.
    pub fn stop(&self) -> Option<&Stop> {
        match self {
            Self::Starting { stop } | Self::Exited { stop, .. } => stop.as_ref(),
            Self::Stopping { stop, .. } => Some(stop),
            Self::Idle | Self::Running { .. } | Self::Backoff { .. } => None,
        }
    }

    /// The stop that is over, without its callbacks.
    pub(super) fn past_stop(&self) -> Option<PastStop> {
        match self {
            Self::Exited { end, stop: Some(stop) } => {
                let stop = Stop { callbacks: Vec::new(), finished_callbacks: Vec::new(), ..stop.clone() };
                Some(PastStop { stop, end: end.clone() })
            }
            _ => None,
        }
    }

    /// The callbacks of a stop that is over, which are not finished.
    pub(super) fn due_callbacks(&self) -> Vec<Callback> {
        match self {
            Self::Exited { stop: Some(stop), .. } => stop.callbacks.clone(),
            _ => Vec::new(),
        }
    }

    pub fn child(&self) -> Option<ChildInfo> {
        match self {
            Self::Running { child, .. } | Self::Stopping { child, .. } => Some(*child),
            Self::Idle | Self::Starting { .. } | Self::Backoff { .. } | Self::Exited { .. } => None,
        }
    }
}
