//! The path of a connection, and its phases.

use std::fmt;

use crate::address::{HostPort, WrapperAddress};

/// A [`Strategy`](crate::Strategy) without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMethod {
    Direct,
    ProxyJump,
    ProxyCommand,
    SshCommand,
}

impl ConnectionMethod {
    /// The attribute of `ssh` that selects it; `direct` if none does.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::ProxyJump => "proxy_jump",
            Self::ProxyCommand => "proxy_command",
            Self::SshCommand => "ssh_command",
        }
    }

    /// Whether the connection goes through a command, which hides whether the command, a server in between, or the host failed.
    pub const fn runs_command(self) -> bool {
        match self {
            Self::Direct | Self::ProxyJump => false,
            Self::ProxyCommand | Self::SshCommand => true,
        }
    }
}

impl fmt::Display for ConnectionMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
