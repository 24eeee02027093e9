//! The exits and stops that the metrics count.

use std::time::Duration;

use super::{
    moment::Moment,
    stop::{Mode, Stop, StopOutcome},
};
use crate::supervise::process::Exit;

/// Why a child ended, as a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    Success,
    Error,
    Signal,
    /// It did not exit in time after SIGTERM.
    Killed,
    /// It was adopted, and its exit status is unknown.
    Unknown,
    SpawnFailed,
}

/// A stop that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStop {
    /// The mode that was requested first.
    pub mode: Mode,
    /// `None` for a cancelled stop.
    pub outcome: Option<StopOutcome>,
    /// From the request to the exit of the runner. `None` when no runner had to exit.
    pub duration: Option<Duration>,
}

/// A change that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Exit(ExitReason),
    Stop(EndedStop),
}

impl ExitReason {
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Error, Self::Signal, Self::Killed, Self::Unknown, Self::SpawnFailed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Signal => "signal",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
            Self::SpawnFailed => "spawn_failed",
        }
    }

    pub(super) fn of(exit: Exit, killed: bool) -> Self {
        match exit {
            _ if killed => Self::Killed,
            Exit::Code(0) => Self::Success,
            Exit::Code(_) => Self::Error,
            Exit::Signal(_) => Self::Signal,
            Exit::Unknown => Self::Unknown,
        }
    }
}

impl EndedStop {
    pub(super) fn new(stop: &Stop, now: Moment) -> Self {
        let had_child = stop.outcome != Some(StopOutcome::NoRunner);
        let duration = had_child.then(|| now.since(stop.requested));
        Self { mode: stop.requested_mode, outcome: stop.outcome, duration }
    }

    pub(super) fn cancelled(stop: &Stop) -> Self {
        Self { mode: stop.requested_mode, outcome: None, duration: None }
    }
}
