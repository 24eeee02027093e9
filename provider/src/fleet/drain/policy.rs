//! The settings of a drain.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    client::{DrainRequest, Snapshot},
    fleet::{receipt::OnLostJobs, retry::Retry},
};

/// How the runner is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The runner accepts no further jobs, and exits after its last one.
    Graceful,
    /// The runner aborts its jobs.
    Forceful,
}

/// The action when the runner has not exited at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The drain fails; the runner keeps draining.
    Fail,
    /// Request a forceful shutdown: jobs that are still running are aborted.
    Force,
}

/// The action when the wrapper is not reached before the shutdown was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnreachable {
    /// The drain fails: jobs may be running there.
    Fail,
    /// A host is treated as terminated if nothing responds at its address.
    AssumeTerminated,
    /// The user has named the instance as terminated, for this run: every failure to reach its wrapper counts.
    Confirmed,
}

/// How far a call follows the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The runner has exited.
    Exit,
    /// The shutdown cannot be cancelled any more.
    Signal,
    /// The wrapper has accepted the shutdown.
    Accepted,
}

impl Until {
    /// The value of an attribute `wait`.
    pub fn of(wait: bool) -> Self {
        if wait { Self::Exit } else { Self::Signal }
    }

    /// Whether the drain need not be followed any further: its runner is shutting down, with this status.
    pub(super) fn is_reached_in(self, snapshot: &Snapshot) -> bool {
        match self {
            Self::Exit => false,
            Self::Signal => snapshot.is_shutdown_final(),
            Self::Accepted => true,
        }
    }
}

/// The settings of one drain.
#[derive(Debug, Clone)]
pub struct DrainPolicy {
    pub mode: Mode,
    pub until: Until,
    /// The start of the operation, from which `timeout` counts.
    pub start: Instant,
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub on_unreachable: OnUnreachable,
    pub on_lost_jobs: OnLostJobs,
    /// The request without its mode: `forceful` is set by the drain.
    pub request: DrainRequest,
    /// Applies until the shutdown was requested. After that, a lost connection is retried until the deadline.
    pub retry: Retry,
}
