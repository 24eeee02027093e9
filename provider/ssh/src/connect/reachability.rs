//! What a failed connection means for the host.
//!
//! It decides whether a host can be treated as terminated (`on_unreachable`, `GRIT_ASSUME_TERMINATED`), and whether a refresh reports drift
//! or that it could not check.

use std::io::ErrorKind;

use super::tcp::shows_absence;
use crate::{
    error::{Cause, ChannelRefusal, Peer, TransportError},
    limits::NO_RESPONSE,
    route::Phase,
    session::is_unknown_name,
};

/// The state of a host after a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachability {
    /// No host responds: connection refused, no route, no response, unknown host name.
    Absent,
    /// A server responded at the host's address.
    Answered,
    /// The host responded, but its host key or the login was rejected.
    Refused,
    /// The attempt failed before it reached the host: invalid credentials, files or commands, or a jump host.
    Unknown,
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
        let route = &*self.route;
        if route.hop.is_some() {
            // What a jump host reports about the next host is a text, and depends on its program.
            return Reachability::Unknown;
        }
        if route.method.runs_command() && self.evidence.received.is_empty() {
            // The command, an intermediate server, or the host may have failed.
            return match &self.cause {
                Cause::WrapperClosed
                | Cause::NoResponse { from: Peer::Server | Peer::Wrapper, .. }
                | Cause::AuthRefused { .. }
                | Cause::HostKey(_) => self.reachability_of_cause(),
                _ => Reachability::Unknown,
            };
        }
        self.reachability_of_cause()
    }

    fn reachability_of_cause(&self) -> Reachability {
        match &self.cause {
            Cause::Resolve(error) if is_unknown_name(&error.to_string()) => Reachability::Absent,
            // The name service may have failed.
            Cause::Resolve(_) => Reachability::Unknown,
            Cause::Network(error) => match error.kind {
                kind if shows_absence(kind) => Reachability::Absent,
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Reachability::Answered,
                // For example no route from here, a local firewall, or too many open files.
                _ => Reachability::Unknown,
            },
            Cause::TimedOut { .. } => match self.phase {
                Phase::Tcp if self.was_tried() => Reachability::Absent,
                Phase::Tcp => Reachability::Unknown,
                Phase::Setup | Phase::Command => Reachability::Unknown,
                Phase::Handshake | Phase::HostKey | Phase::Auth | Phase::Channel | Phase::Call => {
                    Reachability::Answered
                }
            },
            Cause::Lost(_)
            | Cause::NoResponse { from: Peer::Server | Peer::Wrapper, .. }
            | Cause::NotSsh
            | Cause::ServerOpensChannels(_)
            | Cause::NoCommonAlgorithm { .. }
            | Cause::WrapperClosed
            | Cause::NotAWrapper
            | Cause::Protocol(_) => Reachability::Answered,
            Cause::ChannelRefused { reason, .. } => match reason {
                ChannelRefusal::Prohibited | ChannelRefusal::UnknownType => Reachability::Refused,
                ChannelRefusal::ConnectFailed | ChannelRefusal::ResourceShortage => Reachability::Answered,
            },
            Cause::TooBusy
            | Cause::HostKey(_)
            | Cause::AuthRefused { .. }
            | Cause::MoreFactors { .. }
            | Cause::TooManyAttempts => Reachability::Refused,
            Cause::Option(_)
            | Cause::NoUsername
            | Cause::NoCredential
            | Cause::Key(_)
            | Cause::Agent { .. }
            | Cause::NoResponse { from: Peer::Agent { .. }, .. }
            | Cause::HandshakeQueueTimeout { .. }
            | Cause::Command(_) => Reachability::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;
    use crate::{
        Attribute, CommandError, ConnectionMethod, HostKeyRefusal, HostKeyVerdict, HostPort, InvalidOption,
        Route,
    };

    fn direct(phase: Phase, cause: Cause) -> Reachability {
        TransportError::at(phase, Route::example(ConnectionMethod::Direct), cause).reachability()
    }

    fn network(kind: ErrorKind) -> Cause {
        Cause::Network(io::Error::from(kind).into())
    }

    fn resolve(text: &str) -> Cause {
        Cause::Resolve(io::Error::other(text).into())
    }

    fn timed_out() -> Cause {
        Cause::TimedOut { limit: Duration::from_secs(1) }
    }

    #[test]
    fn host_is_absent_only_after_network_errors() {
        for kind in [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::TimedOut] {
            assert_eq!(direct(Phase::Tcp, network(kind)), Reachability::Absent, "{kind}");
        }
        assert_eq!(direct(Phase::Tcp, timed_out()), Reachability::Absent);
        let cut_off = || Cause::TimedOut { limit: Duration::from_millis(900) };
        assert_eq!(direct(Phase::Tcp, cut_off()), Reachability::Unknown);
        assert_eq!(direct(Phase::Auth, cut_off()), Reachability::Answered);
        assert_eq!(direct(Phase::Tcp, resolve("Name or service not known")), Reachability::Absent);
        for text in ["Temporary failure in name resolution", "System error", "Memory allocation failure"] {
            assert_eq!(direct(Phase::Tcp, resolve(text)), Reachability::Unknown, "{text}");
        }
        for kind in [ErrorKind::NetworkUnreachable, ErrorKind::PermissionDenied] {
            assert_eq!(direct(Phase::Tcp, network(kind)), Reachability::Unknown, "{kind}");
        }
    }

    #[test]
    fn host_that_answered_or_refused_is_not_absent() {
        for phase in [Phase::Handshake, Phase::Auth, Phase::Channel, Phase::Call] {
            assert_eq!(direct(phase, timed_out()), Reachability::Answered, "{phase}");
        }
        assert_eq!(direct(Phase::Call, Cause::WrapperClosed), Reachability::Answered);
        assert_eq!(direct(Phase::Handshake, Cause::NotSsh), Reachability::Answered);
        let refused =
            Cause::AuthRefused { offered: vec![], not_offered: 0, certificates: vec![], remaining: vec![] };
        assert_eq!(direct(Phase::Auth, refused), Reachability::Refused);
        assert_eq!(direct(Phase::HostKey, changed_key()), Reachability::Refused);
        let option = InvalidOption::new(Attribute::Ssh("host_keys"), "wrong".to_owned());
        assert_eq!(direct(Phase::Setup, Cause::Option(option)), Reachability::Unknown);
        assert_eq!(
            direct(Phase::Setup, Cause::HandshakeQueueTimeout { limit: Duration::ZERO }),
            Reachability::Unknown
        );
    }

    fn changed_key() -> Cause {
        Cause::HostKey(Box::new(HostKeyRefusal {
            verdict: HostKeyVerdict::Changed,
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
            TransportError::at(phase, route, cause).reachability()
        };
        let refused = |reason| Cause::ChannelRefused { reason, text: "Connection refused".to_owned() };
        for (onward, hop, phase, cause) in [
            (None, None, Phase::Tcp, timed_out()),
            (Some("manager"), None, Phase::Channel, refused(ChannelRefusal::ConnectFailed)),
            (Some("manager"), None, Phase::Channel, refused(ChannelRefusal::Prohibited)),
            (Some("manager"), None, Phase::Channel, timed_out()),
            (Some("hop2"), Some(2), Phase::Channel, timed_out()),
            (Some("manager"), None, Phase::Call, Cause::Lost("x".into())),
        ] {
            assert_eq!(at_hop(onward, hop, phase, cause), Reachability::Unknown, "{onward:?} {phase}");
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
                let error = TransportError::at(phase, Route::example(method), cause);
                assert_eq!(error.reachability(), Reachability::Unknown, "{error}");
            }
        }
        // The host key is checked by us, also behind a command.
        let error =
            TransportError::at(Phase::HostKey, Route::example(ConnectionMethod::ProxyCommand), changed_key());
        assert_eq!(error.reachability(), Reachability::Refused);
    }
}
