//! The errors of a connection to a wrapper.

use std::{fmt, time::Duration};

use crate::{
    address::WrapperAddress,
    attribute::InvalidOption,
    command::error::CommandError,
    io_error::SharedIoError,
    keys::error::KeyError,
    route::{Phase, Route},
    trust::refusal::HostKeyRefusal,
};

/// A connection to a wrapper that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{phase} to {}: {cause}", route.host)]
pub struct TransportError {
    pub phase: Phase,
    pub route: Box<Route>,
    pub cause: Cause,
    pub evidence: Box<Observations>,
}

impl TransportError {
    /// An error without observations.
    pub fn at(phase: Phase, route: Route, cause: Cause) -> Self {
        Self { phase, route: Box::new(route), cause, evidence: Box::new(Observations::default()) }
    }

    /// The same error for the wrapper of another manager behind the same session.
    pub(crate) fn for_wrapper(mut self, wrapper: &WrapperAddress) -> Self {
        self.route.wrapper = wrapper.clone();
        self
    }

    /// Whether the SSH session of this error is unusable.
    pub(crate) fn is_end_of_session(&self) -> bool {
        matches!(self.cause, Cause::Lost(_) | Cause::NoResponse { from: Peer::Server, .. })
    }

    /// Whether the same attempt can succeed later without a change of the configuration.
    ///
    /// A rejected login is never retried: servers block an address after repeated failures.
    pub fn retryable(&self) -> bool {
        match &self.cause {
            Cause::Resolve(_)
            | Cause::Network(_)
            | Cause::NotSent(_)
            | Cause::TimedOut { .. }
            | Cause::Lost(_)
            | Cause::TooBusy
            | Cause::NoResponse { .. }
            | Cause::HandshakeQueueTimeout { .. }
            | Cause::WrapperClosed => true,
            // While a host boots, the socket does not exist yet, and sshd does not report which refusals are permanent.
            Cause::ChannelRefused { reason, .. } => *reason != ChannelRefusal::Prohibited,
            Cause::Command(CommandError::Ended { .. }) => true,
            Cause::Option(_)
            | Cause::NoUsername
            | Cause::NoCredential
            | Cause::Key(_)
            | Cause::NotSsh
            | Cause::ServerOpensChannels(_)
            | Cause::NoCommonAlgorithm { .. }
            | Cause::HostKey(_)
            | Cause::AuthRefused { .. }
            | Cause::MoreFactors { .. }
            | Cause::TooManyAttempts
            | Cause::Command(CommandError::NotStarted { .. })
            | Cause::NotAWrapper
            | Cause::Agent { .. }
            | Cause::AgentKey { .. }
            | Cause::Protocol(_) => false,
        }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// An invalid value that no earlier check can find.
    #[error(transparent)]
    Option(InvalidOption),
    #[error("no username is configured")]
    NoUsername,
    #[error("no private key and no agent is configured")]
    NoCredential,
    #[error(transparent)]
    Key(KeyError),
    /// The host name cannot be resolved.
    #[error("{0}")]
    Resolve(#[source] SharedIoError),
    #[error("{0}")]
    Network(#[source] SharedIoError),
    /// This machine did not send the connection request: it has no route, or forbids the address.
    #[error("{0}")]
    NotSent(#[source] SharedIoError),
    #[error("no response within {}", humantime::format_duration(*limit))]
    TimedOut { limit: Duration },
    /// Other connections used all slots until the deadline: no connection was attempted.
    #[error("no free connection slot within {}", humantime::format_duration(*limit))]
    HandshakeQueueTimeout { limit: Duration },
    /// The received data is not SSH; it is in the evidence.
    #[error("the peer is not an SSH server")]
    NotSsh,
    /// The connection ended. The text has the reason, if the peer reported one.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server temporarily rejects connections (MaxStartups, or a penalty for the address of the Terraform host).
    #[error("the server rejects new connections")]
    TooBusy,
    /// A connected peer sent nothing for this time.
    #[error("no response from the {from} within {}", humantime::format_duration(*limit))]
    NoResponse { from: Peer, limit: Duration },
    /// The session was ended, because the server tried to open this number of channels to the provider.
    #[error("the SSH server opened {0} channels that were not requested")]
    ServerOpensChannels(usize),
    #[error("no common {kind} algorithm")]
    NoCommonAlgorithm { kind: String, ours: Vec<String>, theirs: Vec<String> },
    #[error(transparent)]
    HostKey(Box<HostKeyRefusal>),
    /// The server refused every credential.
    #[error("the server rejected the user or the key")]
    AuthRefused {
        /// The offered keys: type and fingerprint.
        offered: Vec<String>,
        /// The number of keys of the agent that were not offered, because the server would end the session.
        not_offered: usize,
        certificates: Vec<OfferedCertificate>,
        /// The authentication methods that the server still accepts, with its names for them.
        remaining: Vec<String>,
    },
    /// The key was accepted, but the server requires a further factor.
    #[error("the server requires a further factor: {wanted}")]
    MoreFactors { wanted: String },
    #[error("too many authentication failures")]
    TooManyAttempts,
    #[error("the server refused the channel ({reason})")]
    ChannelRefused { reason: ChannelRefusal, text: String },
    #[error(transparent)]
    Command(CommandError),
    /// The wrapper's end of an open tunnel was closed.
    #[error("the wrapper closed the connection")]
    WrapperClosed,
    /// The server at the wrapper's address is not a gRPC server. The received data is in the evidence.
    #[error("the peer is not a gRPC server")]
    NotAWrapper,
    /// The agent cannot be used, or has no matching key.
    #[error("ssh-agent at {socket}: {problem}")]
    Agent { socket: String, problem: String },
    /// The agent has no key that `ssh.agent.identity` selects.
    #[error("ssh-agent at {socket}: it has no key that matches {identity:?}")]
    AgentKey { socket: String, identity: String },
    /// Any other error of the SSH library.
    #[error("{0}")]
    Protocol(String),
}

/// A user certificate that the server did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedCertificate {
    pub id: String,
    /// The fingerprint of the authority that signed it.
    pub authority: String,
    /// Possible causes that the certificate shows, as clauses: "expired at …".
    pub problems: Vec<String>,
}

/// A peer that does not respond.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Peer {
    /// The SSH server of an established session.
    #[error("server")]
    Server,
    /// The agent may hang, or wait for a confirmation of the user.
    #[error("ssh-agent at {socket}")]
    Agent { socket: String },
    /// The program that accepted the connection to the wrapper's address.
    #[error("wrapper")]
    Wrapper,
}

/// The server's reason for refusing a channel (RFC 4254, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefusal {
    #[error("administratively prohibited")]
    Prohibited,
    #[error("connect failed")]
    ConnectFailed,
    #[error("unknown channel type")]
    UnknownType,
    #[error("resource shortage")]
    ResourceShortage,
}

/// What was received besides the cause.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Observations {
    /// The first received bytes, 512 at most.
    pub received: Vec<u8>,
    /// The last text that the SSH server sent during a login that failed.
    pub banner: Option<String>,
    /// The certificate of the login, if it lacks the permission to forward and the server refused a channel.
    pub certificate: Option<String>,
    /// The last lines that a command wrote to its standard error.
    pub stderr: Option<String>,
    /// The certificate beside the file of the refused key, which `certificate_path` does not name.
    pub unused_certificate: Option<String>,
    /// The host key was accepted without a check (`insecure_ignore_host_key`).
    pub is_unverified: bool,
}

/// Shows the received bytes as text.
impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observations")
            .field("received", &format_args!("{}", self.received.escape_ascii()))
            .field("banner", &self.banner)
            .field("certificate", &self.certificate)
            .field("stderr", &self.stderr)
            .field("unused_certificate", &self.unused_certificate)
            .finish()
    }
}
