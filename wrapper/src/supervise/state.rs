//! What can be true about the child and its supervision. [`super::table`] leads from one state to the next.

use std::sync::Arc;

use tokio::time::Instant;

use super::{callback::Callback, process::Exit};
use super::{
    command::{Mode, Stop},
    policy::{Leftovers, Policy},
};

/// Everything that is true about the child and its supervision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervision {
    pub state: State,
    /// The wrapper was asked to end.
    pub leaving: bool,
    /// The stop that is under way was for the end of an earlier wrapper: another child follows.
    pub revive: bool,
    /// How often a child was started because another had ended by itself, since somebody last asked for a start.
    pub restarts: u32,
    /// How many of the last children in a row ended by themselves before they were stable.
    pub failures: u32,
    /// The child, or the one to come, replaces one that ended by itself.
    pub restarted: bool,
    /// When the child is stable, and the failures of those before it are forgotten; there while there are any.
    pub stable_at: Option<Instant>,
    /// What the last child wrote before it failed.
    pub last_lines: LastLines,
    /// The stop that ended an earlier child, once another was started after it.
    pub last_stop: Option<Arc<PastStop>>,
}

/// A stop that is over, and how its child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStop {
    pub stop: Stop,
    pub end: End,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            state: State::Idle,
            leaving: false,
            revive: false,
            restarts: 0,
            failures: 0,
            restarted: false,
            stable_at: None,
            last_lines: LastLines::NotRead,
            last_stop: None,
        }
    }
}

/// The end of a failed child's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastLines {
    /// There is no failed child, or its log cannot be read.
    #[default]
    NotRead,
    /// They will be known in moments.
    Reading,
    Read(Arc<[String]>),
}

/// Where the child is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No child was started yet.
    Idle,
    /// A child is being made. A stop that comes now waits here for it.
    Starting { stop: Option<Stop> },
    /// It runs. `reload` is a SIGHUP that waits, until then at most, for the child to be old enough for signals.
    Running { child: ChildInfo, reload: Option<Instant> },
    /// It is on its way out.
    Stopping { child: ChildInfo, stop: Stop, phase: Phase },
    /// It ended by itself, and another is started at `until`.
    Backoff { until: Instant, end: End },
    /// It has ended, or was never started. `stop` is the one that asked for it.
    Exited { end: End, stop: Option<Stop> },
}

/// A child that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildInfo {
    pub pid: u32,
    pub started: Instant,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Graceful. SIGQUIT waits for the child to handle it, but not past `until`.
    /// `told` is when an earlier wrapper sent it, or was about to: then it is sent again, to be sure.
    Holding { until: Instant, told: Option<Instant> },
    /// Graceful. SIGQUIT was sent; the child finishes its jobs.
    Draining { since: Instant },
    /// Forceful. SIGTERM waits until the child has surely taken SIGQUIT.
    Spacing { until: Instant },
    /// Forceful. SIGTERM was sent; the group is killed at `until`.
    Terminating { until: Instant },
    /// SIGKILL was sent to the group.
    Killed,
}

/// How it came that there is no child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The stop came before the first start.
    NeverStarted,
    /// It could not be started, for this reason.
    SpawnFailed(Arc<str>),
    /// The process ended by itself or as asked; `killed` when it was killed because it took too long.
    Exited { pid: u32, exit: Exit, killed: bool },
}

impl Supervision {
    /// When the passing of time will change something, if ever.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Idle | State::Starting { .. } | State::Exited { .. } => None,
            State::Running { reload, .. } => reload.iter().chain(&self.stable_at).min().copied(),
            State::Backoff { until, .. } => Some(*until),
            State::Stopping { stop, phase, .. } => match *phase {
                Phase::Holding { until, .. } => {
                    Some(stop.deadline.map_or(until, |deadline| deadline.min(until)))
                }
                Phase::Draining { .. } => stop.deadline,
                Phase::Spacing { until } | Phase::Terminating { until } => Some(until),
                Phase::Killed => None,
            },
        }
    }

    /// The child that has just ended, when its end is a failure that its log may explain.
    pub(super) fn failed_child(&self) -> Option<u32> {
        match &self.state {
            // As asked, for all that is known.
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

    /// Whether the processes that the child leaves behind are to be killed when it ends: after a forceful stop, and always where the policy
    /// wants it.
    pub(super) fn ends_remains(&self, policy: &Policy) -> bool {
        let forceful = self.state.stop().is_some_and(|stop| stop.mode == Mode::Forceful);
        forceful || (policy.leftovers == Leftovers::Kill)
    }

    /// Whether a signal waits for the child to handle it.
    #[must_use]
    pub fn holds_signal(&self) -> bool {
        matches!(
            self.state,
            State::Running { reload: Some(_), .. } | State::Stopping { phase: Phase::Holding { .. }, .. }
        )
    }
}

impl State {
    /// One word for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Stopping { phase, .. } => match phase {
                Phase::Holding { .. } => "holding",
                Phase::Draining { .. } => "draining",
                Phase::Spacing { .. } | Phase::Terminating { .. } => "forcing",
                Phase::Killed => "killed",
            },
            Self::Backoff { .. } => "backoff",
            Self::Exited { .. } => "stopped",
        }
    }

    /// The stop that is under way or was, if there is one.
    #[must_use]
    pub fn stop(&self) -> Option<&Stop> {
        match self {
            Self::Starting { stop } | Self::Exited { stop, .. } => stop.as_ref(),
            Self::Stopping { stop, .. } => Some(stop),
            Self::Idle | Self::Running { .. } | Self::Backoff { .. } => None,
        }
    }

    /// The stop that is over, for those who ask after another child was started.
    pub(super) fn past_stop(&self) -> Option<PastStop> {
        match self {
            Self::Exited { end, stop: Some(stop) } => {
                let stop = Stop { callbacks: Vec::new(), called: Vec::new(), ..stop.clone() };
                Some(PastStop { stop, end: end.clone() })
            }
            _ => None,
        }
    }

    /// Callbacks of a stop that is over, which were not made yet.
    pub(super) fn unmade_callbacks(&self) -> Vec<Callback> {
        match self {
            Self::Exited { stop: Some(stop), .. } => stop.callbacks.clone(),
            _ => Vec::new(),
        }
    }

    /// The child, while there is one.
    #[must_use]
    pub fn child(&self) -> Option<ChildInfo> {
        match self {
            Self::Running { child, .. } | Self::Stopping { child, .. } => Some(*child),
            Self::Idle | Self::Starting { .. } | Self::Backoff { .. } | Self::Exited { .. } => None,
        }
    }
}

impl End {
    pub(super) fn is_success(&self) -> bool {
        match self {
            Self::NeverStarted => true,
            Self::SpawnFailed(_) => false,
            Self::Exited { exit, killed, .. } => exit.is_success() && !killed,
        }
    }

    /// What is to be told about this end; `None` when all is well.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::NeverStarted => None,
            Self::SpawnFailed(why) => Some(format!("failed to start process: {why}")),
            Self::Exited { exit, killed: true, .. } => {
                Some(format!("{exit}: it did not exit in time after SIGTERM"))
            }
            Self::Exited { exit, .. } if exit.is_success() => None,
            Self::Exited { exit, .. } => Some(exit.to_string()),
        }
    }
}
