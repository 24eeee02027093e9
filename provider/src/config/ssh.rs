//! The `ssh` object of the provider block: how runner managers are reached.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::proxy_jump::HopArgs;
use crate::{
    args::{duration, timeouts::check_duration},
    schema::{
        Attribute, AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Value, attributes, optional,
        sensitive,
    },
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

pub(super) fn text(description: &str) -> Attribute {
    optional(AttributeType::String, description)
}

fn texts(description: &str) -> Attribute {
    optional(AttributeType::List(Box::new(AttributeType::String)), description)
}

/// A text that is set; the empty one counts as not set.
pub(super) fn set(value: &Value<String>) -> Option<String> {
    value.as_ref_option().filter(|text| !text.is_empty()).cloned()
}

pub(super) fn schema() -> Attribute {
    let agent = attributes([
        ("socket", text("Socket of the agent. Environment: `SSH_AUTH_SOCK`.")),
        (
            "identity",
            text(
                "The one key to use, by its public key, its `SHA256:` fingerprint or its comment. Without it five keys are tried at most.",
            ),
        ),
    ]);
    let ssh = attributes([
        (
            "username",
            text("SSH user; wins over `username` of a runner manager. Environment: `GRIT_SSH_USERNAME`."),
        ),
        (
            "private_key",
            sensitive(text(
                "Text of a private key; wins over `ssh_key_pem` of a runner manager. Environment: `GRIT_SSH_PRIVATE_KEY`.",
            )),
        ),
        ("private_key_path", text("File with a private key. Environment: `GRIT_SSH_PRIVATE_KEY_PATH`.")),
        ("passphrase", sensitive(text("Passphrase of the private key. Environment: `GRIT_SSH_PASSPHRASE`."))),
        (
            "certificate_path",
            text(
                "File with an OpenSSH user certificate of the private key. Environment: `GRIT_SSH_CERTIFICATE_PATH`.",
            ),
        ),
        (
            "agent",
            optional(
                AttributeType::AttributeSingle(agent),
                "Take the key from ssh-agent; `{}` asks the agent at `SSH_AUTH_SOCK`.",
            ),
        ),
        ("known_hosts", text("Lines in the format of `known_hosts`. Environment: `GRIT_SSH_KNOWN_HOSTS`.")),
        (
            "known_hosts_path",
            text(
                "A `known_hosts` file. Environment: `GRIT_SSH_KNOWN_HOSTS_PATH`. With no source of trust at all, \
                 `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts` are read.",
            ),
        ),
        (
            "host_keys",
            texts("Public keys and `SHA256:` fingerprints that are accepted from any runner manager."),
        ),
        ("host_ca", texts("Public keys of authorities whose host certificates are accepted.")),
        (
            "insecure_ignore_host_key",
            optional(
                AttributeType::Bool,
                "Accept any host key. Whoever answers at the address gets the commands; warned about at every run.",
            ),
        ),
        ("connect_timeout", text("The longest time to an open tunnel. Default `30s`.")),
        ("call_timeout", text("The longest time that one call to a wrapper may take. Default `10s`.")),
        (
            "keepalive_interval",
            text(
                "After this long without a packet the server is asked whether it lives; after three unanswered questions the session \
                 ends. Default `10s`.",
            ),
        ),
        (
            "proxy_jump",
            optional(
                AttributeType::AttributeList(HopArgs::attributes()),
                "SSH servers on the way, in order; the first one is connected to directly. At most one of `proxy_jump`, `proxy_command` \
                 and `ssh_command`.",
            ),
        ),
        (
            "proxy_command",
            texts(
                "Program and arguments; its standard input and output carry the SSH connection. No shell; names in `{{ }}`.",
            ),
        ),
        (
            "ssh_command",
            texts(
                "Program and arguments; its standard input and output are the connection to the wrapper, so neither user nor key nor \
                 host key is needed. No shell; names in `{{ }}`.",
            ),
        ),
    ]);
    optional(
        AttributeType::AttributeSingle(ssh),
        "How the runner managers are reached. What is set here wins over the entry of a runner manager.",
    )
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
                "Two private keys",
                "`private_key` and `private_key_path` exclude each other: give one of them.",
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
                    "Two ways to the runner managers",
                    format!("`{first}` and `{other}` exclude each other: give one of them, or none for a direct connection."),
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
            diags.fail_at(path_of(&attribute), "Invalid SSH option", format!("`{attribute}`: {problem}."));
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
        let detail = format!("`{path}`: {text:?} is too short for any connection: give 100ms or more.");
        diags.fail_at(path, "Duration is too short", detail);
    }
}

fn check_elements<T>(list: &Value<Vec<Value<T>>>, path: &AttributePath, diags: &mut Diagnostics) {
    for (index, element) in (0i64..).zip(list.iter().flatten()) {
        if element.is_null() {
            diags.fail_at(
                path.clone().index(index),
                "Element is null",
                "Leave the element out, or give it a value.",
            );
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
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_the_names_that_the_transport_gives() {
        let ssh = || AttributePath::new("ssh");
        assert_eq!(path_of("ssh.private_key"), ssh().attribute("private_key"));
        assert_eq!(path_of("ssh.proxy_command[1]"), ssh().attribute("proxy_command").index(1));
        let hop = ssh().attribute("proxy_jump").index(0).attribute("host_key");
        assert_eq!(path_of("ssh.proxy_jump[0].host_key"), hop);
    }

    #[test]
    fn what_is_unknown_keeps_the_rest_from_no_check() {
        let value = |text: &str| Value::Value(text.to_owned());
        let command = vec![value("ssh"), Value::Unknown, value("{{hots}}")];
        let args = SshArgs { proxy_command: Value::Value(command), ..SshArgs::default() };
        assert!(!args.is_known());
        let mut diags = Diagnostics::default();
        args.check(&AttributePath::new("ssh"), None, &mut diags);
        let paths: Vec<_> = diags.errors.into_iter().map(|error| error.attribute).collect();
        assert_eq!(paths, [path_of("ssh.proxy_command[2]")]);
    }

    #[test]
    fn each_error_has_the_path_of_its_attribute() {
        let value = |text: &str| Value::Value(text.to_owned());
        let args = SshArgs {
            private_key_path: value("/nonexistent/key"),
            call_timeout: value("10"),
            host_ca: Value::Value(vec![value("no key")]),
            proxy_jump: Value::Value(vec![Value::Value(HopArgs::default()), Value::Null]),
            ssh_command: Value::Value(vec![value("nc"), Value::Null]),
            ..SshArgs::default()
        };
        let mut diags = Diagnostics::default();
        args.check(&AttributePath::new("ssh"), None, &mut diags);
        let paths: Vec<_> = diags.errors.into_iter().map(|error| error.attribute).collect();
        let wanted = [
            "ssh.call_timeout",
            "ssh.ssh_command",
            "ssh.ssh_command[1]",
            "ssh.proxy_jump[1]",
            "ssh.private_key_path",
            "ssh.host_ca[0]",
        ];
        assert_eq!(paths, wanted.map(path_of));
    }

    #[test]
    fn limits_of_nothing_are_refused() {
        let value = |text: &str| Value::Value(text.to_owned());
        let check = |text: &str| {
            let args = SshArgs {
                connect_timeout: value(text),
                call_timeout: value(text),
                keepalive_interval: value(text),
                ..SshArgs::default()
            };
            let mut diags = Diagnostics::default();
            args.check(&AttributePath::new("ssh"), None, &mut diags);
            diags.errors.into_iter().map(|error| error.attribute).collect::<Vec<_>>()
        };
        assert_eq!(check("100ms"), []);
        let all = ["ssh.connect_timeout", "ssh.call_timeout", "ssh.keepalive_interval"].map(path_of);
        for short in ["0s", "0h", "99ms", "0.01s"] {
            assert_eq!(check(short), all, "{short}");
        }
        assert_eq!(check(""), all, "an empty text is no duration");
    }

    /// As modules write it whose variables default to the empty text.
    #[test]
    fn an_empty_text_is_as_good_as_none() {
        let (value, empty) = (|text: &str| Value::Value(text.to_owned()), || Value::Value(String::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let keygen = std::process::Command::new("ssh-keygen");
        let made = { keygen }.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status().unwrap();
        assert!(made.success());
        let args = SshArgs {
            username: empty(),
            private_key: empty(),
            private_key_path: value(path.to_str().unwrap()),
            passphrase: empty(),
            certificate_path: empty(),
            known_hosts: empty(),
            known_hosts_path: empty(),
            ..SshArgs::default()
        };
        let mut diags = Diagnostics::default();
        args.check(&AttributePath::new("ssh"), None, &mut diags);
        assert_eq!(diags.errors.len(), 0, "{:?}", diags.errors);
        let options = args.options();
        assert!(options.username.is_none() && options.private_key.is_none() && options.passphrase.is_none());
    }

    #[test]
    fn something_unknown_in_a_hop_makes_all_unknown() {
        let hop = |hop| SshArgs { proxy_jump: Value::Value(vec![hop]), ..SshArgs::default() };
        assert!(hop(Value::Value(HopArgs::default())).is_known());
        assert!(!hop(Value::Unknown).is_known());
        let mut unknown = HopArgs::default();
        unknown.passphrase = Value::Unknown;
        assert!(!hop(Value::Value(unknown)).is_known());
        let agent = AgentArgs { identity: Value::Unknown, ..AgentArgs::default() };
        assert!(!SshArgs { agent: Value::Value(agent), ..SshArgs::default() }.is_known());
    }
}
