//! What a client of a wrapper can do. Tests of the layers above follow a script in its place.

use std::future::Future;

use tokio::time::Instant;

use super::{
    error::ClientError,
    snapshot::{DrainRequest, Snapshot, Start},
};

/// The calls to one wrapper. Each has its limit, connects again where it must, and may be dropped at any moment.
pub trait Wrapper: Send + Sync + Sized {
    /// The same client, whose calls and connections end at this moment at the latest.
    #[must_use]
    fn until(&self, deadline: Instant) -> Self;

    /// The status of the runner, as detailed as this wrapper reports it.
    fn read_status(&self) -> impl Future<Output = Result<Snapshot, ClientError>> + Send;

    /// Returns when the wrapper reports a change. With a wrapper that reports none, and while it cannot be reached, never: read the status
    /// from time to time as well.
    ///
    /// The next call goes on with the same stream. The first call after a connection returns at once.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Requests a shutdown; returns when the wrapper has accepted the request, long before the end. Repeating it is harmless.
    fn drain(&self, request: &DrainRequest) -> impl Future<Output = Result<Snapshot, ClientError>> + Send;

    /// Starts a runner that has ended, where the wrapper can.
    fn start(&self) -> impl Future<Output = Result<Start, ClientError>> + Send;
}
