//! The `ssh` object of the provider block.
//!
//! **Values of this object take precedence over the runner manager**; environment variables are used if it has no value.

use std::{path::PathBuf, time::Duration};

use grit_plugin::{
    Problems, call,
    schema::{AttributePath, Value, boolean, object, objects, text, texts},
};
use grit_ssh::{
    AgentSource, Attribute, CALL_TIMEOUT, CONNECT_TIMEOUT, ConnectionSettings, CredentialSource, Hop,
    KEEPALIVE_INTERVAL, KeySource, Login, Secret, Strategy, TrustSources, check, expand,
};

use super::{
    agent::AgentArgs,
    object::{check_elements, check_object, object},
    private_key::KeyArgs,
    proxy_jump::HopArgs,
    ssh_checks::{
        check_each, check_file, check_host_authority, check_host_keys, check_known_hosts, check_option,
    },
    text::{UNKNOWN, set},
    timeouts::{SHORTEST_DELAY, check_at_least},
};
use crate::{
    duration::{self, human},
    explain::values,
};

object! {
    /// Has no `Debug`, because it contains secrets.
    pub(crate) struct SshArgs {
        username: Value<String> = text =>
            "SSH user; takes precedence over `username` of a runner manager. Environment: `GRIT_SSH_USERNAME`.";
        agent: Value<AgentArgs> = object(AgentArgs::attributes()) =>
            "Use a key from ssh-agent; `{}` uses the agent at `SSH_AUTH_SOCK`. If a private key is also set, the provider tries it \
             first.", check_object;
        known_hosts: Value<String> = text =>
            "Host keys in `known_hosts` format. Environment: `GRIT_SSH_KNOWN_HOSTS`.", check_known_hosts;
        known_hosts_path: Value<String> = text =>
            "A `known_hosts` file. Environment: `GRIT_SSH_KNOWN_HOSTS_PATH`. If no host keys are configured, `~/.ssh/known_hosts`, \
             `~/.ssh/known_hosts2` and `/etc/ssh/ssh_known_hosts` are read.";
        host_keys: Value<Vec<Value<String>>> = texts =>
            "Host keys that are accepted for all runner managers: public keys and `SHA256:` fingerprints.",
            check_each(check_host_keys);
        host_ca: Value<Vec<Value<String>>> = texts =>
            "Public keys of certificate authorities whose host certificates are accepted.", check_each(check_host_authority);
        insecure_ignore_host_key: Value<bool> = boolean =>
            "Accept any host key of a host without `host_key`. This allows man-in-the-middle attacks. Every plan and apply shows a \
             warning.";
        connect_timeout: Value<String> = text => format!(
            "Timeout for establishing a connection, including the wait for other connections, jump hosts and all login attempts. Default `{}`; minimum `{}`.",
            human(CONNECT_TIMEOUT),
            SHORTEST_CONNECT.1
        ), check_at_least(SHORTEST_CONNECT);
        call_timeout: Value<String> = text =>
            format!("Timeout of one call to a wrapper. Default `{}`.", human(CALL_TIMEOUT)), check_at_least(SHORTEST_DELAY);
        keepalive_interval: Value<String> = text => format!(
            "Keepalive interval: the provider sends a keepalive message if it has received no packet from the server for this time. After \
             three intervals without a packet, the provider closes the session. Default `{}`.",
            human(KEEPALIVE_INTERVAL)
        ), check_at_least(SHORTEST_DELAY);
        proxy_jump: Value<Vec<Value<HopArgs>>> = objects(HopArgs::attributes()) =>
            "Jump hosts, in order; the provider connects directly to the first one. Set at most one of `proxy_jump`, `proxy_command` and \
             `ssh_command`; without them, the connection is direct.", check_elements;
        proxy_command: Value<Vec<Value<String>>> = texts =>
            "Program and arguments; its standard input and output carry the SSH connection. It runs without a shell. Placeholders in \
             `{{ }}` are replaced (see the SSH guide).", check_command;
        pub(super) ssh_command: Value<Vec<Value<String>>> = texts =>
            "Program and arguments; its standard input and output are the connection to the wrapper, so the provider needs no user, key or \
             host key. It runs without a shell. Placeholders in `{{ }}` are replaced (see the SSH guide).", check_command;
        /// The directory that replaces `~` in paths.
        #[serde(skip)]
        home: Option<PathBuf>;
        /// The attributes that an environment variable has set.
        #[serde(skip)]
        variables: Vec<&'static str>;
        ..key: KeyArgs(
            "Private key; takes precedence over `ssh_key_pem` of a runner manager. Environment: `GRIT_SSH_PRIVATE_KEY`.",
            "File with a private key. Environment: `GRIT_SSH_PRIVATE_KEY_PATH`.",
            "Passphrase of the private key. Environment: `GRIT_SSH_PASSPHRASE`.",
            "File with an OpenSSH user certificate for the private key. The certificate of a key in an agent must be in the agent \
             (`ssh-add` adds both). Environment: `GRIT_SSH_CERTIFICATE_PATH`."
        );
    }
    check: SshArgs::check_together;
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
            fill(&mut self.key.private_key, "private_key");
            fill(&mut self.key.private_key_path, "private_key_path");
            fill(&mut self.key.certificate_path, "certificate_path");
        }
        fill(&mut self.key.passphrase, "passphrase");
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

    /// Reads the files.
    fn check_together(&self, path: &AttributePath, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
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
        let home = self.home.as_deref();
        for (index, hop) in (0i64..).zip(self.proxy_jump.iter().flatten()) {
            if let Value::Value(hop) = hop {
                hop.check_in(home, &at("proxy_jump").index(index), problems);
            }
        }
        self.key.check_files(path, home);
        // Without an agent, both belong to `ssh_key_pem` of the runner managers. Jump hosts also use the passphrase.
        if self.agent.is_value() {
            let of_key = [("certificate_path", &self.key.certificate_path)];
            self.key.check_needs_key(&of_key, path, problems);
        }
        check_file(&self.known_hosts_path, &at("known_hosts_path"), home, check::known_hosts_file);
    }

    /// Warns about the values of environment variables that a connection cannot use. Reads the files.
    pub(super) fn check_variables(&self) {
        for name in &self.variables {
            let text = |value: &Value<String>| set(value).unwrap_or_default();
            let path = |value| self.path(value).unwrap_or_default();
            let checked = match *name {
                "private_key" => check::private_key(&Secret::new(text(&self.key.private_key))),
                "private_key_path" => check::private_key_file(&path(&self.key.private_key_path)),
                "certificate_path" => check::certificate_file(&path(&self.key.certificate_path)),
                "known_hosts" => check::known_hosts(text(&self.known_hosts).as_bytes()),
                "known_hosts_path" => check::known_hosts_file(&path(&self.known_hosts_path)),
                "username" => check::short_text(&text(&self.username)),
                _ => check::short_text(&text(&self.key.passphrase)),
            };
            if let Err(problem) = checked {
                call().warn(values::ssh_variable(Attribute::Variable(name), &problem));
            }
        }
    }

    pub(crate) fn ignores_host_keys(&self) -> bool {
        self.insecure_ignore_host_key.unwrap_or(false)
    }

    pub(super) fn strategy(&self) -> Strategy {
        match (&self.proxy_jump, &self.proxy_command, &self.ssh_command) {
            (Value::Value(_), _, _) => Strategy::ProxyJump,
            (_, Value::Value(arguments), _) => Strategy::ProxyCommand(command(arguments)),
            (_, _, Value::Value(arguments)) => Strategy::SshCommand(command(arguments)),
            _ => Strategy::Direct,
        }
    }

    pub(crate) fn settings(&self, max_handshakes: usize) -> ConnectionSettings {
        let time = |value: &Value<String>| set(value).and_then(|text| duration::parse(&text).ok());
        let list = |list: &Value<Vec<Value<String>>>| list.iter().flatten().filter_map(set).collect();
        ConnectionSettings {
            strategy: self.strategy(),
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
        let of_entry = |text| {
            let key = KeySource::Text(text, Attribute::Manager("ssh_key_pem"));
            self.key.credentials(Some(key), self.home.as_deref())
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
        let passphrase = set(&self.key.passphrase);
        let hop = |(index, hop): (usize, &Value<HopArgs>)| {
            let hop = hop.as_ref_option().unwrap_or(&unknown);
            hop.hop(index, login, passphrase.clone(), self.home.as_deref())
        };
        hops.map(hop).collect()
    }

    fn credentials(&self) -> Option<CredentialSource> {
        let private_key = self.key.source(|name| self.attribute(name), self.home.as_deref());
        let agent = self
            .agent
            .as_ref_option()
            .map(|agent| AgentSource { socket: self.path(&agent.socket), identity: set(&agent.identity) });
        (private_key.is_some() || agent.is_some())
            .then(|| CredentialSource { agent, ..self.key.credentials(private_key, self.home.as_deref()) })
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

fn check_command(list: &Value<Vec<Value<String>>>, path: &AttributePath, problems: &mut Problems) {
    check_elements(list, path, problems);
    let Value::Value(arguments) = list else { return };
    let arguments = command(arguments);
    let element = |index: usize| path.clone().index(i64::try_from(index).unwrap_or(i64::MAX));
    if let Err((argument, problem)) = check::command(&arguments) {
        check_option(Err(problem), &argument.map_or_else(|| path.clone(), element), problems);
    }
    // Another program may use them for something else.
    for (index, problem) in check::doubtful_arguments(&arguments) {
        call().warn(values::ssh_option(element(index), &problem));
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

#[cfg(test)]
mod tests;
