//! What all connections of a connector have in common, resolved.

use std::{fmt, path::PathBuf, time::Duration};

/// What all connections of a connector have in common.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSettings {
    pub strategy: Strategy,
    pub trust: TrustSources,
    /// The limit from the first packet to an open tunnel; a phase gets a part of it. Default 30 s.
    pub connect_timeout: Option<Duration>,
    /// The limit of one call to a wrapper. Default 10 s.
    pub call_timeout: Option<Duration>,
    /// A keepalive message is sent after this long without a packet. The session is closed after three such intervals without an answer:
    /// two keepalive messages are sent before that. Default 10 s.
    pub keepalive_interval: Option<Duration>,
    /// SSH handshakes at once, over all hosts. Default 64; at most 8 of them to the same host.
    pub max_handshakes: Option<usize>,
}

/// How the SSH server of a runner manager, or its wrapper, is reached.
#[derive(Debug, Clone, Default)]
pub enum Strategy {
    /// A TCP connection to the manager's address.
    #[default]
    Direct,
    /// Through the hops of the target.
    ProxyJump,
    /// A command whose standard input and output carry the SSH connection.
    ProxyCommand(Vec<String>),
    /// A command whose standard input and output are the connection to the wrapper. No user, key or host key is needed.
    SshCommand(Vec<String>),
}

impl Strategy {
    pub(crate) const fn method(&self) -> ConnectionMethod {
        match self {
            Self::Direct => ConnectionMethod::Direct,
            Self::ProxyJump => ConnectionMethod::ProxyJump,
            Self::ProxyCommand(_) => ConnectionMethod::ProxyCommand,
            Self::SshCommand(_) => ConnectionMethod::SshCommand,
        }
    }
}

/// The kind of a [`Strategy`], without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMethod {
    Direct,
    ProxyJump,
    ProxyCommand,
    SshCommand,
}

impl ConnectionMethod {
    /// The attribute of `ssh` that selects it; `direct` if none does.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::ProxyJump => "proxy_jump",
            Self::ProxyCommand => "proxy_command",
            Self::SshCommand => "ssh_command",
        }
    }

    /// Whether the connection goes through a command, which hides whether the command, a server in between, or the host failed.
    pub(crate) const fn runs_command(self) -> bool {
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

/// What a host key is compared with. Sources add up.
#[derive(Debug, Clone, Default)]
pub struct TrustSources {
    /// Lines in the format of a known_hosts file.
    pub known_hosts: Option<String>,
    /// known_hosts files.
    pub known_hosts_files: Vec<PathBuf>,
    /// Public keys (`ssh-ed25519 AAAA…`) and `SHA256:` fingerprints that are accepted from any host.
    pub host_keys: Vec<String>,
    /// Public keys of authorities whose host certificates are accepted.
    pub host_ca: Vec<String>,
    /// Accept any host key: whoever answers gets the commands.
    pub insecure_ignore_host_key: bool,
}
