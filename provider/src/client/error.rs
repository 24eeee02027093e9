//! Errors of calls to a wrapper.

use std::time::Duration;

use grit_ssh::{
    Cause, Confirmation, Peer, Phase, Reachability, Route, TransportError,
    host_text::{MAX_TEXT, shortened},
};

use crate::duration::human;

/// A call that failed or was rejected.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The wrapper was not reached, or the tunnel broke during the call.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The tunnel is open, but there was no response within the time limit of the call.
    #[error("{method}: no response within {}", human(*limit))]
    NoAnswer { method: &'static str, limit: Duration, route: Box<Route> },
    /// The wrapper returned a gRPC error.
    #[error("{method}: {code:?}: {message}")]
    Status { method: &'static str, code: tonic::Code, message: String, route: Box<Route> },
}

impl ClientError {
    /// Whether the same call can succeed later without a change.
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

    /// Whether the wrapper may have executed the call although there was no response.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            // A call is sent after the tunnel was opened.
            Self::Transport(error) => error.phase == Phase::Call,
            Self::NoAnswer { .. } => true,
            // With these codes, the wrapper did not execute the call. Another code can mean a lost response.
            Self::Status { code, .. } => !matches!(
                code,
                tonic::Code::InvalidArgument
                    | tonic::Code::FailedPrecondition
                    | tonic::Code::PermissionDenied
                    | tonic::Code::Unauthenticated
                    | tonic::Code::Unimplemented
                    | tonic::Code::ResourceExhausted
            ),
        }
    }

    /// The reachability of the host after this error.
    pub fn reachability(&self) -> Reachability {
        match self {
            Self::Transport(error) => error.reachability(),
            Self::NoAnswer { .. } | Self::Status { .. } => Reachability::Answered,
        }
    }

    /// Whether the host can be gone, if the user states this.
    pub fn confirmation(&self) -> Confirmation {
        match self {
            Self::Transport(error) => error.confirmation(),
            // The runner may never have started.
            Self::NoAnswer { .. } => Confirmation::Offered,
            Self::Status { .. } => Confirmation::Contradicted,
        }
    }

    /// Whether the wrapper has responded.
    pub fn is_response(&self) -> bool {
        matches!(self, Self::Status { .. })
    }

    /// Whether the host was reached, and its host key verified.
    pub(super) fn is_of_verified_host(&self) -> bool {
        match self {
            Self::Transport(error) => error.is_of_verified_host(),
            Self::NoAnswer { .. } | Self::Status { .. } => true,
        }
    }

    /// Whether no host responds: connection refused, no route, no response, unknown host name.
    pub fn is_absent(&self) -> bool {
        self.reachability() == Reachability::Absent
    }

    /// False if the connection was not attempted: other connections used all slots, or the deadline left no time for it.
    pub fn was_tried(&self) -> bool {
        match self {
            Self::Transport(error) => error.was_tried(),
            Self::NoAnswer { .. } | Self::Status { .. } => true,
        }
    }

    /// The time limit that passed: of a phase of the connection, or of the call.
    pub fn time_limit(&self) -> Option<Duration> {
        match self {
            Self::Transport(TransportError {
                cause: Cause::TimedOut { limit } | Cause::NoResponse { from: Peer::Wrapper, limit },
                ..
            })
            | Self::NoAnswer { limit, .. } => Some(*limit),
            Self::Transport(_) | Self::Status { .. } => None,
        }
    }

    pub(super) fn status(method: &'static str, status: &tonic::Status, route: &Route) -> Self {
        let (code, message) = (status.code(), shortened(status.message().to_owned(), MAX_TEXT));
        Self::Status { method, code, message, route: Box::new(route.clone()) }
    }
}

/// The route to a manager `mgr-2`.
#[cfg(test)]
pub(crate) fn example_route() -> Route {
    Route {
        method: grit_ssh::ConnectionMethod::Direct,
        host: "mgr-2".parse().unwrap(),
        username: Some("deploy".to_owned()),
        wrapper: "unix:///run/wrapper.sock".parse().unwrap(),
        hop: None,
        onward: None,
        onward_hop: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_may_have_arrived_only_after_tunnel_opened() {
        let broken = |phase, cause| ClientError::from(TransportError::at(phase, example_route(), cause));
        // A protocol error is not retried, and does not show whether the wrapper has read the call.
        let protocol = broken(Phase::Call, Cause::Protocol("unexpected packet".into()));
        assert!(!protocol.retryable() && protocol.may_have_arrived());
        assert!(broken(Phase::Call, Cause::WrapperClosed).may_have_arrived());
        for phase in [Phase::Command, Phase::Tcp, Phase::Handshake, Phase::Channel] {
            assert!(!broken(phase, Cause::Lost("reset".into())).may_have_arrived(), "{phase}");
        }
        let limit = Duration::from_secs(1);
        let silent = ClientError::NoAnswer { method: "Drain", limit, route: Box::new(example_route()) };
        assert!(silent.may_have_arrived());
        let status = |code| ClientError::Status {
            method: "Drain",
            code,
            message: String::new(),
            route: Box::new(example_route()),
        };
        assert!(!status(tonic::Code::FailedPrecondition).may_have_arrived());
        assert!(!status(tonic::Code::PermissionDenied).may_have_arrived());
        for code in [tonic::Code::Unavailable, tonic::Code::Internal, tonic::Code::OutOfRange] {
            assert!(status(code).may_have_arrived(), "{code:?}");
        }
    }
}
