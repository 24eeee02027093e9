//! The sender of a change, and the audit log line of each accepted change.

use std::{fmt, net::SocketAddr, time::Duration};

use tokio::time::Instant;
use tracing::info;

use super::{access, visible::visible_line};
use crate::supervise::log_key as key;
use crate::supervise::{Answer, Stop};

const HALF_A_SECOND: Duration = Duration::from_millis(500);

/// The sender of a request, as reported by the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A process on this host, reported by the kernel.
    Unix {
        uid: u32,
        gid: u32,
        pid: Option<i32>,
    },
    /// No address if the connection was already closed.
    Tcp(Option<SocketAddr>),
    Http(SocketAddr),
    /// A signal to the wrapper. Its sender is unknown.
    Signal(&'static str),
}

impl Requester {
    fn transport(self) -> &'static str {
        match self {
            Self::Unix { .. } => "unix",
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Signal(_) => "signal",
        }
    }

    fn peer(self) -> Option<String> {
        match self {
            Self::Tcp(Some(address)) | Self::Http(address) => Some(address.to_string()),
            Self::Signal(name) => Some(name.to_owned()),
            Self::Unix { .. } | Self::Tcp(None) => None,
        }
    }
}

/// Human-readable, for the status of a drain.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, .. } => match user_name(*uid) {
                Some(name) => write!(f, "uid {uid} ({name}), unix socket"),
                None => write!(f, "uid {uid}, unix socket"),
            },
            Self::Tcp(Some(address)) => write!(f, "{address}, TCP"),
            Self::Tcp(None) => f.write_str("unknown address, TCP"),
            Self::Http(address) => write!(f, "{address}, HTTP"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}

/// An accepted change. Unknown and inapplicable values are omitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    pub(crate) action: &'static str,
    /// `started`, `joined`, `already` or similar.
    pub(crate) outcome: &'static str,
    pub(crate) mode: Option<&'static str>,
    pub(crate) id: Option<&'a str>,
    /// The id of the joined drain.
    pub(crate) joined_id: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) deadline_seconds: Option<u64>,
    pub(crate) callbacks: Option<usize>,
}

impl<'a> Change<'a> {
    /// A drain that starts.
    pub(crate) fn drain(stop: &'a Stop) -> Self {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        Self {
            action: "drain",
            outcome: "started",
            mode: Some(stop.mode.name()),
            id: Some(stop.id.as_str()),
            reason: Some(&stop.reason),
            // Rounded, because some of the time has passed since the request.
            deadline_seconds: stop.deadline.map(|deadline| (left(deadline) + HALF_A_SECOND).as_secs()),
            callbacks: (!stop.callbacks.is_empty()).then_some(stop.callbacks.len()),
            ..Self::default()
        }
    }

    /// Adds the supervisor's answer.
    pub(crate) fn answered(self, answer: &'a Answer) -> Self {
        match answer {
            Answer::Done => self,
            Answer::Already => Self { outcome: "already", ..self },
            Answer::Joined(id) => Self { outcome: "joined", joined_id: Some(id.as_str()), ..self },
        }
    }

    /// Writes the audit log line.
    pub(crate) fn log(&self, requester: Requester) {
        let shown = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(visible_line);
        let (uid, gid, pid) = match requester {
            Requester::Unix { uid, gid, pid } => (Some(uid), Some(gid), pid),
            Requester::Tcp(_) | Requester::Http(_) | Requester::Signal(_) => (None, None, None),
        };
        info!(
            { key::ACTION } = self.action,
            { key::OUTCOME } = self.outcome,
            { key::MODE } = self.mode,
            { key::ID } = shown(self.id),
            { key::JOINED_ID } = shown(self.joined_id),
            { key::REASON } = shown(self.reason),
            { key::DEADLINE_SECONDS } = self.deadline_seconds,
            { key::CALLBACKS } = self.callbacks,
            { key::TRANSPORT } = requester.transport(),
            { key::USER } = uid.and_then(user_name),
            { key::UID } = uid,
            { key::GID } = gid,
            { key::PID } = pid,
            { key::PEER } = requester.peer(),
            "change accepted"
        );
    }
}

/// The name of a user in `/etc/passwd`.
fn user_name(uid: u32) -> Option<String> {
    Some(access::user_name(uid)).filter(|name| *name != uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_sender_is_named_per_transport() {
        let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        for (requester, shown) in [
            (Requester::Unix { uid: 0, gid: 0, pid: Some(1) }, "uid 0 (root), unix socket"),
            (Requester::Unix { uid: 4_200_000_000, gid: 1, pid: None }, "uid 4200000000, unix socket"),
            (Requester::Http(address), "127.0.0.1:4711, HTTP"),
            (Requester::Tcp(Some(address)), "127.0.0.1:4711, TCP"),
            (Requester::Signal("SIGTERM"), "SIGTERM"),
        ] {
            assert_eq!(requester.to_string(), shown);
        }
    }
}
