//! The calls to a wrapper, as a trait: tests of the layers above use a scripted implementation.

use std::future::Future;

use tokio::time::Instant;

use super::{
    error::ClientError,
    request::{DrainRequest, Start},
    snapshot::Snapshot,
};

/// The calls to one wrapper. Each has a time limit, and opens a connection if necessary. Its future can be dropped at any time.
pub trait Wrapper: Send + Sync + Sized {
    /// The same client with a deadline for all calls and connections.
    #[must_use]
    fn until(&self, deadline: Instant) -> Self;

    fn read_status(&self) -> impl Future<Output = Result<Snapshot, ClientError>> + Send;

    /// Returns when the wrapper reports a change. Never returns if the wrapper does not report changes, or is unreachable: also read the
    /// status at intervals.
    ///
    /// The next call continues the same stream. The first call after a connection returns immediately.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Requests a shutdown. Returns when the wrapper has accepted the request. Repeating it is harmless.
    fn drain(&self, request: &DrainRequest) -> impl Future<Output = Result<Snapshot, ClientError>> + Send;

    /// The ids of the running jobs, the oldest first; none if the wrapper does not report them.
    fn running_jobs(&self) -> impl Future<Output = Result<Vec<u64>, ClientError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Starts a runner that has exited, if the wrapper supports it.
    fn start(&self) -> impl Future<Output = Result<Start, ClientError>> + Send;
}
