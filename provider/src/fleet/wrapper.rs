//! What the loops need of a wrapper, so that they can be tested against a scripted one.

use std::{fmt::Display, future::Future};

use crate::client::{ClientError, ShutdownCallback, StatusReport, WrapperClient};

/// A wrapper that can be asked; `client::WrapperClient` over SSH, a script in tests.
///
/// Every call has its own deadline, reconnects when it must, and may be dropped at any moment.
pub trait Wrapper: Sync {
    type Error: Fault;

    /// The runner's status as the wrapper knows it.
    fn check_status(&self) -> impl Future<Output = Result<StatusReport, Self::Error>> + Send;

    /// Asks for a graceful shutdown; returns when the wrapper has taken the request, not when the runner has ended.
    fn init_graceful_shutdown(
        &self,
        callback: Option<ShutdownCallback>,
    ) -> impl Future<Output = Result<StatusReport, Self::Error>> + Send;

    /// Asks for a forceful shutdown; returns when the wrapper has taken the request.
    fn init_forceful_shutdown(&self) -> impl Future<Output = Result<StatusReport, Self::Error>> + Send;
}

/// An error of a call: is it worth another attempt?
pub trait Fault: Display + Send {
    /// True for what time may heal (network, a server that starts, a busy sshd); false for refusals and wrong configuration.
    fn retryable(&self) -> bool;
}

impl Wrapper for WrapperClient {
    type Error = ClientError;

    async fn check_status(&self) -> Result<StatusReport, ClientError> {
        Self::check_status(self).await
    }

    async fn init_graceful_shutdown(
        &self,
        callback: Option<ShutdownCallback>,
    ) -> Result<StatusReport, ClientError> {
        Self::init_graceful_shutdown(self, callback).await
    }

    async fn init_forceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        Self::init_forceful_shutdown(self).await
    }
}

impl Fault for ClientError {
    fn retryable(&self) -> bool {
        Self::retryable(self)
    }
}
