//! Converts errors of russh to causes.

use std::{io, time::Duration};

use russh::{ChannelOpenFailure, Error};

use crate::{
    error::{Cause, ChannelRefusal, Peer},
    host_text::{MAX_TEXT, shortened},
    limits::Limits,
};

/// sshd's messages when it rejects connections: before 9.8, and since then (also to addresses with a penalty).
const LOAD_REJECTIONS: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// For the algorithms of a server in an error. OpenSSH offers about 20 of a kind.
const MAX_ALGORITHMS: usize = 50;
/// RFC 4251, section 6.
const MAX_NAME: usize = 64;

/// An error during the key exchange.
pub(super) fn of_handshake(error: &Error, limits: &Limits, received: &[u8]) -> Cause {
    let text = String::from_utf8_lossy(received);
    let spoke_ssh = names_ssh2(&text);
    match error {
        _ if LOAD_REJECTIONS.iter().any(|sentence| text.contains(sentence)) => Cause::TooBusy,
        Error::NoCommonAlgo { .. } => of_session(error, limits),
        _ if !spoke_ssh && !received.is_empty() => Cause::NotSsh,
        Error::Disconnect | Error::HUP if received.is_empty() => {
            Cause::Lost("the server closed the connection without a reason".to_owned())
        }
        error => of_session(error, limits),
    }
}

/// The key exchange timed out.
pub(super) fn of_silence(limit: Duration, received: &[u8]) -> Cause {
    let text = String::from_utf8_lossy(received);
    let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    if whole_lines.is_empty() || names_ssh2(whole_lines) { Cause::TimedOut { limit } } else { Cause::NotSsh }
}

/// An error of an established session.
pub(super) fn of_session(error: &Error, limits: &Limits) -> Cause {
    match error {
        Error::NoCommonAlgo { kind, ours, theirs } => Cause::NoCommonAlgorithm {
            kind: match kind {
                russh::AlgorithmKind::Kex => "key exchange",
                russh::AlgorithmKind::Key => "host key",
                russh::AlgorithmKind::Cipher => "cipher",
                russh::AlgorithmKind::Compression => "compression",
                russh::AlgorithmKind::Mac => "MAC",
            }
            .to_owned(),
            ours: ours.iter().filter(|name| !is_marker(name)).cloned().collect(),
            theirs: theirs
                .iter()
                .filter(|name| !is_marker(name))
                .take(MAX_ALGORITHMS)
                .map(|name| shortened(name.clone(), MAX_NAME))
                .collect(),
        },
        Error::Version => Cause::NotSsh,
        Error::KeepaliveTimeout => no_response(limits.keepalive_silence()),
        Error::InactivityTimeout => no_response(limits.inactivity()),
        Error::IO(error) => Cause::Lost(lost(error)),
        Error::Disconnect | Error::HUP | Error::SendError | Error::RecvError => {
            Cause::Lost("the server closed the connection".to_owned())
        }
        Error::NoAuthMethod => {
            let (offered, certificates, remaining) = (Vec::new(), Vec::new(), Vec::new());
            Cause::AuthRefused { offered, not_offered: 0, certificates, remaining }
        }
        error => Cause::Protocol(shortened(error.to_string(), MAX_TEXT)),
    }
}

/// Whether a name in a list of algorithms is the mark of an extension: it is not an algorithm.
fn is_marker(name: &str) -> bool {
    name.starts_with("kex-strict-") || name.starts_with("ext-info-")
}

/// The server's disconnect message.
pub(super) fn of_disconnect(message: &str) -> Cause {
    if message.contains("Too many authentication failures") {
        Cause::TooManyAttempts
    } else if LOAD_REJECTIONS.iter().any(|sentence| message.contains(sentence)) {
        Cause::TooBusy
    } else {
        Cause::Lost(format!("the server disconnected: {message}"))
    }
}

/// Whether the name service reported that a name or its address does not exist: messages of glibc, musl and the BSDs.
pub fn is_unknown_name(text: &str) -> bool {
    [
        "Name or service not known",
        "No address associated with",
        "Name does not resolve",
        "Name has no usable address",
        "nodename nor servname provided",
    ]
    .iter()
    .any(|words| text.contains(words))
}

pub(super) fn channel_refusal(reason: &ChannelOpenFailure) -> ChannelRefusal {
    match reason {
        ChannelOpenFailure::AdministrativelyProhibited => ChannelRefusal::Prohibited,
        ChannelOpenFailure::ConnectFailed => ChannelRefusal::ConnectFailed,
        ChannelOpenFailure::UnknownChannelType => ChannelRefusal::UnknownType,
        ChannelOpenFailure::ResourceShortage | ChannelOpenFailure::Other { .. } => {
            ChannelRefusal::ResourceShortage
        }
    }
}

fn no_response(limit: Duration) -> Cause {
    Cause::NoResponse { from: Peer::Server, limit }
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::BrokenPipe => "the connection was closed during a write".to_owned(),
        _ => crate::user_files::plain(error),
    }
}

/// Whether a line is the banner of an SSH 2 server; other lines may precede it.
fn names_ssh2(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("SSH-2.0-") || line.starts_with("SSH-1.99-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::new(None, None, None)
    }

    /// During the login russh sends no keepalive messages, so the session ends by inactivity.
    #[test]
    fn lost_sessions_report_the_configured_silence() {
        let limits = Limits::new(None, None, Some(Duration::from_secs(1)));
        let silence = |error: Error| match of_session(&error, &limits) {
            Cause::NoResponse { from: Peer::Server, limit } => limit.as_secs(),
            cause => panic!("{cause:?}"),
        };
        assert_eq!(silence(Error::KeepaliveTimeout), 3);
        assert_eq!(silence(Error::InactivityTimeout), 9);
    }

    #[test]
    fn marks_of_extensions_are_no_algorithms() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let error = Error::NoCommonAlgo {
            kind: russh::AlgorithmKind::Kex,
            ours: list(&["curve25519-sha256", "ext-info-c", "kex-strict-c-v00@openssh.com"]),
            theirs: list(&["sntrup761x25519-sha512", "kex-strict-s-v00@openssh.com", "ext-info-s"]),
        };
        let Cause::NoCommonAlgorithm { ours, theirs, .. } = of_session(&error, &limits()) else { panic!() };
        assert_eq!((ours, theirs), (list(&["curve25519-sha256"]), list(&["sntrup761x25519-sha512"])));
    }

    #[test]
    fn first_bytes_determine_handshake_cause() {
        let cause = |received: &[u8]| of_handshake(&Error::Disconnect, &limits(), received);
        assert!(matches!(cause(b""), Cause::Lost(_)));
        assert!(matches!(cause(b"HTTP/1.1 400 Bad Request\r\n"), Cause::NotSsh));
        assert!(matches!(cause(b"SSH-1.5-old\r\n"), Cause::NotSsh));
        assert!(matches!(cause(b"Exceeded MaxStartups\r\n"), Cause::TooBusy));
        assert!(matches!(cause(b"Not allowed at this time\r\n"), Cause::TooBusy));
        assert!(matches!(cause(b"hello\r\nSSH-2.0-OpenSSH_9.2\r\n"), Cause::Lost(_)));
    }

    #[test]
    fn partial_banner_is_a_timeout() {
        let cause = |received: &[u8]| of_silence(Duration::from_secs(1), received);
        assert!(matches!(cause(b""), Cause::TimedOut { .. }));
        assert!(matches!(cause(b"SSH-2.0-Ope"), Cause::TimedOut { .. }));
        assert!(matches!(cause(b"SSH-2.0-OpenSSH\r\n"), Cause::TimedOut { .. }));
        assert!(matches!(cause(b"SSH-1.5-old\r\n"), Cause::NotSsh));
    }
}
