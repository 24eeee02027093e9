//! The runner manager object: GRIT's `grit_runner_managers` contract.

use grit_ssh::{
    AddressError, HostPort, SSH_PORT, Secret, Selectors, Target, WrapperAddress, check, identity,
};
use std::collections::BTreeMap;

use grit_plugin::{
    Problems, attribute_map,
    schema::{
        Attribute, AttributePath, AttributeType, Attributes, Value, required, required_text, secret, text,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    provider_block::Configured,
    text::{check_address, check_set, check_text, set},
};
use crate::{client::WrapperClient, explain::values};

/// One runner manager of GRIT's modules: an entry of the map, or the object of a drain.
///
/// Has no `Debug`: `ssh_key_pem` may contain a private key.
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
pub(crate) type RunnerManagers = Value<BTreeMap<String, Value<RunnerManagerArgs>>>;

/// An address that is missing or malformed: it was unknown at plan, or the state was edited.
#[derive(Debug, thiserror::Error)]
#[error("`{attribute}`: {problem}")]
pub(crate) struct InvalidManager {
    pub(crate) attribute: &'static str,
    pub(crate) problem: AddressError,
}

impl RunnerManagerArgs {
    pub fn attributes() -> Attributes {
        attribute_map! {
            instance_name: required_text =>
                "Name of the instance. It is part of the `id` of a drain resource, which Terraform prints even if the name is marked as \
                 sensitive: do not put a secret into it.",
            address: required_text => &format!(
                "Host name or IP address of the SSH server, with or without a port (default {SSH_PORT}). An IPv6 address with a port needs \
                 brackets, as in `[2001:db8::7]:2222`. White space is refused: use `trimspace()`. It is part of the `id` of a drain resource, \
                 too."
            ),
            wrapper_address: required_text => "Address of the wrapper on that host: `unix:///path/to/socket` or `tcp://host:port`.",
            username: text => "SSH user. `ssh.username` of the provider block takes precedence.",
            ssh_key_pem: secret =>
                "SSH private key. A key in the provider block takes precedence. **It is stored in the state**: prefer `ssh` in the \
                 provider block.",
            instance_id: text => "Identifier of the instance at the cloud provider.",
            host_key: text =>
                "Expected host key: a public key or a `SHA256:` fingerprint; several are allowed, one per line. It replaces all host keys \
                 of the provider block for this host.",
        }
    }

    /// Rejects missing and invalid values. Accepts unknown values.
    pub fn check(&self, path: &AttributePath, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_text(&self.instance_name, at("instance_name"), problems);
        check_address::<HostPort>(&self.address, at("address"), problems);
        check_address::<WrapperAddress>(&self.wrapper_address, at("wrapper_address"), problems);
        if let Value::Value(username) = &self.username
            && username.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            problems.add(values::user_name(at("username"), username));
        }
        if let Value::Value(pins) = &self.host_key
            && let Err(problem) = check::host_keys(pins)
        {
            problems.add(values::host_key(at("host_key"), &problem));
        }
    }

    /// The host and wrapper that a connection reaches, in one notation; `None` if an address is unknown or invalid, or a value that selects
    /// the host is unknown.
    pub(crate) fn identity(&self, selectors: Selectors) -> Option<String> {
        if selectors.instance_name && self.instance_name.is_unknown()
            || selectors.instance_id && self.instance_id.is_unknown()
            || selectors.username && self.username.is_unknown()
        {
            return None;
        }
        let host: HostPort = self.address.as_ref_option()?.parse().ok()?;
        let wrapper: WrapperAddress = self.wrapper_address.as_ref_option()?.parse().ok()?;
        let values = [set(&self.instance_name), set(&self.instance_id), set(&self.username)];
        Some(identity(&host, &wrapper, selectors, values.each_ref().map(Option::as_deref)))
    }

    /// Whether the kernel protects the address of the wrapper.
    pub(crate) fn has_protected_address(&self) -> bool {
        let address =
            self.wrapper_address.as_ref_option().and_then(|text| text.parse::<WrapperAddress>().ok());
        address.is_some_and(|address| address.is_protected())
    }

    /// Its identity where no provider block is known.
    pub(crate) fn addresses(&self) -> Option<String> {
        self.identity(Selectors { username: true, ..Selectors::default() })
    }

    /// The identities of the manager in a plan, as far as they are known: host and wrapper address, and each instance id with the wrapper
    /// address. `instance_id`: that of a drain resource.
    pub(crate) fn identities(&self, selectors: Selectors, instance_id: Option<&str>) -> Vec<String> {
        let mut identities: Vec<_> = self.identity(selectors).into_iter().collect();
        if let Some(wrapper) = set(&self.wrapper_address) {
            let ids = set(&self.instance_id).into_iter().chain(instance_id.map(str::to_owned));
            identities.extend(ids.map(|id| format!("{id} {wrapper}")));
        }
        identities
    }

    /// A client of its wrapper. Values of the provider block take precedence. `key` is the name of the runner manager in messages.
    pub(crate) fn client(&self, key: &str, known: &Configured) -> Result<WrapperClient, InvalidManager> {
        let invalid = |attribute| move |problem| InvalidManager { attribute, problem };
        let text = |value: &'_ Value<String>| value.as_ref_option().cloned().ok_or(AddressError::Missing);
        let address = text(&self.address).and_then(|text| text.parse()).map_err(invalid("address"))?;
        let wrapper_address = text(&self.wrapper_address).and_then(|text| text.parse());
        let wrapper_address = wrapper_address.map_err(invalid("wrapper_address"))?;
        let login = known.ssh.login(set(&self.username), set(&self.ssh_key_pem).map(Secret::new));
        let target = Target {
            manager: key.to_owned(),
            instance_name: set(&self.instance_name).unwrap_or_default(),
            instance_id: set(&self.instance_id),
            address,
            wrapper_address,
            hops: known.ssh.hops(&login),
            login,
            // Not as null if it is empty: that is an error of the connection.
            host_key: self.host_key.as_ref_option().cloned(),
        };
        Ok(WrapperClient::new(known.connector.clone(), target))
    }
}

/// A required map of runner managers.
pub(crate) fn required_managers(description: &str) -> Attribute {
    required(AttributeType::AttributeMap(RunnerManagerArgs::attributes()), description)
}

/// The path of a runner manager in the attribute `runner_managers`.
pub(crate) fn at(key: &str) -> AttributePath {
    AttributePath::new("runner_managers").key(key.to_owned())
}

/// The entries of a map by key. At an apply or a read all of them are known.
pub(crate) fn known(managers: &RunnerManagers) -> BTreeMap<String, RunnerManagerArgs> {
    let entries = managers.iter().flatten();
    entries.filter_map(|(key, manager)| Some((key.clone(), manager.as_ref_option()?.clone()))).collect()
}

pub(crate) fn check_map(managers: &RunnerManagers, problems: &mut Problems) {
    check_all(managers, &AttributePath::new("runner_managers"), problems);
}

/// Checks a required map and its entries.
pub(crate) fn check_all(managers: &RunnerManagers, path: &AttributePath, problems: &mut Problems) {
    check_set(managers, path.clone(), problems);
    for (key, manager) in managers.iter().flatten() {
        let path = path.clone().key(key.clone());
        match manager {
            Value::Value(manager) => manager.check(&path, problems),
            entry => check_set(entry, path, problems),
        }
    }
}
