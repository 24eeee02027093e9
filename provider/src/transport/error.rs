//! What can go wrong on the way to a wrapper, with everything that was seen there.
//!
//! The words a user reads are chosen in [`crate::explain`]; here are the facts, sorted so that they can be chosen.

use crate::transport::{
    address::{HostPort, WrapperAddress},
    settings::ConnectionMethod,
    user_files,
};
use std::{fmt, io, time::Duration};

/// A part of the way, in the order in which they are passed.
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

/// What was tried: who wanted to go where, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `direct`, `proxy_jump`, `proxy_command` or `ssh_command`.
    pub method: ConnectionMethod,
    /// The SSH server that the error is about: the manager's, or a hop's.
    pub host: HostPort,
    /// The user of that server, once it is known.
    pub username: Option<String>,
    /// The wrapper's address on the manager.
    pub wrapper: WrapperAddress,
    /// The hop of a jump chain, counted from 1, when the error is about a hop.
    pub hop: Option<usize>,
    /// The SSH server behind this one, when the error is about the way there.
    pub onward: Option<HostPort>,
    /// The hop that `onward` is, counted from 1; none when it is the manager itself.
    pub onward_hop: Option<usize>,
}

#[cfg(test)]
impl Route {
    /// The route to a manager `mgr-2`, for tests.
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

/// A failure on the way to a wrapper.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{phase} to {}: {cause}", route.host)]
pub struct TransportError {
    /// Where on the way.
    pub phase: Phase,
    /// What was tried.
    pub route: Box<Route>,
    /// Why it failed, as exactly as can be known.
    pub cause: Cause,
    /// What else was seen.
    pub evidence: Box<Observations>,
}

impl TransportError {
    /// An error of which nothing more is known.
    pub(crate) fn at(phase: Phase, route: Route, cause: Cause) -> Self {
        Self { phase, route: Box::new(route), cause, evidence: Box::new(Observations::default()) }
    }

    /// The same error for the wrapper of another manager behind the same session.
    pub(crate) fn for_wrapper(mut self, wrapper: &WrapperAddress) -> Self {
        self.route.wrapper = wrapper.clone();
        self
    }

    /// Whether the session that met it is of no more use.
    pub(crate) fn is_end_of_session(&self) -> bool {
        matches!(self.cause, Cause::Lost(_) | Cause::NotAnswering { .. })
    }

    /// Whether the same attempt can succeed later without anybody changing the configuration.
    ///
    /// A refused authentication never is: servers lock an address out that tries again and again.
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
            // A host that boots has no socket yet, and sshd does not say which refusals are of policy.
            Cause::ChannelRefused { reason, .. } => *reason != ChannelRefusal::Prohibited,
            Cause::CommandEnded { .. } => true,
            Cause::Option(_)
            | Cause::NoUsername
            | Cause::NoCredential
            | Cause::Key(_)
            | Cause::NotSsh
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

/// Why a phase failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// An option or an entry of the map is wrong, which only shows now.
    #[error(transparent)]
    Option(InvalidOption),
    #[error("no username is configured")]
    NoUsername,
    #[error("no private key and no agent is configured")]
    NoCredential,
    #[error(transparent)]
    Key(KeyError),
    /// The host's name has no address.
    #[error("{0}")]
    Resolve(#[source] SharedIoError),
    /// The connection, or a call on its socket.
    #[error("{0}")]
    Network(#[source] SharedIoError),
    #[error("no response within {}", humantime::format_duration(*limit))]
    TimedOut { limit: Duration },
    /// Other connections took all places until the end of this one's time: nothing was tried.
    #[error("no free connection slot within {}", humantime::format_duration(*limit))]
    HandshakeQueueTimeout { limit: Duration },
    /// The other side speaks, but not SSH. What it said is in the evidence.
    #[error("the peer is not an SSH server")]
    NotSsh,
    /// The connection ended. The text tells how, as far as the peer said anything.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server turns connections away for now (MaxStartups, or a penalty for our address).
    #[error("the server rejects new connections")]
    TooBusy,
    /// An established session stopped answering for this long.
    #[error("no data from the server for {}", humantime::format_duration(*silence))]
    NotAnswering { silence: Duration },
    #[error("no common {kind} algorithm")]
    NoCommonAlgorithm { kind: String, ours: Vec<String>, theirs: Vec<String> },
    #[error(transparent)]
    HostKey(Box<HostKeyRefusal>),
    /// The server refused every credential.
    #[error("the server rejected the user or the key")]
    AuthRefused {
        /// The keys that were offered: type and fingerprint.
        offered: Vec<String>,
        /// The methods that the server would still take, as it names them.
        remaining: Vec<String>,
    },
    /// The key was accepted, and the server asks for more than a key.
    #[error("the server requires a further factor: {wanted}")]
    MoreFactors { wanted: String },
    #[error("too many authentication failures")]
    TooManyAttempts,
    #[error("the server refused the channel ({reason})")]
    ChannelRefused { reason: ChannelRefusal, text: String },
    #[error("the command cannot be started: {source}")]
    CommandNotStarted { program: String, source: SharedIoError },
    /// The tunnel stands, and the wrapper's end of it was closed.
    #[error("the wrapper closed the connection")]
    WrapperClosed,
    /// What answers at the wrapper's address is no gRPC server. What it said is in the evidence.
    #[error("the peer is not a gRPC server")]
    NotAWrapper,
    /// The agent cannot be asked, or holds no key that fits.
    #[error("ssh-agent at {socket}: {problem}")]
    Agent { socket: String, problem: String },
    /// The agent hangs, or waits for a hand. Unlike a refusal this may pass.
    #[error("ssh-agent at {socket} did not respond within {}", humantime::format_duration(*limit))]
    AgentSilent { socket: String, limit: Duration },
    /// The command of a command strategy ended.
    #[error("the command exited: {status}")]
    CommandEnded { program: String, status: String },
    /// Anything else that the SSH layer reports.
    #[error("{0}")]
    Protocol(String),
}

/// The reason of a channel refusal, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelRefusal {
    Prohibited,
    ConnectFailed,
    UnknownType,
    ResourceShortage,
}

impl fmt::Display for ChannelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prohibited => "administratively prohibited",
            Self::ConnectFailed => "connect failed",
            Self::UnknownType => "unknown channel type",
            Self::ResourceShortage => "resource shortage",
        })
    }
}

/// Why a host key was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the host key is {verdict}")]
pub struct HostKeyRefusal {
    pub verdict: HostKeyVerdict,
    /// The type of the key that the host showed, as `ssh-ed25519`.
    pub key_type: String,
    /// Its fingerprint, as `SHA256:…`.
    pub fingerprint: String,
    /// What was expected instead: type, fingerprint and source (`file:line`, or the option's name) of each key known for this host.
    pub expected: Vec<ExpectedKey>,
    /// The line that would make this key known.
    pub line: String,
    /// Where keys were looked for, as `/root/.ssh/known_hosts` or `ssh.known_hosts`, with a note when a source could not be read.
    pub searched: Vec<String>,
    /// What is wrong with a certificate.
    pub problem: Option<String>,
}

/// How a host key was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyVerdict {
    /// No source knows this host.
    Unknown,
    /// Sources know this host with other keys.
    Changed,
    /// A `@revoked` line names this key.
    Revoked,
    /// A host certificate that is expired, of another host, or signed by nobody trusted.
    BadCertificate,
}

impl fmt::Display for HostKeyVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Changed => "different from the expected key",
            Self::Revoked => "revoked",
            Self::BadCertificate => "in a host certificate that is not accepted",
        })
    }
}

/// A key that would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedKey {
    pub key_type: String,
    pub fingerprint: String,
    pub source: KeyOrigin,
}

/// Why a private key cannot be used. Never holds a part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{path} cannot be read: {problem}")]
    Unreadable { path: String, problem: String },
    #[error("the key of {source_name} is encrypted, and no passphrase is configured")]
    NoPassphrase { source_name: String },
    #[error("the passphrase for the key of {source_name} is wrong")]
    WrongPassphrase { source_name: String },
    /// Its encryption was made to be slow, or to take much memory, beyond what anybody needs.
    #[error("the KDF cost of the key of {source_name} ({asked}) exceeds the limit ({limit})")]
    TooCostly { source_name: String, asked: String, limit: String },
    #[error("the certificate {source_name} cannot be used: {problem}")]
    Certificate { source_name: String, problem: String },
    #[error("the key of {source_name} ({format}) cannot be used: {problem}")]
    Unusable { source_name: String, format: String, problem: String },
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
    /// Of one SSH server in `ssh.proxy_jump`, counted from 0.
    Hop(usize, &'static str),
}

/// As users write it: `ssh.host_keys[1]`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(name) => f.write_str(name),
            Self::Ssh(name) => write!(f, "ssh.{name}"),
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

/// An option that cannot be used, with the attribute that holds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{attribute}: {problem}")]
pub struct InvalidOption {
    pub attribute: Attribute,
    /// What is wrong, and what is accepted.
    pub problem: String,
}

/// What was seen besides the cause.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Observations {
    /// The first bytes received, 512 at most; of interest when they were not the protocol.
    pub received: Vec<u8>,
    /// The reason of the server's disconnect message, or how the session ended.
    pub disconnect: Option<String>,
    /// The banner that the server shows before authentication.
    pub banner: Option<String>,
    /// The host key: type and fingerprint.
    pub host_key: Option<String>,
    /// The last lines that a command wrote to its standard error.
    pub stderr: Option<String>,
}

/// Shows the received bytes as text.
impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observations")
            .field("received", &format_args!("{}", self.received.escape_ascii()))
            .field("disconnect", &self.disconnect)
            .field("banner", &self.banner)
            .field("host_key", &self.host_key)
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

impl From<&io::Error> for SharedIoError {
    fn from(error: &io::Error) -> Self {
        Self { kind: error.kind(), text: user_files::plain(error) }
    }
}

impl From<io::Error> for SharedIoError {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}
