//! Why an operation on a runner manager did not succeed.

use std::time::Duration;

use crate::{
    client::{ClientError, Snapshot},
    manager::InvalidManager,
};

/// Whether an operation has requested a change from the wrapper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requested {
    #[default]
    No,
    /// The request was sent, but no response was received.
    Perhaps,
    /// The wrapper accepted the request, or a shutdown was already in progress.
    Accepted,
}

/// Why an operation on one runner manager did not succeed. What was requested continues on the host.
#[derive(Debug)]
pub struct Failure<P> {
    /// Since the start of the operation.
    pub waited: Duration,
    pub requested: Requested,
    /// The last status; `None` if the wrapper has not responded.
    pub last: Option<Snapshot>,
    /// The last error, if the wrapper was not reached since then.
    pub lost: Option<Box<ClientError>>,
    pub reason: Reason<P>,
}

/// The reasons that all operations have in common, and those of one operation.
#[derive(Debug)]
pub enum Reason<P> {
    /// Its entry cannot be used.
    Invalid(InvalidManager),
    /// The wrapper was not reached: all attempts failed, the deadline passed, or the error is permanent.
    Unreached {
        /// Consecutive failed attempts.
        attempts: u32,
        error: ClientError,
    },
    /// Terraform stopped the operation, which waited for this.
    Interrupted(Option<P>),
    Problem(P),
}

impl<P> From<InvalidManager> for Failure<P> {
    fn from(invalid: InvalidManager) -> Self {
        let reason = Reason::Invalid(invalid);
        Self { waited: Duration::ZERO, requested: Requested::No, last: None, lost: None, reason }
    }
}
