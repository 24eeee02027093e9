//! What a failed connection means for the host.
//!
//! It decides whether a host can be treated as terminated (`on_unreachable`, `GRIT_ASSUME_TERMINATED`), and whether a refresh reports drift
//! or that it could not check.

use std::io::ErrorKind;

use super::tcp::shows_absence;
use crate::{
    command::error::CommandError,
    error::{Cause, ChannelRefusal, Peer, TransportError},
    limits::NO_RESPONSE,
    route::{Phase, Route},
    session::is_unknown_name,
    trust::refusal::HostKeyVerdict,
};

/// The state of a host after a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachability {
    /// No host responds: connection refused, host unreachable, no response, unknown host name.
    Absent,
    /// A server responded at the host's address.
    Answered,
    /// The host responded, but its host key or the login was rejected.
    Refused,
    /// The attempt failed before it reached the host: invalid credentials, files or commands, no route from this machine, or a jump host.
    Unknown,
}

/// Whether a user's statement that the host is gone can be true after a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    /// It counts, and the error offers it.
    Offered,
    /// It counts. The error does not offer it: a server responds that may be the host, or the network of this machine may have failed.
    Counts,
    /// It does not count: the host responds and is verified, or a value of this machine must be corrected before anything is known of the host.
    Contradicted,
}

impl TransportError {
    /// Whether the attempt had a slot, and time for a response. Otherwise it shows nothing.
    pub fn was_tried(&self) -> bool {
        match &self.cause {
            Cause::HandshakeQueueTimeout { .. } => false,
            Cause::TimedOut { limit } => self.phase != Phase::Tcp || *limit >= NO_RESPONSE,
            _ => true,
        }
    }

    /// The reachability of the runner manager's host after this error.
    pub fn reachability(&self) -> Reachability {
        self.shows().0
    }

    /// Whether the runner manager's host can be gone, if the user states this.
    pub fn confirmation(&self) -> Confirmation {
        self.shows().1
    }

    /// Whether the runner manager's host was reached, and its host key verified.
    pub fn is_of_verified_host(&self) -> bool {
        let Route { method, hop, .. } = &*self.route;
        self.phase >= Phase::Auth && hop.is_none() && !method.runs_command() && !self.evidence.is_unverified
    }

    fn shows(&self) -> (Reachability, Confirmation) {
        use Confirmation::{Contradicted, Counts, Offered};
        let route = &*self.route;
        let (host, confirmation) = self.cause_shows();
        if route.hop.is_some() {
            // What a jump host reports about the next host is a text, and depends on its program.
            let confirmation = match &self.cause {
                Cause::HostKey(_) => Counts,
                Cause::ChannelRefused { reason: ChannelRefusal::ResourceShortage, .. } => Offered,
                _ => confirmation,
            };
            return (Reachability::Unknown, confirmation);
        }
        let is_of_host = match &self.cause {
            Cause::WrapperClosed
            | Cause::NoResponse { from: Peer::Server | Peer::Wrapper, .. }
            | Cause::AuthRefused { .. }
            | Cause::HostKey(_) => true,
            _ => !route.method.runs_command() || !self.evidence.received.is_empty(),
        };
        if is_of_host {
            return (host, confirmation);
        }
        // The command, an intermediate server, or the host may have failed.
        let is_rejected = |text: &String| LOGIN_REJECTED.iter().any(|words| text.contains(words));
        let confirmation = match confirmation {
            Contradicted => Contradicted,
            _ if self.evidence.stderr.as_ref().is_some_and(is_rejected) => Counts,
            Offered | Counts => Offered,
        };
        (Reachability::Unknown, confirmation)
    }

    /// What each cause shows on a direct connection.
    fn cause_shows(&self) -> (Reachability, Confirmation) {
        use Confirmation::{Contradicted, Counts, Offered};
        use Reachability::{Absent, Answered, Refused, Unknown};
        match &self.cause {
            Cause::Resolve(error) if is_unknown_name(&error.to_string()) => (Absent, Offered),
            // The name service may have failed.
            Cause::Resolve(_) => (Unknown, Counts),
            Cause::NotSent(_) => (Unknown, Counts),
            Cause::Network(error) => match error.kind {
                kind if shows_absence(kind) => (Absent, Offered),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => (Answered, Counts),
                _ => (Unknown, Counts),
            },
            Cause::TimedOut { .. } => match self.phase {
                Phase::Tcp if self.was_tried() => (Absent, Offered),
                Phase::Setup | Phase::Tcp => (Unknown, Counts),
                Phase::Command => (Unknown, Offered),
                _ => (Answered, self.after_response()),
            },
            Cause::Lost(_)
            | Cause::NoResponse { from: Peer::Server, .. }
            | Cause::ServerOpensChannels(_)
            | Cause::Protocol(_) => (Answered, self.after_response()),
            Cause::NotSsh | Cause::NoCommonAlgorithm { .. } => (Answered, Counts),
            Cause::TooBusy => (Refused, Counts),
            // Another host may have the address.
            Cause::HostKey(refusal) if refusal.verdict == HostKeyVerdict::Changed => (Refused, Offered),
            Cause::HostKey(_) => (Refused, Counts),
            Cause::AuthRefused { .. } | Cause::MoreFactors { .. } | Cause::TooManyAttempts => {
                (Refused, self.verified())
            }
            Cause::ChannelRefused { reason, .. } => match reason {
                ChannelRefusal::Prohibited | ChannelRefusal::UnknownType => (Refused, self.verified()),
                ChannelRefusal::ResourceShortage => (Answered, self.verified()),
                // The runner may never have started.
                ChannelRefusal::ConnectFailed => (Answered, Offered),
            },
            Cause::NoResponse { from: Peer::Wrapper, .. } | Cause::WrapperClosed | Cause::NotAWrapper => {
                (Answered, Offered)
            }
            Cause::HandshakeQueueTimeout { .. } => (Unknown, Counts),
            Cause::Command(CommandError::Ended { .. }) => (Unknown, Offered),
            Cause::Command(CommandError::NotStarted { .. })
            | Cause::Option(_)
            | Cause::NoUsername
            | Cause::NoCredential
            | Cause::Key(_)
            | Cause::Agent { .. }
            | Cause::AgentKey { .. }
            | Cause::NoResponse { from: Peer::Agent { .. }, .. } => (Unknown, Contradicted),
        }
    }

    /// After a response of the SSH server. Its wrapper, which the login does not show, may never have started.
    fn after_response(&self) -> Confirmation {
        match self.phase {
            Phase::Auth => self.verified(),
            Phase::Channel | Phase::Call => Confirmation::Offered,
            Phase::Setup | Phase::Command | Phase::Tcp | Phase::Handshake | Phase::HostKey => {
                Confirmation::Counts
            }
        }
    }

    /// After the host key was verified, or accepted without a check.
    fn verified(&self) -> Confirmation {
        if self.evidence.is_unverified { Confirmation::Counts } else { Confirmation::Contradicted }
    }
}

/// What `ssh`, as the command of a connection, prints when a server is there and rejects the login.
const LOGIN_REJECTED: [&str; 2] = ["Permission denied", "Host key verification failed"];

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;
    use crate::{
        Attribute, CommandError, ConnectionMethod, HostKeyRefusal, HostKeyVerdict, HostPort, InvalidOption,
        KeyError, Route,
    };

    fn network(kind: ErrorKind) -> Cause {
        Cause::Network(io::Error::from(kind).into())
    }

    fn not_sent(kind: ErrorKind) -> Cause {
        Cause::NotSent(io::Error::from(kind).into())
    }

    fn resolve(text: &str) -> Cause {
        Cause::Resolve(io::Error::other(text).into())
    }

    fn timed_out() -> Cause {
        Cause::TimedOut { limit: Duration::from_secs(1) }
    }

    /// What each error shows about the host of a direct connection, and whether the user's statement that it is gone counts.
    #[test]
    fn each_cause_shows_absence_an_answer_or_nothing() {
        use ChannelRefusal::{ConnectFailed, Prohibited, ResourceShortage, UnknownType};
        use Confirmation::{Contradicted, Counts, Offered};
        use Reachability::{Absent, Answered, Refused, Unknown};
        let limit = Duration::from_secs(1);
        let cut_off = || Cause::TimedOut { limit: Duration::from_millis(900) };
        let lost = || Cause::Lost("closed".to_owned());
        let silent = |from| Cause::NoResponse { from, limit };
        let agent = || "/agent".to_owned();
        let protocol = || Cause::Protocol("unexpected packet".to_owned());
        let opens = || Cause::ServerOpensChannels(8);
        let channel = |reason| Cause::ChannelRefused { reason, text: String::new() };
        let option = InvalidOption::new(Attribute::Ssh("host_keys"), "wrong".to_owned());
        let not_started = CommandError::NotStarted {
            program: "ssh".into(),
            source: io::Error::from(ErrorKind::NotFound).into(),
        };
        let ended = CommandError::Ended { program: "ssh".into(), status: "exit status 255".into() };
        let auth_refused =
            Cause::AuthRefused { offered: vec![], not_offered: 0, certificates: vec![], remaining: vec![] };
        let no_algorithm = Cause::NoCommonAlgorithm { kind: String::new(), ours: vec![], theirs: vec![] };
        let no_passphrase = KeyError::NoPassphrase { source_name: "ssh.private_key".to_owned() };
        for (phase, cause, host, confirmation) in [
            (Phase::Tcp, network(ErrorKind::ConnectionRefused), Absent, Offered),
            (Phase::Tcp, network(ErrorKind::HostUnreachable), Absent, Offered),
            (Phase::Tcp, network(ErrorKind::TimedOut), Absent, Offered),
            (Phase::Tcp, timed_out(), Absent, Offered),
            (Phase::Tcp, resolve("Name or service not known"), Absent, Offered),
            // The network of this machine.
            (Phase::Tcp, resolve("Temporary failure in name resolution"), Unknown, Counts),
            (Phase::Tcp, resolve("System error"), Unknown, Counts),
            (Phase::Tcp, resolve("Memory allocation failure"), Unknown, Counts),
            (Phase::Tcp, not_sent(ErrorKind::HostUnreachable), Unknown, Counts),
            (Phase::Tcp, not_sent(ErrorKind::NetworkUnreachable), Unknown, Counts),
            (Phase::Tcp, not_sent(ErrorKind::PermissionDenied), Unknown, Counts),
            (Phase::Tcp, not_sent(ErrorKind::InvalidInput), Unknown, Counts),
            (Phase::Tcp, network(ErrorKind::NetworkUnreachable), Unknown, Counts),
            (Phase::Tcp, network(ErrorKind::PermissionDenied), Unknown, Counts),
            // No attempt was made.
            (Phase::Tcp, cut_off(), Unknown, Counts),
            (Phase::Setup, Cause::HandshakeQueueTimeout { limit }, Unknown, Counts),
            (Phase::Setup, timed_out(), Unknown, Counts),
            // A server responds. Its host key is not verified.
            (Phase::Tcp, network(ErrorKind::ConnectionReset), Answered, Counts),
            (Phase::Handshake, Cause::NotSsh, Answered, Counts),
            (Phase::Handshake, no_algorithm, Answered, Counts),
            (Phase::Handshake, cut_off(), Answered, Counts),
            (Phase::Handshake, lost(), Answered, Counts),
            (Phase::Handshake, protocol(), Answered, Counts),
            (Phase::Handshake, opens(), Answered, Counts),
            (Phase::Handshake, Cause::TooBusy, Refused, Counts),
            (Phase::HostKey, host_key(HostKeyVerdict::Changed), Refused, Offered),
            (Phase::HostKey, host_key(HostKeyVerdict::Unknown), Refused, Counts),
            (Phase::HostKey, host_key(HostKeyVerdict::Revoked), Refused, Counts),
            (Phase::HostKey, host_key(HostKeyVerdict::RevokedAuthority), Refused, Counts),
            (Phase::HostKey, host_key(HostKeyVerdict::BadCertificate), Refused, Counts),
            // The host key is verified: the host is there.
            (Phase::Auth, auth_refused, Refused, Contradicted),
            (Phase::Auth, Cause::MoreFactors { wanted: "password".to_owned() }, Refused, Contradicted),
            (Phase::Auth, Cause::TooManyAttempts, Refused, Contradicted),
            (Phase::Auth, cut_off(), Answered, Contradicted),
            (Phase::Auth, lost(), Answered, Contradicted),
            (Phase::Auth, protocol(), Answered, Contradicted),
            (Phase::Auth, silent(Peer::Server), Answered, Contradicted),
            (Phase::Channel, channel(Prohibited), Refused, Contradicted),
            (Phase::Channel, channel(UnknownType), Refused, Contradicted),
            (Phase::Channel, channel(ResourceShortage), Answered, Contradicted),
            // The wrapper may never have started.
            (Phase::Channel, channel(ConnectFailed), Answered, Offered),
            (Phase::Channel, timed_out(), Answered, Offered),
            (Phase::Channel, silent(Peer::Wrapper), Answered, Offered),
            (Phase::Call, silent(Peer::Server), Answered, Offered),
            (Phase::Call, lost(), Answered, Offered),
            (Phase::Call, opens(), Answered, Offered),
            (Phase::Call, protocol(), Answered, Offered),
            (Phase::Call, Cause::WrapperClosed, Answered, Offered),
            (Phase::Call, Cause::NotAWrapper, Answered, Offered),
            // A value of this machine.
            (Phase::Setup, Cause::Option(option), Unknown, Contradicted),
            (Phase::Setup, Cause::NoUsername, Unknown, Contradicted),
            (Phase::Setup, Cause::NoCredential, Unknown, Contradicted),
            (Phase::Setup, Cause::Key(no_passphrase), Unknown, Contradicted),
            (Phase::Auth, Cause::Agent { socket: agent(), problem: String::new() }, Unknown, Contradicted),
            (
                Phase::Auth,
                Cause::AgentKey { socket: agent(), identity: String::new() },
                Unknown,
                Contradicted,
            ),
            (Phase::Auth, silent(Peer::Agent { socket: agent() }), Unknown, Contradicted),
            (Phase::Command, Cause::Command(not_started), Unknown, Contradicted),
            // A command.
            (Phase::Command, Cause::Command(ended), Unknown, Offered),
            (Phase::Command, timed_out(), Unknown, Offered),
        ] {
            let error = TransportError::at(phase, Route::example(ConnectionMethod::Direct), cause);
            assert_eq!((error.reachability(), error.confirmation()), (host, confirmation), "{error}");
        }
    }

    #[test]
    fn refused_login_without_verified_host_key_does_not_contradict() {
        let mut error =
            TransportError::at(Phase::Auth, Route::example(ConnectionMethod::Direct), Cause::TooManyAttempts);
        error.evidence.is_unverified = true;
        assert_eq!(error.confirmation(), Confirmation::Counts);
    }

    fn host_key(verdict: HostKeyVerdict) -> Cause {
        Cause::HostKey(Box::new(HostKeyRefusal {
            verdict,
            key_type: String::new(),
            fingerprint: String::new(),
            expected: vec![],
            line: String::new(),
            searched: vec![],
            problem: None,
        }))
    }

    #[test]
    fn jump_host_failure_leaves_target_presence_unknown() {
        let at_hop = |onward: Option<&str>, onward_hop, phase, cause| {
            let onward: Option<HostPort> = onward.map(|name| name.parse().unwrap());
            let route =
                Route { hop: Some(1), onward, onward_hop, ..Route::example(ConnectionMethod::ProxyJump) };
            TransportError::at(phase, route, cause)
        };
        let refused = |reason| Cause::ChannelRefused { reason, text: "Connection refused".to_owned() };
        use Confirmation::{Contradicted, Counts, Offered};
        for (onward, hop, phase, cause, confirmation) in [
            (None, None, Phase::Tcp, timed_out(), Offered),
            (None, None, Phase::Tcp, not_sent(ErrorKind::HostUnreachable), Counts),
            (None, None, Phase::HostKey, host_key(HostKeyVerdict::Changed), Counts),
            (None, None, Phase::Auth, Cause::TooManyAttempts, Contradicted),
            (Some("manager"), None, Phase::Channel, refused(ChannelRefusal::ConnectFailed), Offered),
            (Some("manager"), None, Phase::Channel, refused(ChannelRefusal::ResourceShortage), Offered),
            (Some("manager"), None, Phase::Channel, refused(ChannelRefusal::Prohibited), Contradicted),
            (Some("manager"), None, Phase::Channel, timed_out(), Offered),
            (Some("hop2"), Some(2), Phase::Channel, timed_out(), Offered),
            (Some("manager"), None, Phase::Call, Cause::Lost("x".into()), Offered),
        ] {
            let error = at_hop(onward, hop, phase, cause);
            assert_eq!(error.reachability(), Reachability::Unknown, "{error}");
            assert_eq!(error.confirmation(), confirmation, "{error}");
        }
    }

    #[test]
    fn command_failure_leaves_host_presence_unknown() {
        let ended = || {
            Cause::Command(CommandError::Ended { program: "ssh".into(), status: "exit status 255".into() })
        };
        for method in [ConnectionMethod::ProxyCommand, ConnectionMethod::SshCommand] {
            for (phase, cause) in [
                (Phase::Call, ended()),
                (Phase::Handshake, timed_out()),
                (Phase::Command, timed_out()),
                (Phase::Handshake, Cause::Lost("closed".into())),
            ] {
                let mut error = TransportError::at(phase, Route::example(method), cause);
                assert_eq!(error.reachability(), Reachability::Unknown, "{error}");
                assert_eq!(error.confirmation(), Confirmation::Offered, "{error}");
                error.evidence.stderr = Some("deploy@mgr-2: Permission denied (publickey).".to_owned());
                assert_eq!(error.confirmation(), Confirmation::Counts, "{error}");
            }
        }
        // The host key is checked by us, also behind a command.
        let error = TransportError::at(
            Phase::HostKey,
            Route::example(ConnectionMethod::ProxyCommand),
            host_key(HostKeyVerdict::Changed),
        );
        assert_eq!(error.reachability(), Reachability::Refused);
    }
}
