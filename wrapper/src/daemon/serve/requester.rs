//! The client of a request.

use std::{fmt, net::SocketAddr};

/// The sender of a request, as reported by the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A process on this host, reported by the kernel.
    Unix {
        uid: u32,
        gid: u32,
        pid: Option<i32>,
    },
    Tcp(SocketAddr),
    /// A signal to the wrapper. Its sender is unknown.
    Signal(&'static str),
}

impl Requester {
    /// UID, GID and PID, as far as the kernel reports them.
    pub(crate) fn ids(self) -> (Option<u32>, Option<u32>, Option<i32>) {
        match self {
            Self::Unix { uid, gid, pid } => (Some(uid), Some(gid), pid),
            Self::Tcp(_) | Self::Signal(_) => (None, None, None),
        }
    }

    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::Unix { .. } => "unix",
            Self::Tcp(_) => "tcp",
            Self::Signal(_) => "signal",
        }
    }

    pub(crate) fn peer(self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(address.to_string()),
            Self::Signal(name) => Some(name.to_owned()),
            Self::Unix { .. } => None,
        }
    }

    /// Whether this is root or the wrapper's user: they could signal the runner directly.
    pub(crate) fn is_privileged(self) -> bool {
        matches!(self, Self::Unix { uid, .. } if uid == 0 || uid == rustix::process::geteuid().as_raw())
    }
}

/// Human-readable, for the status of a drain.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, .. } => write!(f, "uid {uid}, unix socket"),
            Self::Tcp(address) => write!(f, "{address}, TCP"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_sender_is_named_per_transport() {
        for (requester, shown) in [
            (Requester::Unix { uid: 0, gid: 0, pid: Some(1) }, "uid 0, unix socket"),
            (Requester::Tcp("127.0.0.1:4711".parse().unwrap()), "127.0.0.1:4711, TCP"),
            (Requester::Signal("SIGTERM"), "SIGTERM"),
        ] {
            assert_eq!(requester.to_string(), shown);
        }
    }
}
