//! The errors of a connection to a wrapper. [`crate::explain`] turns them into texts.

use std::{fmt, io, time::Duration};

use crate::{
    address::{HostPort, WrapperAddress},
    credential_facts::{KeyProgram, OfferedCertificate},
    settings::ConnectionMethod,
    user_files,
};

/// The phases of a connection, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Before anything is sent: options, keys, files.
    Setup,
    /// Starting the command of a command strategy.
    Command,
    /// Name resolution and the TCP connection.
    Tcp,
    /// SSH banner and key exchange.
    Handshake,
    /// Verification of the host key.
    HostKey,
    /// Authentication of the user.
    Auth,
    /// The channel to the wrapper's socket, or to the next hop.
    Channel,
    /// A call to the wrapper.
    Call,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "setup",
            Self::Command => "command",
            Self::Tcp => "TCP connection",
            Self::Handshake => "SSH handshake",
            Self::HostKey => "host key check",
            Self::Auth => "authentication",
            Self::Channel => "channel",
            Self::Call => "call",
        })
    }
}

/// The connection that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub method: ConnectionMethod,
    /// The SSH server: of the runner manager, or a jump host.
    pub host: HostPort,
    /// The user on that server, once it is known.
    pub username: Option<String>,
    /// The wrapper's address on the runner manager.
    pub wrapper: WrapperAddress,
    /// The number of the jump host, from 1; none for the runner manager.
    pub hop: Option<usize>,
    /// The next SSH server, if the error is about the connection from this server to that one.
    pub onward: Option<HostPort>,
    /// The number of `onward` as a jump host, from 1; none for the runner manager.
    pub onward_hop: Option<usize>,
}

#[cfg(test)]
impl Route {
    /// The route to a manager `mgr-2`.
    pub(crate) fn example(method: ConnectionMethod) -> Self {
        Self {
            method,
            host: "mgr-2".parse().unwrap(),
            username: Some("deploy".to_owned()),
            wrapper: "unix:///run/wrapper.sock".parse().unwrap(),
            hop: None,
            onward: None,
            onward_hop: None,
        }
    }
}

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
        matches!(self.cause, Cause::Lost(_) | Cause::NotAnswering { .. })
    }

    /// Whether the same attempt can succeed later without a change of the configuration.
    ///
    /// A rejected login is never retried: servers block an address after repeated failures.
    pub fn retryable(&self) -> bool {
        match &self.cause {
            Cause::Resolve(_)
            | Cause::Network(_)
            | Cause::TimedOut { .. }
            | Cause::Lost(_)
            | Cause::TooBusy
            | Cause::NotAnswering { .. }
            | Cause::AgentSilent { .. }
            | Cause::HandshakeQueueTimeout { .. }
            | Cause::WrapperClosed => true,
            // While a host boots, the socket does not exist yet, and sshd does not report which refusals are permanent.
            Cause::ChannelRefused { reason, .. } => *reason != ChannelRefusal::Prohibited,
            Cause::CommandEnded { .. } => true,
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
            | Cause::CommandNotStarted { .. }
            | Cause::NotAWrapper
            | Cause::Agent { .. }
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
    /// An established session received no data for this time.
    #[error("no data from the server for {}", humantime::format_duration(*silence))]
    NotAnswering { silence: Duration },
    /// The session was ended, because the server tried to open this number of channels to the provider.
    #[error("the SSH server opened {0} channels to the client")]
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
    #[error("the command cannot be started: {source}")]
    CommandNotStarted { program: String, source: SharedIoError },
    /// The wrapper's end of an open tunnel was closed.
    #[error("the wrapper closed the connection")]
    WrapperClosed,
    /// The server at the wrapper's address is not a gRPC server. The received data is in the evidence.
    #[error("the peer is not a gRPC server")]
    NotAWrapper,
    /// The agent cannot be used, or has no matching key.
    #[error("ssh-agent at {socket}: {problem}")]
    Agent { socket: String, problem: String },
    /// The agent did not respond: it may hang, or wait for a confirmation of the user.
    #[error("ssh-agent at {socket} did not respond within {}", humantime::format_duration(*limit))]
    AgentSilent { socket: String, limit: Duration },
    /// The command of `proxy_command` or `ssh_command` exited.
    #[error("the command exited: {status}")]
    CommandEnded { program: String, status: String },
    /// Any other error of the SSH library.
    #[error("{0}")]
    Protocol(String),
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

/// Why a host key was rejected.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the host key is {verdict}")]
pub struct HostKeyRefusal {
    pub verdict: HostKeyVerdict,
    /// The type of the host's key, such as `ssh-ed25519`.
    pub key_type: String,
    /// The fingerprint of the host's key: `SHA256:…`.
    pub fingerprint: String,
    /// The keys known for this host, the trusted authorities, or the revoked key.
    pub expected: Vec<ExpectedKey>,
    /// The known_hosts line that would accept the host's key.
    pub line: String,
    /// The sources that were searched, such as `/root/.ssh/known_hosts` or `ssh.known_hosts`, each with its content or its error.
    pub searched: Vec<String>,
    /// Why the host certificate is not accepted.
    pub problem: Option<String>,
}

/// The result of a host key check that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyVerdict {
    /// No source has a key for this host.
    #[error("unknown")]
    Unknown,
    /// The sources have only other keys for this host.
    #[error("different from the expected key")]
    Changed,
    /// A `@revoked` line has this key.
    #[error("revoked")]
    Revoked,
    /// A `@revoked` line has the key of the authority that signed the host certificate.
    #[error("in a host certificate of a revoked authority")]
    RevokedAuthority,
    /// A host certificate that has expired, is for another host, or is not signed by a trusted authority.
    #[error("in a host certificate that is not accepted")]
    BadCertificate,
}

/// A key that would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedKey {
    pub key_type: String,
    pub fingerprint: String,
    pub source: KeyOrigin,
}

/// Why a private key cannot be used. Contains no part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{path} cannot be read: {problem}")]
    Unreadable { path: String, problem: String },
    #[error("the key of {source_name} is encrypted, and no passphrase is configured")]
    NoPassphrase { source_name: String },
    #[error("the passphrase for the key of {source_name} is wrong")]
    WrongPassphrase { source_name: String, program: KeyProgram },
    /// The key derivation takes more time or memory than the provider allows.
    #[error("the KDF cost of the key of {source_name} ({asked}) exceeds the limit ({limit})")]
    TooCostly { source_name: String, asked: String, limit: String, program: KeyProgram },
    #[error("the certificate {source_name} cannot be used: {problem}")]
    Certificate { source_name: String, problem: String },
    #[error("the key of {source_name} ({format}) cannot be used: {problem}")]
    Unusable { source_name: String, format: String, problem: String, program: KeyProgram },
}

/// The attribute that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Of the entry of the runner manager.
    Manager(&'static str),
    /// Of `ssh` in the provider block.
    Ssh(&'static str),
    /// One element of a list in `ssh`.
    SshElement(&'static str, usize),
    /// Of `ssh` in the provider block, but set by its environment variable.
    Variable(&'static str),
    /// Of one SSH server in `ssh.proxy_jump`, counted from 0.
    Hop(usize, &'static str),
}

/// As users write it: `ssh.host_keys[1]`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(name) => f.write_str(name),
            Self::Ssh(name) => write!(f, "ssh.{name}"),
            Self::Variable(name) => write!(f, "GRIT_SSH_{}", name.to_uppercase()),
            Self::SshElement(name, index) => write!(f, "ssh.{name}[{index}]"),
            Self::Hop(index, name) => write!(f, "ssh.proxy_jump[{index}].{name}"),
        }
    }
}

/// Where a known host key was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// An attribute that holds the key or its fingerprint.
    Attribute(Attribute),
    /// A line of a known_hosts file, as `file:line`.
    Line(String),
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(attribute) => attribute.fmt(f),
            Self::Line(line) => f.write_str(line),
        }
    }
}

/// An invalid value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{attribute}: {problem}")]
pub struct InvalidOption {
    pub attribute: Attribute,
    /// Why the value is invalid, and what is accepted.
    pub problem: String,
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
}

/// Shows the received bytes as text.
impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observations")
            .field("received", &format_args!("{}", self.received.escape_ascii()))
            .field("banner", &self.banner)
            .field("certificate", &self.certificate)
            .field("stderr", &self.stderr)
            .finish()
    }
}

/// An I/O error that several waiters can share.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct SharedIoError {
    pub kind: io::ErrorKind,
    text: String,
}

impl From<io::Error> for SharedIoError {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), text: user_files::plain(&error) }
    }
}
