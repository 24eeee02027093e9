//! Why a call to a wrapper failed.

use crate::transport::{Phase, Route, TransportError};
use std::time::Duration;

/// A call that brought no answer, or a refusal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The wrapper was not reached, or the tunnel broke during the call.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The tunnel stands, but no answer came within the call's limit.
    #[error("{method}: no answer within {}", humantime::format_duration(*limit))]
    NoAnswer {
        method: &'static str,
        limit: Duration,
        /// Whether not a byte came from the wrapper over this tunnel.
        silent: bool,
        route: Box<Route>,
    },
    /// The wrapper answered with a gRPC error.
    #[error("{method}: {code:?}: {message}")]
    Status { method: &'static str, code: tonic::Code, message: String, route: Box<Route> },
}

impl ClientError {
    /// Whether the same call can succeed later without anybody changing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Transport(error) => error.retryable(),
            Self::NoAnswer { .. } => true,
            Self::Status { code, .. } => matches!(
                code,
                tonic::Code::Unavailable
                    | tonic::Code::DeadlineExceeded
                    | tonic::Code::ResourceExhausted
                    | tonic::Code::Aborted
            ),
        }
    }

    /// What was tried.
    pub fn route(&self) -> &Route {
        match self {
            Self::Transport(error) => &error.route,
            Self::NoAnswer { route, .. } | Self::Status { route, .. } => route,
        }
    }

    pub(super) fn status(method: &'static str, status: &tonic::Status, route: Box<Route>) -> Self {
        Self::Status { method, code: status.code(), message: status.message().to_owned(), route }
    }

    /// Where on the way it failed.
    pub fn phase(&self) -> Phase {
        match self {
            Self::Transport(error) => error.phase,
            Self::NoAnswer { .. } | Self::Status { .. } => Phase::Call,
        }
    }
}
