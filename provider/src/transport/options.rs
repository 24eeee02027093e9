//! The `ssh` object of the provider block, typed, and the environment that stands in where it is silent.

use crate::transport::{HostPort, Secret, check, error::InvalidOption};
use std::{path::PathBuf, time::Duration};

/// How all runner managers are reached. Every field that is set wins over the entry of a runner manager.
///
/// Making one reads no file and checks nothing; [`SshOptions::check`] does, for `terraform validate`.
#[derive(Debug, Clone, Default)]
pub struct SshOptions {
    /// The user to log in as.
    pub username: Option<String>,
    /// The text of a private key; wins over `private_key_path`.
    pub private_key: Option<Secret>,
    /// A file with a private key. `~/` is the home folder.
    pub private_key_path: Option<PathBuf>,
    /// The passphrase of the private key, ignored when the key is not encrypted.
    pub passphrase: Option<Secret>,
    /// A file with an OpenSSH user certificate of the private key.
    pub certificate_path: Option<PathBuf>,
    /// Take the key from ssh-agent.
    pub agent: Option<AgentOptions>,
    /// How host keys are verified.
    pub trust: TrustOptions,
    /// The way to the SSH server.
    pub strategy: StrategyOptions,
    /// The longest time from the first packet to an open tunnel; a phase gets its part of it. Default 30 s.
    pub connect_timeout: Option<Duration>,
    /// The longest time that one call to a wrapper may take. Default 10 s.
    pub call_timeout: Option<Duration>,
    /// A keepalive message is sent after this long without a packet. The session is closed after three such intervals without an answer:
    /// two keepalive messages are sent before that. Default 10 s.
    pub keepalive_interval: Option<Duration>,
    /// SSH handshakes at once, over all hosts. Default 64; at most 8 of them to the same host.
    pub max_handshakes: Option<usize>,
    /// The folder that `~` stands for in paths. Part of the surroundings, not of the block: [`SshOptions::or_environment`] fills it.
    pub home: Option<PathBuf>,
}

/// Which key of ssh-agent is used.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// The agent's socket; [`SshOptions::or_environment`] fills it from `SSH_AUTH_SOCK`.
    pub socket: Option<PathBuf>,
    /// The one key to use, named by its public key, its `SHA256:` fingerprint, or its comment. Without it all keys are tried, five at most.
    pub identity: Option<String>,
}

/// What a host key is held against. Sources add up; with none at all, `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts` are read.
#[derive(Debug, Clone, Default)]
pub struct TrustOptions {
    /// Lines in the format of a known_hosts file.
    pub known_hosts: Option<String>,
    /// A known_hosts file. `~/` is the home folder.
    pub known_hosts_path: Option<PathBuf>,
    /// Public keys (`ssh-ed25519 AAAA…`) and `SHA256:` fingerprints that are accepted from any host.
    pub host_keys: Vec<String>,
    /// Public keys of authorities whose host certificates are accepted.
    pub host_ca: Vec<String>,
    /// Accept any host key: whoever answers gets the commands. The only option that wins over `host_key` of an entry by taking
    /// protection away.
    pub insecure_ignore_host_key: bool,
}

/// The way to the SSH server of a runner manager, or past it.
#[derive(Debug, Clone, Default)]
pub enum StrategyOptions {
    /// A TCP connection to the manager's address.
    #[default]
    Direct,
    /// Through one or more SSH servers, the first one being connected to directly.
    ProxyJump(Vec<JumpOptions>),
    /// A command whose standard input and output carry the SSH connection.
    ProxyCommand(Vec<String>),
    /// A command whose standard input and output are the connection to the wrapper. No user, key or host key is needed.
    SshCommand(Vec<String>),
}

/// One SSH server on the way. What is not set is taken from the provider's `ssh` object.
#[derive(Debug, Clone)]
pub struct JumpOptions {
    pub address: HostPort,
    pub username: Option<String>,
    pub private_key: Option<Secret>,
    pub private_key_path: Option<PathBuf>,
    pub passphrase: Option<Secret>,
    pub certificate_path: Option<PathBuf>,
    /// The host key of this server: a public key or a `SHA256:` fingerprint.
    pub host_key: Option<String>,
}

impl SshOptions {
    /// Fills what is not set from the environment, whose variables `variable` looks up by name.
    ///
    /// Taken: `HOME` for `~` in paths, `SSH_AUTH_SOCK` for an agent without a socket, and `GRIT_SSH_USERNAME`, `GRIT_SSH_PRIVATE_KEY`, `GRIT_SSH_PRIVATE_KEY_PATH`, `GRIT_SSH_PASSPHRASE`,
    /// `GRIT_SSH_CERTIFICATE_PATH`, `GRIT_SSH_KNOWN_HOSTS`, `GRIT_SSH_KNOWN_HOSTS_PATH`. A key in any form (text, path, agent) that
    /// the block names keeps all key variables out, and a source of trust keeps out those of trust, so the two never mix.
    /// An empty variable counts as not set.
    #[must_use]
    pub fn or_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        self.home = self.home.or_else(|| variable("HOME").map(PathBuf::from));
        if let Some(agent) = &mut self.agent {
            agent.socket = agent.socket.take().or_else(|| variable("SSH_AUTH_SOCK").map(PathBuf::from));
        }
        self.username = self.username.or_else(|| variable("GRIT_SSH_USERNAME"));
        if self.private_key.is_none() && self.private_key_path.is_none() && self.agent.is_none() {
            self.private_key = variable("GRIT_SSH_PRIVATE_KEY").map(Secret::new);
            self.private_key_path = variable("GRIT_SSH_PRIVATE_KEY_PATH").map(PathBuf::from);
            if self.certificate_path.is_none() {
                self.certificate_path = variable("GRIT_SSH_CERTIFICATE_PATH").map(PathBuf::from);
            }
        }
        self.passphrase = self.passphrase.or_else(|| variable("GRIT_SSH_PASSPHRASE").map(Secret::new));
        if self.trust.is_silent() {
            self.trust.known_hosts = variable("GRIT_SSH_KNOWN_HOSTS");
            self.trust.known_hosts_path = variable("GRIT_SSH_KNOWN_HOSTS_PATH").map(PathBuf::from);
        }
        self
    }

    /// Finds what can be known to be wrong without a connection: keys and files that cannot be read, pinned keys that are none.
    ///
    /// Reads the files that the options name; never the network. Blocking, but short.
    pub fn check(&self) -> Vec<InvalidOption> {
        check::check(self)
    }
}

impl TrustOptions {
    fn is_silent(&self) -> bool {
        self.known_hosts.is_none()
            && self.known_hosts_path.is_none()
            && self.host_keys.is_empty()
            && self.host_ca.is_empty()
            && !self.insecure_ignore_host_key
    }
}
