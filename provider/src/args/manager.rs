//! The runner manager object: GRIT's `grit_runner_managers` contract.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{
    schema::{
        Attribute, AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Value, attributes, optional,
        required, sensitive,
    },
    transport::{HostPort, Secret, Target, WrapperAddress},
};

/// One runner manager, as GRIT's modules put it out: an entry of the map, or the object of a drain.
///
/// It has no `Debug`: `ssh_key_pem` may hold a private key.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunnerManagerArgs {
    pub instance_name: Value<String>,
    pub address: Value<String>,
    pub wrapper_address: Value<String>,
    pub username: Value<String>,
    pub ssh_key_pem: Value<String>,
    pub instance_id: Value<String>,
    pub host_key: Value<String>,
}

/// `map(object({…}))` by manager key.
pub type RunnerManagers = Value<BTreeMap<String, Value<RunnerManagerArgs>>>;

/// An address in the state that no longer parses; the validator of an earlier release let it pass, or somebody edited the state.
#[derive(Debug, thiserror::Error)]
#[error("attribute `{attribute}`: {problem}")]
pub struct InvalidManager {
    attribute: &'static str,
    problem: String,
}

impl RunnerManagerArgs {
    pub fn attributes() -> HashMap<String, Attribute> {
        attributes([
            ("instance_name", required(AttributeType::String, "Name of the instance.")),
            (
                "address",
                required(
                    AttributeType::String,
                    "Host name or IP address where SSH answers, with or without a port (default 22).",
                ),
            ),
            (
                "wrapper_address",
                required(
                    AttributeType::String,
                    "Where the wrapper listens on that host: `unix:///path/to/socket` or `tcp://host:port`.",
                ),
            ),
            ("username", optional(AttributeType::String, "SSH user, unless the provider block names one.")),
            (
                "ssh_key_pem",
                sensitive(optional(
                    AttributeType::String,
                    "SSH private key, unless the provider block names one. **It is stored in the state**: prefer `ssh` in the \
                 provider block.",
                )),
            ),
            ("instance_id", optional(AttributeType::String, "The cloud's identifier of the instance.")),
            (
                "host_key",
                optional(
                    AttributeType::String,
                    "The key that the host must show: a public key, a `SHA256:` fingerprint, or several, one a line.",
                ),
            ),
        ])
    }

    /// Refuses addresses that cannot be meant. Unknown ones pass until they are known.
    pub fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_parsed::<HostPort>(&self.address, path.clone().attribute("address"), diags);
        check_parsed::<WrapperAddress>(
            &self.wrapper_address,
            path.clone().attribute("wrapper_address"),
            diags,
        );
    }

    /// The manager as the transport takes it. `key` names it in every message.
    pub fn target(&self, key: &str) -> Result<Target, InvalidManager> {
        Ok(Target {
            manager: key.to_owned(),
            instance_name: text(&self.instance_name).unwrap_or_default(),
            instance_id: text(&self.instance_id),
            address: parsed("address", &self.address)?,
            wrapper_address: parsed("wrapper_address", &self.wrapper_address)?,
            username: text(&self.username),
            private_key: text(&self.ssh_key_pem).map(Secret::new),
            host_key: text(&self.host_key),
        })
    }

    /// Whether every attribute is known.
    pub fn is_known(&self) -> bool {
        [
            &self.instance_name,
            &self.address,
            &self.wrapper_address,
            &self.username,
            &self.ssh_key_pem,
            &self.instance_id,
            &self.host_key,
        ]
        .iter()
        .all(|value| !value.is_unknown())
    }
}

/// Checks each entry of a map at its own path.
pub fn check_all(managers: &RunnerManagers, path: &AttributePath, diags: &mut Diagnostics) {
    for (key, manager) in managers.iter().flatten() {
        let path = path.clone().key(key.clone());
        match manager {
            Value::Value(manager) => manager.check(&path, diags),
            Value::Null => {
                diags.fail_at(path, "Runner manager is null", "Every entry of the map is an object.");
            }
            Value::Unknown => {}
        }
    }
}

/// An optional text; empty counts as not set, as in GRIT's modules (`optional(string, "")`).
fn text(value: &Value<String>) -> Option<String> {
    value.as_ref_option().filter(|text| !text.is_empty()).cloned()
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(
    attribute: &'static str,
    value: &Value<String>,
) -> Result<T, InvalidManager> {
    let text = value.as_ref_option().map_or("", String::as_str);
    text.parse().map_err(|error: T::Err| InvalidManager { attribute, problem: error.to_string() })
}

fn check_parsed<T: FromStr<Err: std::fmt::Display>>(
    value: &Value<String>,
    path: AttributePath,
    diags: &mut Diagnostics,
) {
    if let Value::Value(text) = value
        && let Err(error) = text.parse::<T>()
    {
        let detail = format!("`{path}`: {error}.");
        diags.fail_at(path, "Malformed address", detail);
    }
}
