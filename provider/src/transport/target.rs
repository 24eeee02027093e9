//! A runner manager as the transport needs it: every value resolved, so that no precedence is decided here.

use std::path::PathBuf;

use crate::transport::{
    address::{HostPort, WrapperAddress},
    error::{Attribute, Route},
    secret::Secret,
    settings::ConnectionMethod,
};

/// One runner manager.
#[derive(Debug, Clone)]
pub struct Target {
    /// The key of the entry, which names the manager in every message.
    pub manager: String,
    /// The name of the instance.
    pub instance_name: String,
    /// The cloud's identifier of the instance, for templates.
    pub instance_id: Option<String>,
    /// Where the host answers SSH.
    pub address: HostPort,
    /// Where the wrapper listens on that host.
    pub wrapper_address: WrapperAddress,
    pub login: Login,
    /// The key that this host must show: a public key, a `SHA256:` fingerprint, or several, one a line. It replaces every other source
    /// of trust for this host.
    pub host_key: Option<String>,
    /// The SSH servers before it, where the strategy has some; the first one is connected to directly.
    pub hops: Vec<Hop>,
}

/// One SSH server before the manager.
#[derive(Debug, Clone)]
pub struct Hop {
    pub address: HostPort,
    pub login: Login,
    /// As [`Target::host_key`].
    pub host_key: Option<String>,
}

/// The user, and what it logs in with. What is missing is an error only when a connection needs it.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub credentials: Option<CredentialSource>,
}

/// Where credentials come from: a private key, an agent, or both, which are tried in this order.
#[derive(Debug, Clone, Default)]
pub struct CredentialSource {
    pub private_key: Option<KeySource>,
    /// The passphrase of the private key, ignored when the key is not encrypted.
    pub passphrase: Option<Secret>,
    /// A file with an OpenSSH user certificate of the private key.
    pub certificate_path: Option<PathBuf>,
    pub agent: Option<AgentSource>,
}

/// A private key, and the attribute that names it.
#[derive(Debug, Clone)]
pub enum KeySource {
    Text(Secret, Attribute),
    File(PathBuf, Attribute),
}

/// Which key of ssh-agent is used.
#[derive(Debug, Clone, Default)]
pub struct AgentSource {
    /// The agent's socket. None is an error when a connection needs it.
    pub socket: Option<PathBuf>,
    /// The one key to use, named by its public key, its `SHA256:` fingerprint, or its comment. Without it all keys are tried, five at most.
    pub identity: Option<String>,
}

impl Target {
    /// Identifies the wrapper among those of this process.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.address, self.wrapper_address)
    }

    pub(crate) fn route(&self, method: ConnectionMethod) -> Route {
        Route {
            method,
            host: self.address.clone(),
            username: None,
            wrapper: self.wrapper_address.clone(),
            hop: None,
            onward: None,
            onward_hop: None,
        }
    }
}
