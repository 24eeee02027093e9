//! The client of a request, and its access.
//!
//! The permissions of the socket decide who can connect. Allow lists restrict access further, by the user that the kernel reports for the
//! peer (`SO_PEERCRED`): some users have control, others read-only access. Without a list, every client that can connect has control.

mod accounts;

use std::{fmt, net::SocketAddr};

pub use self::accounts::{UnknownAccount, UserOrGroup};
pub(crate) use self::accounts::{group_id, user_name};

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
    /// The user's name in `/etc/passwd`.
    pub(crate) fn user(self) -> Option<String> {
        let Self::Unix { uid, .. } = self else { return None };
        Some(user_name(uid)).filter(|name| *name != uid.to_string())
    }

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
}

/// Human-readable, for the status of a drain.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, .. } => match self.user() {
                Some(name) => write!(f, "uid {uid} ({name}), unix socket"),
                None => write!(f, "uid {uid}, unix socket"),
            },
            Self::Tcp(address) => write!(f, "{address}, TCP"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}

/// Rights of a peer. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    Nothing,
    /// Read the status.
    Read,
    /// Drain, cancel and start as well.
    Control,
}

impl Rights {
    /// The error text for a client with these rights.
    pub(super) fn denial(self) -> &'static str {
        match self {
            Self::Nothing => "this user has no access",
            Self::Read | Self::Control => {
                "this user has read-only access, because it is not in --allow-control"
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Access {
    control: Vec<UserOrGroup>,
    read: Vec<UserOrGroup>,
}

impl Access {
    pub fn new(control: Vec<UserOrGroup>, read: Vec<UserOrGroup>) -> Self {
        Self { control, read }
    }

    /// Rights of the sender of a request.
    pub(super) fn of(&self, requester: Requester) -> Rights {
        match requester {
            Requester::Unix { uid, gid, .. } => self.of_user(uid, gid),
            Requester::Tcp(_) | Requester::Signal(_) => self.of_unknown_user(),
        }
    }

    /// Rights of a user. Root and the wrapper's user always have control: they could signal the runner directly.
    fn of_user(&self, uid: u32, gid: u32) -> Rights {
        let is_in = |list: &[UserOrGroup]| list.iter().any(|who| who.is(uid, gid));
        if is_privileged(uid) || !self.is_listed() || is_in(&self.control) {
            Rights::Control
        } else if is_in(&self.read) {
            Rights::Read
        } else {
            Rights::Nothing
        }
    }

    /// The rights of a client over TCP, whose user is unknown.
    pub(super) fn of_unknown_user(&self) -> Rights {
        if self.is_listed() { Rights::Read } else { Rights::Control }
    }

    fn is_listed(&self) -> bool {
        !self.control.is_empty() || !self.read.is_empty()
    }
}

/// Whether this is root or the wrapper's user.
pub(crate) fn is_privileged(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(text: &str) -> Vec<UserOrGroup> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn access_lists_restrict_socket_rights() {
        let open = Access::default();
        assert_eq!(open.of_user(4242, 4242), Rights::Control);
        assert_eq!(open.of_unknown_user(), Rights::Control);
        let listed = Access::new(who("4242"), who("@4300"));
        assert_eq!(listed.of_user(4242, 1), Rights::Control);
        assert_eq!(listed.of_user(4243, 4300), Rights::Read);
        assert_eq!(listed.of_user(4243, 4301), Rights::Nothing);
        assert_eq!(listed.of_user(0, 0), Rights::Control);
        assert_eq!(listed.of_unknown_user(), Rights::Read);
        let readers = Access::new(Vec::new(), who("4300"));
        assert_eq!(readers.of_user(4242, 1), Rights::Nothing, "a list of readers leaves nobody else");
    }

    #[test]
    fn request_sender_is_named_per_transport() {
        let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        for (requester, shown) in [
            (Requester::Unix { uid: 0, gid: 0, pid: Some(1) }, "uid 0 (root), unix socket"),
            (Requester::Unix { uid: 4_200_000_000, gid: 1, pid: None }, "uid 4200000000, unix socket"),
            (Requester::Tcp(address), "127.0.0.1:4711, TCP"),
            (Requester::Signal("SIGTERM"), "SIGTERM"),
        ] {
            assert_eq!(requester.to_string(), shown);
        }
    }
}
