//! The attributes of the provider block.

use std::{num::NonZeroUsize, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    args::{duration, retry::RetryArgs, timeouts::check_duration},
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Schema, Value, attributes, optional,
        schema as schema_of, sensitive,
    },
    transport::{Secret, SshOptions, TrustOptions},
};

/// Managers that one operation works on at a time. Equal to the transport's limit of handshakes: more would only queue there.
const MAX_PARALLEL: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// The provider block. It has no `Debug`: it holds secrets.
#[derive(Default, Deserialize)]
pub struct ProviderArgs {
    ssh: Value<SshArgs>,
    pub(super) retry: Value<RetryArgs>,
    max_parallel: Value<i64>,
}

/// The `ssh` object.
#[derive(Clone, Default, Serialize, Deserialize)]
struct SshArgs {
    username: Value<String>,
    private_key: Value<String>,
    private_key_path: Value<String>,
    passphrase: Value<String>,
    known_hosts: Value<String>,
    known_hosts_path: Value<String>,
    host_keys: Value<Vec<Value<String>>>,
    insecure_ignore_host_key: Value<bool>,
    connect_timeout: Value<String>,
    keepalive_interval: Value<String>,
}

pub(super) fn schema() -> Schema {
    let text = |description| optional(AttributeType::String, description);
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
            optional(
                AttributeType::List(Box::new(AttributeType::String)),
                "Public keys and `SHA256:` fingerprints that are accepted from any runner manager.",
            ),
        ),
        (
            "insecure_ignore_host_key",
            optional(
                AttributeType::Bool,
                "Accept any host key. Whoever answers at the address gets the commands; warned about at every run.",
            ),
        ),
        ("connect_timeout", text("The longest time to an open tunnel. Default `30s`.")),
        (
            "keepalive_interval",
            text(
                "After this long without a packet the server is asked whether it lives; after three unanswered questions the session \
             ends. Default `10s`.",
            ),
        ),
    ]);
    schema_of(
        0,
        "Zero-downtime updates of GitLab Runner managers inside `terraform apply`.",
        [
            (
                "ssh",
                optional(
                    AttributeType::AttributeSingle(ssh),
                    "How the runner managers are reached. What is set here wins over the entry of a runner manager.",
                ),
            ),
            (
                "retry",
                optional(
                    AttributeType::AttributeSingle(RetryArgs::attributes("see the resources")),
                    "What to do about connections that fail, unless a resource says otherwise.",
                ),
            ),
            (
                "max_parallel",
                optional(
                    AttributeType::Number,
                    "Runner managers that one resource works on at a time. Default 64.",
                ),
            ),
        ],
    )
}

impl ProviderArgs {
    pub(super) fn check(&self, diags: &mut Diagnostics) {
        if let Value::Value(ssh) = &self.ssh {
            ssh.check(&AttributePath::new("ssh"), diags);
        }
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        if let Value::Value(limit) = self.max_parallel
            && !(1..=10_000).contains(&limit)
        {
            diags.fail_at(
                AttributePath::new("max_parallel"),
                "Invalid limit",
                format!("{limit} managers cannot be worked on at a time: give a number from 1 to 10000."),
            );
        }
    }

    pub(super) fn is_known(&self) -> bool {
        let ssh = match &self.ssh {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(ssh) => ssh.is_known(),
        };
        ssh && !self.retry.is_unknown() && !self.max_parallel.is_unknown()
    }

    pub(super) fn max_parallel(&self) -> NonZeroUsize {
        let set = self.max_parallel.as_option().and_then(|limit| usize::try_from(limit).ok());
        set.and_then(NonZeroUsize::new).unwrap_or(MAX_PARALLEL)
    }

    pub(super) fn ssh_options(&self) -> SshOptions {
        self.ssh.as_ref_option().map(SshArgs::options).unwrap_or_default()
    }
}

impl SshArgs {
    fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_duration(&self.connect_timeout, path.clone().attribute("connect_timeout"), diags);
        check_duration(&self.keepalive_interval, path.clone().attribute("keepalive_interval"), diags);
        if self.private_key.is_value() && self.private_key_path.is_value() {
            diags.fail_at(
                path.clone().attribute("private_key_path"),
                "Two private keys",
                "`private_key` and `private_key_path` exclude each other: give one of them.",
            );
        }
    }

    fn is_known(&self) -> bool {
        let host_keys = match &self.host_keys {
            Value::Unknown => false,
            Value::Null => true,
            Value::Value(keys) => keys.iter().all(|key| !key.is_unknown()),
        };
        host_keys
            && !self.insecure_ignore_host_key.is_unknown()
            && [
                &self.username,
                &self.private_key,
                &self.private_key_path,
                &self.passphrase,
                &self.known_hosts,
                &self.known_hosts_path,
                &self.connect_timeout,
                &self.keepalive_interval,
            ]
            .iter()
            .all(|value| !value.is_unknown())
    }

    fn options(&self) -> SshOptions {
        let text = |value: &Value<String>| value.as_ref_option().filter(|text| !text.is_empty()).cloned();
        let time = |value: &Value<String>| text(value).and_then(|text| duration::parse(&text).ok());
        SshOptions {
            username: text(&self.username),
            private_key: text(&self.private_key).map(Secret::new),
            private_key_path: text(&self.private_key_path).map(PathBuf::from),
            passphrase: text(&self.passphrase).map(Secret::new),
            trust: TrustOptions {
                known_hosts: text(&self.known_hosts),
                known_hosts_path: text(&self.known_hosts_path).map(PathBuf::from),
                host_keys: self.host_keys.iter().flatten().filter_map(text).collect(),
                insecure_ignore_host_key: self.insecure_ignore_host_key.unwrap_or(false),
                ..TrustOptions::default()
            },
            connect_timeout: time(&self.connect_timeout),
            keepalive_interval: time(&self.keepalive_interval),
            ..SshOptions::default()
        }
    }
}
