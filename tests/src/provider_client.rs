//! The provider's client of a wrapper, made from a provider block and an entry of `runner_managers`, as Terraform gives them.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use grit_plugin::Problem;
use grit_provider::testing::{
    Connections,
    client::WrapperClient,
    transport::{HostPort, Secret, WrapperAddress},
};
use serde_json::{Value, json};

/// The `ssh` object of the provider block, and what surrounds it.
#[derive(Clone, Debug, Default)]
pub struct SshOptions {
    pub username: Option<String>,
    pub private_key: Option<Secret>,
    pub private_key_path: Option<PathBuf>,
    pub passphrase: Option<Secret>,
    pub certificate_path: Option<PathBuf>,
    pub agent: Option<AgentOptions>,
    pub trust: TrustOptions,
    pub strategy: StrategyOptions,
    pub connect_timeout: Option<Duration>,
    pub call_timeout: Option<Duration>,
    pub keepalive_interval: Option<Duration>,
    /// `max_parallel` of the provider block.
    pub max_handshakes: Option<usize>,
    /// The variable `HOME`.
    pub home: Option<PathBuf>,
    /// Other variables.
    pub environment: HashMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    pub socket: Option<PathBuf>,
    pub identity: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct TrustOptions {
    pub known_hosts: Option<String>,
    pub known_hosts_path: Option<PathBuf>,
    pub host_keys: Vec<String>,
    pub host_ca: Vec<String>,
    pub insecure_ignore_host_key: bool,
}

#[derive(Clone, Debug, Default)]
pub enum StrategyOptions {
    #[default]
    Direct,
    ProxyJump(Vec<JumpOptions>),
    ProxyCommand(Vec<String>),
    SshCommand(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct JumpOptions {
    pub address: HostPort,
    pub username: Option<String>,
    pub private_key: Option<Secret>,
    pub private_key_path: Option<PathBuf>,
    pub passphrase: Option<Secret>,
    pub certificate_path: Option<PathBuf>,
    pub host_key: Option<String>,
}

/// An entry of `runner_managers`.
#[derive(Clone, Debug)]
pub struct Target {
    pub manager: String,
    pub instance_name: String,
    pub instance_id: Option<String>,
    pub address: HostPort,
    pub wrapper_address: WrapperAddress,
    pub username: Option<String>,
    pub private_key: Option<Secret>,
    pub host_key: Option<String>,
}

/// The connections of one provider block.
#[derive(Clone, Debug)]
pub struct Connector(Connections);

impl Connector {
    #[expect(clippy::needless_pass_by_value, reason = "each caller makes its own")]
    pub fn new(options: SshOptions) -> Self {
        Self(Connections::new(&options.provider_block(), |name| options.variable(name)))
    }

    pub fn client(&self, target: Target) -> WrapperClient {
        let address = target.address.to_string();
        self.client_at(target, Some(address))
    }

    /// A client of an entry without `address`.
    pub fn client_by_name(&self, target: Target) -> WrapperClient {
        self.client_at(target, None)
    }

    #[expect(clippy::needless_pass_by_value, reason = "each caller makes its own")]
    fn client_at(&self, target: Target, address: Option<String>) -> WrapperClient {
        let entry = json!({
            "instance_name": target.instance_name,
            "address": address,
            "wrapper_address": target.wrapper_address.to_string(),
            "username": target.username,
            "ssh_key_pem": secret(target.private_key.as_ref()),
            "instance_id": target.instance_id,
            "host_key": target.host_key,
        });
        self.0.client(&target.manager, &entry)
    }
}

/// What is wrong with an attribute.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub attribute: String,
    pub problem: String,
}

impl SshOptions {
    /// What `terraform validate` finds, errors first.
    pub fn check(&self) -> Vec<Finding> {
        let (errors, warnings) = Connections::check(&self.provider_block(), |name| self.variable(name));
        let finding =
            |problem: &Problem| Finding { attribute: problem.path.to_string(), problem: problem.detail() };
        errors.iter().chain(&warnings).map(finding).collect()
    }

    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "HOME" => self.home.as_ref().map(|home| home.display().to_string()),
            name => self.environment.get(name).cloned(),
        }
    }

    fn provider_block(&self) -> Value {
        let time = |limit: Option<Duration>| limit.map(|limit| format!("{}ms", limit.as_millis()));
        let (mut jump, mut proxy_command, mut ssh_command) = (Value::Null, Value::Null, Value::Null);
        match &self.strategy {
            StrategyOptions::Direct => {}
            StrategyOptions::ProxyJump(hops) => jump = hops.iter().map(JumpOptions::object).collect(),
            StrategyOptions::ProxyCommand(arguments) => proxy_command = json!(arguments),
            StrategyOptions::SshCommand(arguments) => ssh_command = json!(arguments),
        }
        let agent =
            self.agent.as_ref().map(|agent| json!({ "socket": agent.socket, "identity": agent.identity }));
        let trust = &self.trust;
        let ssh = json!({
            "username": self.username,
            "private_key": secret(self.private_key.as_ref()),
            "private_key_path": self.private_key_path,
            "passphrase": secret(self.passphrase.as_ref()),
            "certificate_path": self.certificate_path,
            "agent": agent,
            "known_hosts": trust.known_hosts,
            "known_hosts_path": trust.known_hosts_path,
            "host_keys": trust.host_keys,
            "host_ca": trust.host_ca,
            "insecure_ignore_host_key": trust.insecure_ignore_host_key,
            "connect_timeout": time(self.connect_timeout),
            "call_timeout": time(self.call_timeout),
            "keepalive_interval": time(self.keepalive_interval),
            "proxy_jump": jump,
            "proxy_command": proxy_command,
            "ssh_command": ssh_command,
        });
        json!({ "ssh": ssh, "gitlab": null, "retry": null, "max_parallel": self.max_handshakes })
    }
}

impl JumpOptions {
    fn object(&self) -> Value {
        json!({
            "address": self.address.to_string(),
            "username": self.username,
            "private_key": secret(self.private_key.as_ref()),
            "private_key_path": self.private_key_path,
            "passphrase": secret(self.passphrase.as_ref()),
            "certificate_path": self.certificate_path,
            "host_key": self.host_key,
        })
    }
}

fn secret(secret: Option<&Secret>) -> Option<&str> {
    secret.map(Secret::expose)
}
