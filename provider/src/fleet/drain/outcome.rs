//! What is asked of a drain, and how it can end.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    client::{ClientError, DrainRequest, Snapshot},
    fleet::{peers::TooFewPeers, retry::Retry},
};

/// How the runner is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It takes no further job and ends after its last one.
    Graceful,
    /// It aborts its jobs.
    Forceful,
}

/// What happens when the runner has not ended at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The drain fails; the runner goes on draining.
    Fail,
    /// A forceful shutdown: jobs that still run are aborted.
    Force,
}

/// What it means that the host is absent before the shutdown was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnreachable {
    /// The drain fails: jobs may run there.
    Fail,
    /// The host is taken for terminated, by the user's explicit word.
    AssumeTerminated,
}

/// One drain, as the resource asks for it.
#[derive(Debug, Clone)]
pub struct DrainPolicy {
    pub mode: Mode,
    /// When the operation began: `timeout` counts from here.
    pub start: Instant,
    /// Overall limit.
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub on_unreachable: OnUnreachable,
    /// Who asks and why; `forceful` in it is decided here.
    pub request: DrainRequest,
    /// Applies until the shutdown was requested. From then on a lost connection is tried again until the deadline.
    pub retry: Retry,
}

/// Whether the wrapper was asked to shut its runner down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requested {
    No,
    /// The request was sent, and its answer was lost.
    Perhaps,
    /// The wrapper accepted it, or a shutdown was found under way.
    Accepted,
}

/// How a drain ended well.
#[derive(Debug)]
pub enum Drained {
    /// The runner's process has ended, as its wrapper says.
    Ended(Box<Ended>),
    /// The host was absent, and the user said what that means.
    AssumedTerminated { attempts: u32, waited: Duration, error: ClientError },
}

/// The end of a runner.
#[derive(Debug)]
pub struct Ended {
    pub begun: StartedBy,
    pub waited: Duration,
    /// The deadline turned the drain into a forceful shutdown.
    pub forced: bool,
    /// The last status.
    pub snapshot: Snapshot,
    /// Why the wrapper will not make the callback of this drain.
    pub no_callback: Option<NoCallback>,
}

/// Who began the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// The runner had ended before this call.
    Before,
    /// It was under way, and this call joined it.
    Joined,
    /// This call.
    Here,
}

/// Why a callback will not be made.
#[derive(Debug)]
pub enum NoCallback {
    /// Upstream's wrapper takes a callback only together with the first request.
    Upstream,
    /// The wrapper refused it.
    Refused(ClientError),
}

/// Why the runner is not known to have ended. What was `requested` stays requested on the host.
#[derive(Debug)]
pub enum NotDrained {
    Connect {
        attempts: u32,
        waited: Duration,
        requested: Requested,
        error: ClientError,
    },
    TimedOut {
        waited: Duration,
        requested: Requested,
        mode: Mode,
        forced: bool,
        last: Option<Snapshot>,
    },
    Interrupted {
        waited: Duration,
        requested: Requested,
        last: Option<Snapshot>,
    },
    /// Too few peers are healthy: nothing was requested.
    Guarded(TooFewPeers),
}
