//! The settings that all connections of a connector share.

use std::{fmt, path::PathBuf, time::Duration};

#[derive(Debug, Clone, Default)]
pub struct ConnectionSettings {
    pub strategy: Strategy,
    pub trust: TrustSources,
    /// Time limit for opening a tunnel; each phase has a part of it. Default 30 s.
    pub connect_timeout: Option<Duration>,
    /// Time limit of one call to a wrapper. Default 10 s.
    pub call_timeout: Option<Duration>,
    /// Keepalive interval. The session is closed after three intervals without a packet: two keepalive messages are sent before that.
    /// Default 10 s.
    pub keepalive_interval: Option<Duration>,
    /// Maximum number of parallel SSH handshakes. Default 64; at most 8 of them with the same host.
    pub max_handshakes: Option<usize>,
}

/// The connection method, with its arguments.
#[derive(Debug, Clone, Default)]
pub enum Strategy {
    /// A TCP connection to the manager's address.
    #[default]
    Direct,
    /// Through the jump hosts of the target.
    ProxyJump,
    /// The SSH connection uses the standard input and output of a command.
    ProxyCommand(Vec<String>),
    /// The standard input and output of a command are the connection to the wrapper. No user, key or host key is required.
    SshCommand(Vec<String>),
}

impl Strategy {
    pub const fn method(&self) -> ConnectionMethod {
        match self {
            Self::Direct => ConnectionMethod::Direct,
            Self::ProxyJump => ConnectionMethod::ProxyJump,
            Self::ProxyCommand(_) => ConnectionMethod::ProxyCommand,
            Self::SshCommand(_) => ConnectionMethod::SshCommand,
        }
    }
}

/// A [`Strategy`] without its arguments.
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

/// The sources of trusted host keys. All sources are used.
#[derive(Debug, Clone, Default)]
pub struct TrustSources {
    /// Lines in the format of a known_hosts file.
    pub known_hosts: Option<String>,
    /// Whether an environment variable has set `known_hosts`, for errors.
    pub known_hosts_variable: bool,
    pub known_hosts_files: Vec<PathBuf>,
    /// Public keys (`ssh-ed25519 AAAA…`) and `SHA256:` fingerprints that are accepted from any host.
    pub host_keys: Vec<String>,
    /// Public keys of authorities whose host certificates are accepted.
    pub host_ca: Vec<String>,
    /// Accept any host key: man-in-the-middle attacks are possible.
    pub insecure_ignore_host_key: bool,
}
