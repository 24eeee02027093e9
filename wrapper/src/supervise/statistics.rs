//! The exits and drains that the metrics count.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    drain::{DrainOutcome, Mode, Stop},
    process::Exit,
};

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

/// The result of a drain, as a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// The runner exited with code 0, in the mode that was requested first.
    Finished,
    /// The runner exited with another code, or by a signal that the wrapper did not send.
    Failed,
    /// The runner was adopted, and its exit status is unknown.
    Unknown,
    /// A graceful drain became forceful before the runner exited.
    Forced,
    /// The runner's process group was killed.
    Killed,
    /// The drain was cancelled.
    Cancelled,
    /// No runner was running, and none will be started.
    NoRunner,
}

/// A drain that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The mode that was requested first.
    pub mode: Mode,
    pub result: DrainResult,
    /// From the request to the exit of the runner. `None` when no runner had to exit.
    pub duration: Option<Duration>,
}

/// A change that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Exit(ExitReason),
    Drain(Drained),
}

impl ExitReason {
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Error, Self::Signal, Self::Killed, Self::Unknown, Self::SpawnFailed];

    #[must_use]
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

impl DrainResult {
    pub const ALL: [Self; 7] = [
        Self::Finished,
        Self::Failed,
        Self::Unknown,
        Self::Forced,
        Self::Killed,
        Self::Cancelled,
        Self::NoRunner,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Forced => "forced",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::NoRunner => "no_runner",
        }
    }
}

impl Drained {
    /// Of a stop that is over. Without an outcome there was no child to stop.
    pub(super) fn new(stop: &Stop, now: Instant) -> Self {
        let result = match stop.outcome {
            None | Some(DrainOutcome::NoRunner) => DrainResult::NoRunner,
            Some(DrainOutcome::Killed) => DrainResult::Killed,
            Some(_) if stop.mode != stop.requested_mode => DrainResult::Forced,
            Some(DrainOutcome::Unknown) => DrainResult::Unknown,
            Some(DrainOutcome::Failed) => DrainResult::Failed,
            Some(DrainOutcome::Clean | DrainOutcome::JobsAborted) => DrainResult::Finished,
        };
        let duration =
            (result != DrainResult::NoRunner).then(|| now.saturating_duration_since(stop.requested_at));
        Self { mode: stop.requested_mode, result, duration }
    }

    pub(super) fn cancelled(stop: &Stop) -> Self {
        Self { mode: stop.requested_mode, result: DrainResult::Cancelled, duration: None }
    }
}
