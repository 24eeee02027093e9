//! The errors of connections and calls, as `grit_ssh::error` and `client::error` have them.

use std::{io, time::Duration};

use grit_provider::testing::transport::{
    Attribute, Cause, ChannelRefusal, CommandError, ConnectionMethod, HostKeyRefusal, HostKeyVerdict,
    InvalidOption, KeyError, Peer, Phase, Route, TransportError,
};
use tonic::Code;

use crate::simulation::origin::Shown;

/// An error of all calls to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Failure {
    /// A file of `ssh.known_hosts` cannot be read any more.
    InvalidOption,
    /// The variable with the user name is not set in this run.
    NoUsername,
    NoCredential,
    /// The file of the key is gone.
    Key,
    Agent,
    AgentWithoutKey,
    AgentSilent,
    QueueTimeout,
    CommandNotStarted,
    CommandEnded,
    /// The name of a jump host does not exist.
    JumpHostUnknown,
    NameUnknown,
    NameServiceFails,
    ConnectionRefused,
    HostUnreachable,
    /// There is no route from the machine of Terraform.
    NoRoute,
    LocalFirewall,
    ConnectionReset,
    NotSsh,
    TooBusy,
    NoCommonAlgorithm,
    HandshakeTimeout,
    HandshakeLost,
    HostKeyChanged,
    HostKeyUnknown,
    HostKeyRevoked,
    AuthorityRevoked,
    BadCertificate,
    LoginRejected,
    MoreFactors,
    TooManyAttempts,
    LoginTimeout,
    Prohibited,
    /// The socket of the wrapper does not exist.
    ConnectFailed,
    ResourceShortage,
    UnknownChannel,
    ServerSilent,
    ServerOpensChannels,
    NotAWrapper,
    WrapperSilent,
    WrapperCloses,
    Protocol,
    Unavailable,
    Exhausted,
    Aborted,
    Internal,
    PermissionDenied,
    Unimplemented,
    InvalidArgument,
    DeadlineExceeded,
    /// Of a proxy before the wrapper.
    Unauthenticated,
    Unknown,
}

impl Failure {
    pub(in crate::simulation) const ALL: [Self; 52] = [
        Self::InvalidOption,
        Self::NoUsername,
        Self::NoCredential,
        Self::Key,
        Self::Agent,
        Self::AgentWithoutKey,
        Self::AgentSilent,
        Self::QueueTimeout,
        Self::CommandNotStarted,
        Self::CommandEnded,
        Self::JumpHostUnknown,
        Self::NameUnknown,
        Self::NameServiceFails,
        Self::ConnectionRefused,
        Self::HostUnreachable,
        Self::NoRoute,
        Self::LocalFirewall,
        Self::ConnectionReset,
        Self::NotSsh,
        Self::TooBusy,
        Self::NoCommonAlgorithm,
        Self::HandshakeTimeout,
        Self::HandshakeLost,
        Self::HostKeyChanged,
        Self::HostKeyUnknown,
        Self::HostKeyRevoked,
        Self::AuthorityRevoked,
        Self::BadCertificate,
        Self::LoginRejected,
        Self::MoreFactors,
        Self::TooManyAttempts,
        Self::LoginTimeout,
        Self::Prohibited,
        Self::ConnectFailed,
        Self::ResourceShortage,
        Self::UnknownChannel,
        Self::ServerSilent,
        Self::ServerOpensChannels,
        Self::NotAWrapper,
        Self::WrapperSilent,
        Self::WrapperCloses,
        Self::Protocol,
        Self::Unavailable,
        Self::Exhausted,
        Self::Aborted,
        Self::Internal,
        Self::PermissionDenied,
        Self::Unimplemented,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::Unauthenticated,
        Self::Unknown,
    ];

    /// How long a call takes until it fails. `None`: a round trip.
    pub(super) fn takes(self) -> Option<Duration> {
        match self {
            Self::QueueTimeout | Self::HandshakeTimeout | Self::LoginTimeout => Some(Duration::from_secs(10)),
            Self::AgentSilent | Self::ServerSilent | Self::WrapperSilent => Some(Duration::from_secs(15)),
            _ => None,
        }
    }

    /// The error of an attempt to connect, which took `limit`.
    pub(super) fn error(self, route: &Route, limit: Duration) -> TransportError {
        let (phase, cause) = self.cause(limit);
        let mut route = route.clone();
        if self == Self::JumpHostUnknown {
            (route.method, route.hop) = (ConnectionMethod::ProxyJump, Some(1));
        }
        TransportError::at(phase, route, cause)
    }

    /// Whether a proxy responds, with a gRPC status.
    pub(super) fn is_response(self) -> bool {
        self.code().is_some()
    }

    /// Whether no host responds, as runner_drain (Hosts that are gone) has it: "Connection refused, host unreachable, no response to the TCP
    /// connection (at least 1 s), or a host name that does not exist". `None`: the attempt was not made.
    pub(super) fn is_absent(self) -> Option<bool> {
        match self {
            Self::QueueTimeout => None,
            Self::NameUnknown | Self::ConnectionRefused | Self::HostUnreachable => Some(true),
            _ => Some(false),
        }
    }

    /// What it shows of the host, as runner_drain (Hosts that are gone) has it.
    pub(super) fn shows(self) -> Shown {
        match self {
            Self::InvalidOption
            | Self::NoUsername
            | Self::NoCredential
            | Self::Key
            | Self::Agent
            | Self::AgentWithoutKey
            | Self::AgentSilent
            | Self::CommandNotStarted => Shown::NotAttempted,
            Self::LoginRejected
            | Self::MoreFactors
            | Self::TooManyAttempts
            | Self::LoginTimeout
            | Self::Prohibited
            | Self::ResourceShortage
            | Self::UnknownChannel => Shown::Refused,
            Self::ConnectFailed
            | Self::ServerSilent
            | Self::ServerOpensChannels
            | Self::NotAWrapper
            | Self::WrapperSilent
            | Self::WrapperCloses
            | Self::Protocol => Shown::Verified,
            _ if self.is_response() => Shown::Refused,
            _ => Shown::Nothing,
        }
    }

    /// Whether another attempt must not follow: a server blocks an address after repeated failures.
    pub(super) fn is_final(self) -> bool {
        matches!(
            self,
            Self::HostKeyChanged
                | Self::HostKeyUnknown
                | Self::HostKeyRevoked
                | Self::AuthorityRevoked
                | Self::BadCertificate
                | Self::LoginRejected
                | Self::MoreFactors
                | Self::TooManyAttempts
        )
    }

    pub(super) fn code(self) -> Option<Code> {
        Some(match self {
            Self::Unavailable => Code::Unavailable,
            Self::Exhausted => Code::ResourceExhausted,
            Self::Aborted => Code::Aborted,
            Self::Internal => Code::Internal,
            Self::PermissionDenied => Code::PermissionDenied,
            Self::Unimplemented => Code::Unimplemented,
            Self::InvalidArgument => Code::InvalidArgument,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Unknown => Code::Unknown,
            _ => return None,
        })
    }

    fn cause(self, limit: Duration) -> (Phase, Cause) {
        let network = |kind: io::ErrorKind| Cause::Network(io::Error::from(kind).into());
        let resolve = |text: &str| Cause::Resolve(io::Error::other(text).into());
        let host_key = |verdict| {
            Cause::HostKey(Box::new(HostKeyRefusal {
                verdict,
                key_type: "ssh-ed25519".to_owned(),
                fingerprint: "SHA256:new".to_owned(),
                expected: Vec::new(),
                line: String::new(),
                searched: Vec::new(),
                problem: None,
            }))
        };
        let refused = |reason| Cause::ChannelRefused { reason, text: "open failed".to_owned() };
        match self {
            Self::InvalidOption => {
                let (attribute, problem) = (Attribute::Ssh("known_hosts"), "it cannot be read".to_owned());
                (Phase::Setup, Cause::Option(InvalidOption { attribute, problem, placeholder: None }))
            }
            Self::NoUsername => (Phase::Setup, Cause::NoUsername),
            Self::NoCredential => (Phase::Setup, Cause::NoCredential),
            Self::Key => {
                let (path, problem) = ("/key".to_owned(), "No such file or directory".to_owned());
                (Phase::Setup, Cause::Key(KeyError::Unreadable { path, problem }))
            }
            Self::Agent => {
                let (socket, problem) = ("/agent".to_owned(), "it has no key".to_owned());
                (Phase::Auth, Cause::Agent { socket, problem })
            }
            Self::AgentWithoutKey => {
                let (socket, identity) = ("/agent".to_owned(), "deploy".to_owned());
                (Phase::Auth, Cause::AgentKey { socket, identity })
            }
            Self::AgentSilent => {
                let from = Peer::Agent { socket: "/agent".to_owned() };
                (Phase::Auth, Cause::NoResponse { from, limit })
            }
            Self::QueueTimeout => (Phase::Setup, Cause::HandshakeQueueTimeout { limit }),
            Self::CommandNotStarted => {
                let (program, source) = ("ssh".to_owned(), io::Error::from(io::ErrorKind::NotFound).into());
                (Phase::Command, Cause::Command(CommandError::NotStarted { program, source }))
            }
            Self::CommandEnded => {
                let (program, status) = ("ssh".to_owned(), "exit status: 255".to_owned());
                (Phase::Command, Cause::Command(CommandError::Ended { program, status }))
            }
            Self::JumpHostUnknown | Self::NameUnknown => (Phase::Tcp, resolve("Name or service not known")),
            Self::NameServiceFails => (Phase::Tcp, resolve("Temporary failure in name resolution")),
            Self::ConnectionRefused => (Phase::Tcp, network(io::ErrorKind::ConnectionRefused)),
            Self::HostUnreachable => (Phase::Tcp, network(io::ErrorKind::HostUnreachable)),
            // The same kind of error as of a host that is gone.
            Self::NoRoute => {
                (Phase::Tcp, Cause::NotSent(io::Error::from(io::ErrorKind::HostUnreachable).into()))
            }
            Self::LocalFirewall => {
                (Phase::Tcp, Cause::NotSent(io::Error::from(io::ErrorKind::PermissionDenied).into()))
            }
            Self::ConnectionReset => (Phase::Tcp, network(io::ErrorKind::ConnectionReset)),
            Self::NotSsh => (Phase::Handshake, Cause::NotSsh),
            Self::TooBusy => (Phase::Handshake, Cause::TooBusy),
            Self::NoCommonAlgorithm => {
                let (kind, ours, theirs) = ("key exchange".to_owned(), Vec::new(), Vec::new());
                (Phase::Handshake, Cause::NoCommonAlgorithm { kind, ours, theirs })
            }
            Self::HandshakeTimeout => (Phase::Handshake, Cause::TimedOut { limit }),
            Self::HandshakeLost => (Phase::Handshake, Cause::Lost("reset by peer".to_owned())),
            Self::HostKeyChanged => (Phase::HostKey, host_key(HostKeyVerdict::Changed)),
            Self::HostKeyUnknown => (Phase::HostKey, host_key(HostKeyVerdict::Unknown)),
            Self::HostKeyRevoked => (Phase::HostKey, host_key(HostKeyVerdict::Revoked)),
            Self::AuthorityRevoked => (Phase::HostKey, host_key(HostKeyVerdict::RevokedAuthority)),
            Self::BadCertificate => (Phase::HostKey, host_key(HostKeyVerdict::BadCertificate)),
            Self::LoginRejected => {
                let (offered, certificates, remaining) = (Vec::new(), Vec::new(), Vec::new());
                (Phase::Auth, Cause::AuthRefused { offered, not_offered: 0, certificates, remaining })
            }
            Self::MoreFactors => {
                (Phase::Auth, Cause::MoreFactors { wanted: "keyboard-interactive".to_owned() })
            }
            Self::TooManyAttempts => (Phase::Auth, Cause::TooManyAttempts),
            Self::LoginTimeout => (Phase::Auth, Cause::TimedOut { limit }),
            Self::Prohibited => (Phase::Channel, refused(ChannelRefusal::Prohibited)),
            Self::ConnectFailed => (Phase::Channel, refused(ChannelRefusal::ConnectFailed)),
            Self::ResourceShortage => (Phase::Channel, refused(ChannelRefusal::ResourceShortage)),
            Self::UnknownChannel => (Phase::Channel, refused(ChannelRefusal::UnknownType)),
            Self::ServerSilent => (Phase::Call, Cause::NoResponse { from: Peer::Server, limit }),
            Self::ServerOpensChannels => (Phase::Call, Cause::ServerOpensChannels(10)),
            Self::NotAWrapper => (Phase::Call, Cause::NotAWrapper),
            Self::WrapperSilent => (Phase::Channel, Cause::NoResponse { from: Peer::Wrapper, limit }),
            Self::WrapperCloses => (Phase::Call, Cause::WrapperClosed),
            _ => (Phase::Call, Cause::Protocol("unexpected packet".to_owned())),
        }
    }
}
