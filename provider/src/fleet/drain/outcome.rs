//! The results of a drain.

use std::time::Duration;

use grit_ssh::Confirmation;
use tokio::time::Instant;

use crate::{
    client::{CancelledDrain, ClientError, Snapshot},
    fleet::failure::{Failure, Reason, Requested},
};

/// A successful drain.
#[derive(Debug)]
pub enum Drained {
    /// The wrapper reports that the runner process has exited.
    Ended(Box<Ended>),
    /// The shutdown is in progress, and the policy does not wait for its end.
    InProgress(Box<InProgress>),
    /// The wrapper was not reached, and a setting of the user treats this as terminated. `since`: when the failures began.
    AssumedTerminated { attempts: u32, since: Instant, waited: Duration, error: ClientError },
}

/// A runner that has exited.
#[derive(Debug)]
pub struct Ended {
    pub started_by: StartedBy,
    pub waited: Duration,
    /// A forceful request was sent after the deadline, and the wrapper has received it, or may have received it.
    pub forced: bool,
    /// The jobs that were running just before that request, as far as the wrapper reported them.
    pub aborted: Vec<u64>,
    /// The process that was draining has ended with its host, without a reported exit, and its successor was drained.
    pub exit_unseen: bool,
    pub snapshot: Snapshot,
}

/// A shutdown in progress.
#[derive(Debug)]
pub struct InProgress {
    pub started_by: StartedBy,
    pub snapshot: Snapshot,
}

/// What started the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// The runner had exited before this call.
    Before,
    /// The shutdown was in progress, and this call joined it.
    Joined,
    /// This call.
    Here,
}

/// Why the exit of the runner is not confirmed, although the wrapper responds. A requested shutdown continues on the host.
#[derive(Debug)]
pub enum NotDrained {
    /// `forceful`: the last request was for a forceful shutdown.
    TimedOut { forceful: bool },
    /// The wrapper reports another runner process, and not the exit of the draining process, which may still be running. `pid`: of the draining
    /// process.
    Replaced { pid: String },
    /// The drain was cancelled on the host.
    Cancelled(CancelledDrain),
    /// Nothing responds at the address of the host, and this process has reached no other host.
    NetworkUnproved { attempts: u32, error: ClientError },
}

impl Failure<NotDrained> {
    /// Whether the host can be gone, so that the error offers the user to confirm it.
    pub(crate) fn offers_confirmation(&self) -> bool {
        let error = match &self.reason {
            Reason::Unreached { error, .. } | Reason::Problem(NotDrained::NetworkUnproved { error, .. }) => {
                error
            }
            Reason::Invalid(_) | Reason::Interrupted(_) | Reason::Problem(_) => return false,
        };
        self.requested == Requested::No && error.confirmation() == Confirmation::Offered
    }
}
