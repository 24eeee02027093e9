//! A runner manager with resolved values: precedence is decided in `config`.

use std::path::{Path, PathBuf};

use crate::{
    address::{HostPort, WrapperAddress},
    attribute::Attribute,
    route::{ConnectionMethod, Route},
    secret::Secret,
};

#[derive(Debug, Clone)]
pub struct Target {
    /// The key of the map entry: the name of the runner manager in messages.
    pub manager: String,
    /// The name of the instance.
    pub instance_name: String,
    /// The instance id of the cloud provider, for templates.
    pub instance_id: Option<String>,
    /// The SSH server.
    pub address: HostPort,
    pub wrapper_address: WrapperAddress,
    pub login: Login,
    /// The required host key: public keys and `SHA256:` fingerprints, one per line. It replaces all other sources of trusted keys.
    pub host_key: Option<String>,
    /// The jump hosts, in order of connection.
    pub hops: Vec<Hop>,
}

#[derive(Debug, Clone)]
pub struct Hop {
    pub address: HostPort,
    pub login: Login,
    /// As [`Target::host_key`].
    pub host_key: Option<String>,
}

/// User and credentials. A missing value is an error only when a connection needs it.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub credentials: Option<CredentialSource>,
}

/// The source of credentials: a private key, an agent, or both, which are tried in this order.
#[derive(Debug, Clone, Default)]
pub struct CredentialSource {
    pub private_key: Option<KeySource>,
    /// Ignored if the private key is not encrypted.
    pub passphrase: Option<Secret>,
    /// A file with an OpenSSH user certificate of the private key.
    pub certificate_path: Option<PathBuf>,
    pub agent: Option<AgentSource>,
}

/// A private key, and its attribute.
#[derive(Debug, Clone)]
pub enum KeySource {
    Text(Secret, Attribute),
    File(PathBuf, Attribute),
}

#[derive(Debug, Clone, Default)]
pub struct AgentSource {
    /// None is an error when a connection needs the agent.
    pub socket: Option<PathBuf>,
    /// The key to use: its public key, `SHA256:` fingerprint or comment. Without it, at most five keys are tried.
    pub identity: Option<String>,
}

/// The values that select the host of a connection. Targets with equal addresses and different other values can be on different hosts: a command of a
/// [`Strategy`](crate::Strategy) can contain the instance, and an SSH gateway can select the host by the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selectors {
    /// The address. If it selects no host, a target needs none.
    pub address: bool,
    pub instance_name: bool,
    pub instance_id: bool,
    pub username: bool,
}

impl CredentialSource {
    /// The file of the private key, if no certificate is configured.
    pub(crate) fn key_file(&self) -> Option<&Path> {
        match &self.private_key {
            Some(KeySource::File(path, _)) if self.certificate_path.is_none() => Some(path),
            _ => None,
        }
    }
}

impl Target {
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
