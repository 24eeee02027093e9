//! The `ssh` object of the provider block.
//!
//! Each attribute has here its field, schema, check, environment variable, and meaning. **Values of this object take precedence over the
//! runner manager**; environment variables are used if it has no value.

use std::{path::PathBuf, time::Duration};

use grit_plugin::{
    Problems, attribute_map, call,
    schema::{
        Attribute as SchemaAttribute, AttributePath, AttributeType, Value, boolean, object, optional, secret,
        text, texts,
    },
};
use grit_ssh::{
    AgentSource, Attribute, CALL_TIMEOUT, CONNECT_TIMEOUT, ConnectionSettings, CredentialSource, Hop,
    KEEPALIVE_INTERVAL, KeySource, Login, Secret, Strategy, TrustSources, check, expand,
};
use serde::{Deserialize, Serialize};

use super::{
    proxy_jump::HopArgs,
    ssh_checks::{check_elements, check_file, check_keys, check_needs_key, invalid},
    text::{UNKNOWN, set},
    timeouts::{SHORTEST_DELAY, check_at_least},
};
use crate::{
    duration::{self, human},
    explain::values,
};

/// Has no `Debug`, because it contains secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct SshArgs {
    username: Value<String>,
    private_key: Value<String>,
    private_key_path: Value<String>,
    passphrase: Value<String>,
    certificate_path: Value<String>,
    agent: Value<AgentArgs>,
    known_hosts: Value<String>,
    known_hosts_path: Value<String>,
    host_keys: Value<Vec<Value<String>>>,
    host_ca: Value<Vec<Value<String>>>,
    insecure_ignore_host_key: Value<bool>,
    connect_timeout: Value<String>,
    call_timeout: Value<String>,
    keepalive_interval: Value<String>,
    proxy_jump: Value<Vec<Value<HopArgs>>>,
    proxy_command: Value<Vec<Value<String>>>,
    ssh_command: Value<Vec<Value<String>>>,
    /// The directory that replaces `~` in paths.
    #[serde(skip)]
    home: Option<PathBuf>,
    /// The attributes that an environment variable has set.
    #[serde(skip)]
    variables: Vec<&'static str>,
}

/// `agent = { socket, identity }`.
#[derive(Clone, Default, Serialize, Deserialize)]
struct AgentArgs {
    socket: Value<String>,
    identity: Value<String>,
}

/// The minimum of `connect_timeout`. A shorter attempt ends before it shows whether the host responds, and would never count as failed.
const SHORTEST_CONNECT: (Duration, &str) = (Duration::from_secs(2), "2s");

/// The files that are read if no host keys are configured, as by `ssh`.
const KNOWN_HOSTS_FILES: [&str; 3] =
    ["~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts"];

impl SshArgs {
    /// Sets missing values from environment variables.
    ///
    /// If the block has a key (text, path, agent), the key variables are ignored; if it has host keys, the known_hosts variables are
    /// ignored. An empty variable counts as not set.
    pub(super) fn or_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut variables = Vec::new();
        let mut fill = |value: &mut Value<String>, attribute: &'static str| {
            if set(value).is_none()
                && let Some(text) = variable(&Attribute::Variable(attribute).to_string())
            {
                *value = Value::Value(text);
                variables.push(attribute);
            }
        };
        self.home = self.home.or_else(|| variable("HOME").map(PathBuf::from));
        if let Value::Value(agent) = &mut self.agent
            && set(&agent.socket).is_none()
            && let Some(socket) = variable("SSH_AUTH_SOCK")
        {
            agent.socket = Value::Value(socket);
        }
        fill(&mut self.username, "username");
        if self.credentials().is_none() {
            fill(&mut self.private_key, "private_key");
            fill(&mut self.private_key_path, "private_key_path");
            fill(&mut self.certificate_path, "certificate_path");
        }
        fill(&mut self.passphrase, "passphrase");
        let names_keys = self.host_keys.iter().flatten().any(|text| set(text).is_some());
        if set(&self.known_hosts_path).is_none() && !names_keys && !self.names_trust() {
            fill(&mut self.known_hosts, "known_hosts");
            fill(&mut self.known_hosts_path, "known_hosts_path");
        }
        self.variables = variables;
        self
    }

    /// The attribute, or the environment variable that has set it.
    fn attribute(&self, name: &'static str) -> Attribute {
        if self.variables.contains(&name) { Attribute::Variable(name) } else { Attribute::Ssh(name) }
    }

    /// Checks all values that can be checked without a connection. Reads the files.
    pub(super) fn check(&self, path: &AttributePath, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_at_least(SHORTEST_CONNECT, &self.connect_timeout, at("connect_timeout"), problems);
        check_at_least(SHORTEST_DELAY, &self.call_timeout, at("call_timeout"), problems);
        check_at_least(SHORTEST_DELAY, &self.keepalive_interval, at("keepalive_interval"), problems);
        let strategies = [
            ("proxy_jump", self.proxy_jump.is_value()),
            ("proxy_command", self.proxy_command.is_value()),
            ("ssh_command", self.ssh_command.is_value()),
        ];
        let mut chosen = strategies.into_iter().filter_map(|(name, is_set)| is_set.then_some(name));
        if let Some(first) = chosen.next() {
            for other in chosen {
                problems.add(values::conflicting_methods(first, other).at(at(other)));
            }
        }
        for (name, list) in [
            ("host_keys", &self.host_keys),
            ("host_ca", &self.host_ca),
            ("proxy_command", &self.proxy_command),
            ("ssh_command", &self.ssh_command),
        ] {
            check_elements(list, &at(name), problems);
        }
        check_elements(&self.proxy_jump, &at("proxy_jump"), problems);
        for (index, hop) in (0i64..).zip(self.proxy_jump.iter().flatten()) {
            if let Value::Value(hop) = hop {
                hop.check(&at("proxy_jump").index(index), self.home.as_deref(), problems);
            }
        }
        let keys = [&self.private_key, &self.private_key_path, &self.certificate_path];
        check_keys(keys, path, self.home.as_deref(), problems);
        // Without an agent, both belong to `ssh_key_pem` of the runner managers. Jump hosts also use the passphrase.
        if self.agent.is_value() {
            let of_key = [("certificate_path", &self.certificate_path)];
            check_needs_key([&self.private_key, &self.private_key_path], &of_key, path, problems);
        }
        for (name, list) in [("proxy_command", &self.proxy_command), ("ssh_command", &self.ssh_command)] {
            let Value::Value(arguments) = list else { continue };
            let arguments = command(arguments);
            let element = |index: usize| at(name).index(i64::try_from(index).unwrap_or(i64::MAX));
            if let Err((argument, problem)) = check::command(&arguments) {
                invalid(argument.map_or_else(|| at(name), element), &problem, problems);
            }
            // Another program may use them for something else.
            for (index, problem) in check::openssh_tokens(&arguments) {
                call().warn(values::ssh_option(element(index), &problem));
            }
        }
        type Check = fn(&str) -> Result<(), String>;
        for (name, list, check) in [
            ("host_keys", &self.host_keys, check::host_keys as Check),
            ("host_ca", &self.host_ca, check::host_authority),
        ] {
            for (index, element) in (0i64..).zip(list.iter().flatten()) {
                if let Value::Value(text) = element
                    && let Err(problem) = check(text)
                {
                    invalid(at(name).index(index), &problem, problems);
                }
            }
        }
        if let Some(text) = set(&self.known_hosts)
            && let Err(problem) = check::known_hosts(text.as_bytes())
        {
            invalid(at("known_hosts"), &problem, problems);
        }
        let home = self.home.as_deref();
        check_file(&self.known_hosts_path, at("known_hosts_path"), home, check::known_hosts_file);
    }

    /// Warns about the values of environment variables that a connection cannot use. Reads the files.
    pub(super) fn check_variables(&self) {
        for name in &self.variables {
            let text = |value: &Value<String>| set(value).unwrap_or_default();
            let path = |value| self.path(value).unwrap_or_default();
            let checked = match *name {
                "private_key" => check::private_key(&Secret::new(text(&self.private_key))),
                "private_key_path" => check::private_key_file(&path(&self.private_key_path)),
                "certificate_path" => check::certificate_file(&path(&self.certificate_path)),
                "known_hosts" => check::known_hosts(text(&self.known_hosts).as_bytes()),
                "known_hosts_path" => check::known_hosts_file(&path(&self.known_hosts_path)),
                "username" => check::short_text(&text(&self.username)),
                _ => check::short_text(&text(&self.passphrase)),
            };
            if let Err(problem) = checked {
                call().warn(values::ssh_variable(Attribute::Variable(name), &problem));
            }
        }
    }

    pub(crate) fn ignores_host_keys(&self) -> bool {
        self.insecure_ignore_host_key.unwrap_or(false)
    }

    pub(crate) fn settings(&self, max_handshakes: usize) -> ConnectionSettings {
        let time = |value: &Value<String>| set(value).and_then(|text| duration::parse(&text).ok());
        let list = |list: &Value<Vec<Value<String>>>| list.iter().flatten().filter_map(set).collect();
        ConnectionSettings {
            strategy: match (&self.proxy_jump, &self.proxy_command, &self.ssh_command) {
                (Value::Value(_), _, _) => Strategy::ProxyJump,
                (_, Value::Value(arguments), _) => Strategy::ProxyCommand(command(arguments)),
                (_, _, Value::Value(arguments)) => Strategy::SshCommand(command(arguments)),
                _ => Strategy::Direct,
            },
            trust: TrustSources {
                known_hosts: set(&self.known_hosts),
                known_hosts_variable: self.variables.contains(&"known_hosts"),
                known_hosts_files: self.known_hosts_files(),
                host_keys: list(&self.host_keys),
                host_ca: list(&self.host_ca),
                insecure_ignore_host_key: self.ignores_host_keys(),
            },
            // A value that became known only in the apply was not checked.
            connect_timeout: time(&self.connect_timeout).map(|timeout| timeout.max(SHORTEST_CONNECT.0)),
            call_timeout: time(&self.call_timeout),
            keepalive_interval: time(&self.keepalive_interval),
            max_handshakes: Some(max_handshakes),
        }
    }

    /// Whether the block has a user, which takes precedence over those of the runner managers.
    pub(super) fn has_username(&self) -> bool {
        set(&self.username).is_some()
    }

    /// The login to a runner manager with this user and key.
    pub(super) fn login(&self, username: Option<String>, private_key: Option<Secret>) -> Login {
        let of_entry = |text| CredentialSource {
            private_key: Some(KeySource::Text(text, Attribute::Manager("ssh_key_pem"))),
            passphrase: set(&self.passphrase).map(Secret::new),
            certificate_path: self.path(&self.certificate_path),
            agent: None,
        };
        Login {
            username: set(&self.username).or(username),
            credentials: self.credentials().or_else(|| private_key.map(of_entry)),
        }
    }

    /// The jump hosts. Missing values are those of `login`.
    pub(super) fn hops(&self, login: &Login) -> Vec<Hop> {
        let unknown = HopArgs::default();
        let hops = self.proxy_jump.iter().flatten().enumerate();
        let passphrase = set(&self.passphrase);
        let hop = |(index, hop): (usize, &Value<HopArgs>)| {
            let hop = hop.as_ref_option().unwrap_or(&unknown);
            hop.hop(index, login, passphrase.clone(), self.home.as_deref())
        };
        hops.map(hop).collect()
    }

    fn credentials(&self) -> Option<CredentialSource> {
        let text = set(&self.private_key)
            .map(|text| KeySource::Text(Secret::new(text), self.attribute("private_key")));
        let file = || {
            let path = self.path(&self.private_key_path)?;
            Some(KeySource::File(path, self.attribute("private_key_path")))
        };
        let private_key = text.or_else(file);
        let agent = self
            .agent
            .as_ref_option()
            .map(|agent| AgentSource { socket: self.path(&agent.socket), identity: set(&agent.identity) });
        (private_key.is_some() || agent.is_some()).then(|| CredentialSource {
            private_key,
            passphrase: set(&self.passphrase).map(Secret::new),
            certificate_path: self.path(&self.certificate_path),
            agent,
        })
    }

    fn path(&self, value: &Value<String>) -> Option<PathBuf> {
        set(value).map(|path| expand(path.as_ref(), self.home.as_deref()))
    }

    /// Whether the block has host keys other than `known_hosts_path` and `host_keys`.
    fn names_trust(&self) -> bool {
        set(&self.known_hosts).is_some()
            || self.host_ca.iter().flatten().any(|text| set(text).is_some())
            || self.ignores_host_keys()
    }

    /// The configured known_hosts file, or the default files if no host keys are configured.
    fn known_hosts_files(&self) -> Vec<PathBuf> {
        if let Some(path) = self.path(&self.known_hosts_path) {
            return vec![path];
        }
        if self.host_keys.iter().flatten().any(|text| set(text).is_some()) || self.names_trust() {
            return Vec::new();
        }
        KNOWN_HOSTS_FILES.iter().map(|path| expand(path.as_ref(), self.home.as_deref())).collect()
    }
}

/// The argument list of a command. A placeholder for unknown values keeps the order.
fn command(arguments: &[Value<String>]) -> Vec<String> {
    let argument = |value: &Value<String>| match value {
        Value::Value(text) => text.clone(),
        Value::Null => String::new(),
        Value::Unknown => UNKNOWN.to_owned(),
    };
    arguments.iter().map(argument).collect()
}

pub(super) fn schema(description: &str) -> SchemaAttribute {
    let agent = attribute_map! {
        socket: text => "Socket of the agent. Environment: `SSH_AUTH_SOCK`.",
        identity: text => "The key to use: its public key, `SHA256:` fingerprint or comment. Without it, at most five keys are tried.",
    };
    let proxy_jump = |description| optional(AttributeType::AttributeList(HopArgs::attributes()), description);
    object(attribute_map! {
        username: text =>
            "SSH user; takes precedence over `username` of a runner manager. Environment: `GRIT_SSH_USERNAME`.",
        private_key: secret =>
            "Private key; takes precedence over `ssh_key_pem` of a runner manager. Environment: `GRIT_SSH_PRIVATE_KEY`.",
        private_key_path: text => "File with a private key. Environment: `GRIT_SSH_PRIVATE_KEY_PATH`.",
        passphrase: secret => "Passphrase of the private key. Environment: `GRIT_SSH_PASSPHRASE`.",
        certificate_path: text =>
            "File with an OpenSSH user certificate for the private key. The certificate of a key in an agent must be in the agent \
             (`ssh-add` adds both). Environment: `GRIT_SSH_CERTIFICATE_PATH`.",
        agent: object(agent) => "Use a key from ssh-agent; `{}` uses the agent at `SSH_AUTH_SOCK`. If a private key is set too, the provider tries the private \
             key first.",
        known_hosts: text => "Host keys in `known_hosts` format. Environment: `GRIT_SSH_KNOWN_HOSTS`.",
        known_hosts_path: text =>
            "A `known_hosts` file. Environment: `GRIT_SSH_KNOWN_HOSTS_PATH`. If no host keys are configured, `~/.ssh/known_hosts` and \
             `/etc/ssh/ssh_known_hosts` are read.",
        host_keys: texts => "Host keys that are accepted for all runner managers: public keys and `SHA256:` fingerprints.",
        host_ca: texts => "Public keys of certificate authorities whose host certificates are accepted.",
        insecure_ignore_host_key: boolean =>
            "Accept any host key of a host without `host_key`. Man-in-the-middle attacks are then possible, and every plan and apply \
             shows a warning.",
        connect_timeout: text => &format!(
            "Timeout for establishing a connection, including the wait for other connections, jump hosts and all login attempts. Default `{}`; minimum `{}`.",
            human(CONNECT_TIMEOUT),
            SHORTEST_CONNECT.1
        ),
        call_timeout: text => &format!("Timeout of one call to a wrapper. Default `{}`.", human(CALL_TIMEOUT)),
        keepalive_interval: text => &format!(
            "Time without a packet after which the provider sends a keepalive message. After three such intervals without a reply (two \
             keepalive messages), the provider closes the session. Default `{}`.",
            human(KEEPALIVE_INTERVAL)
        ),
        proxy_jump: proxy_jump =>
            "Jump hosts, in order; the provider connects directly to the first one. Set at most one of `proxy_jump`, `proxy_command` and \
             `ssh_command`; without them, the connection is direct.",
        proxy_command: texts =>
            "Program and arguments; its standard input and output carry the SSH connection. It runs without a shell. Placeholders in \
             `{{ }}` are replaced (see the SSH guide).",
        ssh_command: texts =>
            "Program and arguments; its standard input and output are the connection to the wrapper, so the provider needs no user, key or \
             host key. It runs without a shell. Placeholders in `{{ }}` are replaced (see the SSH guide).",
    })(description)
}

#[cfg(test)]
mod tests;
