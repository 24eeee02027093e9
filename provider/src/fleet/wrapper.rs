//! What the loops need of a wrapper, so that they can be tested against a scripted one.

use std::{fmt::Display, future::Future};

use crate::client::{ClientError, DrainRequest, Look, Start, WrapperClient};

/// A wrapper that can be asked; `client::WrapperClient` over SSH, a script in tests.
///
/// Every call has its own deadline, reconnects when it must, and may be dropped at any moment.
pub trait Wrapper: Sync {
    type Error: Fault;

    /// What is true of the runner now.
    fn look(&self) -> impl Future<Output = Result<Look, Self::Error>> + Send;

    /// Returns when something changed; never, where the wrapper does not tell.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// Asks for a shutdown; returns when the wrapper has taken the request, not when the runner has ended.
    fn drain(&self, request: &DrainRequest) -> impl Future<Output = Result<Look, Self::Error>> + Send;

    /// Starts a runner that has ended, where the wrapper can.
    fn start(&self) -> impl Future<Output = Result<Start, Self::Error>> + Send;
}

/// An error of a call: is it worth another attempt?
pub trait Fault: Display + Send {
    /// True for what time may heal (network, a server that starts, a busy sshd); false for refusals and wrong configuration.
    fn retryable(&self) -> bool;
}

impl Wrapper for WrapperClient {
    type Error = ClientError;

    async fn look(&self) -> Result<Look, ClientError> {
        Self::look(self).await
    }

    async fn changed(&self) {
        Self::changed(self).await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Look, ClientError> {
        Self::drain(self, request).await
    }

    async fn start(&self) -> Result<Start, ClientError> {
        Self::start(self).await
    }
}

impl Fault for ClientError {
    fn retryable(&self) -> bool {
        Self::retryable(self)
    }
}
