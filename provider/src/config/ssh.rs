//! The `ssh` object of the provider block: how runner managers are reached.

mod schema;

pub(super) use schema::{schema, text};

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{proxy_jump::HopArgs, timeouts::check_duration};
use crate::{
    duration,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Value},
    transport::{AgentOptions, InvalidOption, Secret, SshOptions, StrategyOptions, TrustOptions},
};

/// It has no `Debug`: it holds secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct SshArgs {
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
}

/// `agent = { socket, identity }`.
#[derive(Clone, Default, Serialize, Deserialize)]
struct AgentArgs {
    socket: Value<String>,
    identity: Value<String>,
}

/// What stands for a value that is not known yet, so that what surrounds it can be checked. No host has this name (RFC 2606).
pub(super) const UNKNOWN: &str = "unknown.invalid";

/// The least that a limit may be. Keepalives more often than that would be a flood.
const SHORTEST: Duration = Duration::from_millis(100);

/// A text that is set; the empty one counts as not set.
pub(super) fn set(value: &Value<String>) -> Option<String> {
    value.as_ref_option().filter(|text| !text.is_empty()).cloned()
}

impl SshArgs {
    /// Everything that can be known to be wrong without a connection, each at its attribute. Reads the files that are named; `home` is
    /// what `~` in their paths stands for.
    pub(super) fn check(&self, path: &AttributePath, home: Option<PathBuf>, diags: &mut Diagnostics) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_limit(&self.connect_timeout, at("connect_timeout"), diags);
        check_limit(&self.call_timeout, at("call_timeout"), diags);
        check_limit(&self.keepalive_interval, at("keepalive_interval"), diags);
        if set(&self.private_key).is_some() && set(&self.private_key_path).is_some() {
            diags.fail_at(
                at("private_key_path"),
                "Conflicting private keys",
                "Set only one of `ssh.private_key` and `ssh.private_key_path`.",
            );
        }
        let strategies = [
            ("proxy_jump", self.proxy_jump.is_value()),
            ("proxy_command", self.proxy_command.is_value()),
            ("ssh_command", self.ssh_command.is_value()),
        ];
        let mut chosen = strategies.into_iter().filter_map(|(name, is_set)| is_set.then_some(name));
        if let Some(first) = chosen.next() {
            for other in chosen {
                diags.fail_at(
                    at(other),
                    "Conflicting connection methods",
                    format!(
                        "Set only one of `ssh.{first}` and `ssh.{other}`, or neither for a direct connection."
                    ),
                );
            }
        }
        for (name, list) in [
            ("host_keys", &self.host_keys),
            ("host_ca", &self.host_ca),
            ("proxy_command", &self.proxy_command),
            ("ssh_command", &self.ssh_command),
        ] {
            check_elements(list, &at(name), diags);
        }
        check_elements(&self.proxy_jump, &at("proxy_jump"), diags);
        for (index, hop) in (0i64..).zip(self.proxy_jump.iter().flatten()) {
            if let Value::Value(hop) = hop {
                hop.check(&at("proxy_jump").index(index), diags);
            }
        }
        for InvalidOption { attribute, problem } in (SshOptions { home, ..self.options() }).check() {
            let at = path_of(&attribute);
            if attribute.ends_with("_path") {
                // Credentials matter when something connects. A plan of drains alone connects to nothing.
                let detail = format!("`{attribute}`: {problem}. Connections that need this file will fail.");
                diags.warn_at(at, "SSH file cannot be used", detail);
            } else {
                diags.fail_at(at, "Invalid SSH option", format!("`{attribute}`: {problem}."));
            }
        }
    }

    pub(super) fn is_known(&self) -> bool {
        let agent = match &self.agent {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(agent) => !agent.socket.is_unknown() && !agent.identity.is_unknown(),
        };
        agent
            && !self.insecure_ignore_host_key.is_unknown()
            && is_list_known(&self.proxy_jump, HopArgs::is_known)
            && [&self.host_keys, &self.host_ca, &self.proxy_command, &self.ssh_command]
                .iter()
                .all(|list| is_list_known(list, |_| true))
            && [
                &self.username,
                &self.private_key,
                &self.private_key_path,
                &self.passphrase,
                &self.certificate_path,
                &self.known_hosts,
                &self.known_hosts_path,
                &self.connect_timeout,
                &self.call_timeout,
                &self.keepalive_interval,
            ]
            .iter()
            .all(|value| !value.is_unknown())
    }

    /// The options as the transport takes them. What is unknown is left out, or has a stand-in where its place in a list counts.
    pub(super) fn options(&self) -> SshOptions {
        let time = |value: &Value<String>| set(value).and_then(|text| duration::parse(&text).ok());
        SshOptions {
            username: set(&self.username),
            private_key: set(&self.private_key).map(Secret::new),
            private_key_path: set(&self.private_key_path).map(PathBuf::from),
            passphrase: set(&self.passphrase).map(Secret::new),
            certificate_path: set(&self.certificate_path).map(PathBuf::from),
            agent: self.agent.as_ref_option().map(|agent| AgentOptions {
                socket: set(&agent.socket).map(PathBuf::from),
                identity: set(&agent.identity),
            }),
            trust: TrustOptions {
                known_hosts: set(&self.known_hosts),
                known_hosts_path: set(&self.known_hosts_path).map(PathBuf::from),
                host_keys: self.host_keys.iter().flatten().filter_map(set).collect(),
                host_ca: self.host_ca.iter().flatten().filter_map(set).collect(),
                insecure_ignore_host_key: self.insecure_ignore_host_key.unwrap_or(false),
            },
            strategy: self.strategy(),
            connect_timeout: time(&self.connect_timeout),
            call_timeout: time(&self.call_timeout),
            keepalive_interval: time(&self.keepalive_interval),
            ..SshOptions::default()
        }
    }

    fn strategy(&self) -> StrategyOptions {
        let argv = |list: &[Value<String>]| {
            let argument = |value: &Value<String>| match value {
                Value::Value(text) => text.clone(),
                Value::Null => String::new(),
                Value::Unknown => UNKNOWN.to_owned(),
            };
            list.iter().map(argument).collect()
        };
        if let Value::Value(hops) = &self.proxy_jump {
            let unknown = HopArgs::default();
            let hops = hops.iter().map(|hop| hop.as_ref_option().unwrap_or(&unknown).options());
            return StrategyOptions::ProxyJump(hops.collect());
        }
        match (&self.proxy_command, &self.ssh_command) {
            (Value::Value(list), _) => StrategyOptions::ProxyCommand(argv(list)),
            (_, Value::Value(list)) => StrategyOptions::SshCommand(argv(list)),
            _ => StrategyOptions::Direct,
        }
    }
}

/// A time in which something has to be done. Nothing can be done in none at all.
fn check_limit(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    check_duration(value, path.clone(), diags);
    if let Value::Value(text) = value
        && duration::parse(text).is_ok_and(|time| time < SHORTEST)
    {
        let detail = format!("`{path}` is {text:?}; it must be at least 100ms.");
        diags.fail_at(path, "Duration is too short", detail);
    }
}

fn check_elements<T>(list: &Value<Vec<Value<T>>>, path: &AttributePath, diags: &mut Diagnostics) {
    for (index, element) in (0i64..).zip(list.iter().flatten()) {
        if element.is_null() {
            let path = path.clone().index(index);
            let detail = format!("`{path}` is null. Remove the element, or set a value.");
            diags.fail_at(path, "Element is null", detail);
        }
    }
}

fn is_list_known<T>(list: &Value<Vec<Value<T>>>, is_known: impl Fn(&T) -> bool) -> bool {
    match list {
        Value::Unknown => false,
        Value::Null => true,
        Value::Value(list) => list.iter().all(|element| match element {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(element) => is_known(element),
        }),
    }
}

/// The path that the transport wrote as text: `ssh.proxy_jump[0].host_key`.
fn path_of(attribute: &str) -> AttributePath {
    attribute.split('.').fold(AttributePath::root(), |path, step| {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let path = path.attribute(name.to_owned());
        match index.trim_end_matches(']').parse::<i64>() {
            Ok(index) => path.index(index),
            Err(_) => path,
        }
    })
}

#[cfg(test)]
mod tests;
