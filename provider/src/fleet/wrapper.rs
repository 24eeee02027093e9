//! What the loops need of a wrapper, so that they can be tested against a scripted one.

use std::{fmt::Display, future::Future};

use tokio::time::Instant;

use crate::{
    client::{ClientError, DrainRequest, Look, Start, WrapperClient},
    transport::Presence,
};

/// A wrapper that can be asked; `client::WrapperClient` over SSH, a script in tests.
///
/// Every call has its own limit, ends at the deadline of the operation at the latest, reconnects when it must, and may be dropped at any
/// moment.
pub trait Wrapper: Sync {
    type Error: Fault;

    /// What is true of the runner now.
    fn look(&self, deadline: Instant) -> impl Future<Output = Result<Look, Self::Error>> + Send;

    /// Returns when something changed; never, where the wrapper does not tell.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Asks for a shutdown; returns when the wrapper has taken the request, not when the runner has ended.
    fn drain(
        &self,
        request: &DrainRequest,
        deadline: Instant,
    ) -> impl Future<Output = Result<Look, Self::Error>> + Send;

    /// Starts a runner that has ended, where the wrapper can.
    fn start(&self, deadline: Instant) -> impl Future<Output = Result<Start, Self::Error>> + Send;
}

/// An error of a call.
pub trait Fault: Display + Send {
    /// True for what time may heal (network, a server that starts, a busy sshd); false for refusals and wrong configuration.
    fn retryable(&self) -> bool;

    /// Whether nothing is there, as far as the network says: refused connections, no route, no answer, an unknown name. False for a host
    /// that answered in any way, and for attempts that failed before they reached it.
    fn absent(&self) -> bool;

    /// Whether the wrapper may have read the call, although its answer was lost.
    fn may_have_arrived(&self) -> bool;

    /// Whether anything was tried: an attempt that only waited for its turn is none.
    fn was_tried(&self) -> bool;
}

impl Wrapper for WrapperClient {
    type Error = ClientError;

    async fn look(&self, deadline: Instant) -> Result<Look, ClientError> {
        self.until(deadline).look().await
    }

    async fn changed(&self) {
        Self::changed(self).await;
    }

    async fn drain(&self, request: &DrainRequest, deadline: Instant) -> Result<Look, ClientError> {
        Self::drain(&self.until(deadline), request).await
    }

    async fn start(&self, deadline: Instant) -> Result<Start, ClientError> {
        Self::start(&self.until(deadline)).await
    }
}

impl Fault for ClientError {
    fn retryable(&self) -> bool {
        Self::retryable(self)
    }

    fn absent(&self) -> bool {
        self.presence() == Presence::Absent
    }

    fn may_have_arrived(&self) -> bool {
        Self::may_have_arrived(self)
    }

    fn was_tried(&self) -> bool {
        Self::was_tried(self)
    }
}
