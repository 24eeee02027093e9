//! The runner manager object: GRIT's `grit_runner_managers` contract.

use std::collections::BTreeMap;

use grit_plugin::{
    Problems,
    schema::{Attribute, AttributePath, AttributeType, Value, required, required_text, secret, text},
};
use grit_ssh::{AddressError, HostPort, SSH_PORT, Secret, Selectors, Target, WrapperAddress, check};

use super::{
    object::{check_required, object},
    provider_block::Configuration,
    text::{check_address, check_set, check_text, set},
};
use crate::{
    explain::values,
    fleet::Managers,
    manager::{Identities, InvalidManager, Manager, WrapperIdentity},
};

object! {
    /// One runner manager of GRIT's modules: an entry of the map, or the object of a drain.
    ///
    /// Has no `Debug`: `ssh_key_pem` may contain a private key.
    pub(crate) struct RunnerManagerArgs {
        pub(crate) instance_name: Value<String> = required_text =>
            "Name of the instance. The name must not contain a secret: the `id` of a drain resource contains it, and Terraform prints \
             this `id` even if the name is marked as sensitive.", check_text;
        pub(crate) address: Value<String> = text => format!(
            "Host name or IP address of the SSH server, with or without a port (default {SSH_PORT}). An IPv6 address with a port needs \
             brackets, as in `[2001:db8::7]:2222`. White space is refused: use `trimspace()`. The `id` of a drain resource contains the \
             address. Required, unless `ssh_command` contains none of `{{{{address}}}}`, `{{{{host}}}}` and `{{{{port}}}}`: without \
             `address`, `instance_name` is the host name."
        ), check_host;
        pub(crate) wrapper_address: Value<String> = required_text =>
            "Address of the wrapper on that host: `unix:///path/to/socket` or `tcp://host:port`.", check_address::<WrapperAddress>;
        pub(crate) username: Value<String> = text =>
            "SSH user. `ssh.username` of the provider block takes precedence.", check_username;
        pub(crate) ssh_key_pem: Value<String> = secret =>
            "SSH private key. A key in the provider block takes precedence. **This key is stored in the state**: prefer `ssh` in the \
             provider block.";
        pub(crate) instance_id: Value<String> = text => "Identifier of the instance at the cloud provider.";
        pub(crate) host_key: Value<String> = text =>
            "Expected host key: a public key or a `SHA256:` fingerprint; several are allowed, one per line. `host_key` replaces all host \
             keys of the provider block for this host.", check_host_key;
    }
    check: RunnerManagerArgs::check_name;
}

/// `map(object({…}))` by manager key.
pub(crate) type RunnerManagers = Value<BTreeMap<String, Value<RunnerManagerArgs>>>;

impl RunnerManagerArgs {
    /// Without `address`, the name of the instance is the host name, if the connection needs no address.
    fn addresses(&self, selectors: Selectors) -> Result<(HostPort, WrapperAddress), InvalidManager> {
        let invalid = |attribute| move |problem| InvalidManager { attribute, problem };
        let text = |value: &'_ Value<String>| value.as_ref_option().cloned().ok_or(AddressError::Missing);
        let address = if !self.has_no_address() {
            text(&self.address).and_then(|text| text.parse()).map_err(invalid("address"))
        } else if selectors.address {
            Err(invalid("address")(AddressError::Required))
        } else {
            text(&self.instance_name)
                .and_then(|name| HostPort::named(&name))
                .map_err(invalid("instance_name"))
        };
        let wrapper = text(&self.wrapper_address).and_then(|text| text.parse());
        Ok((address?, wrapper.map_err(invalid("wrapper_address"))?))
    }

    /// Whether `address` is not set. An unknown one may be.
    pub(crate) fn has_no_address(&self) -> bool {
        set(&self.address).is_none() && !self.address.is_unknown()
    }

    /// The host as configured, for messages; `None` if it is unknown.
    pub(crate) fn host(&self) -> Option<&str> {
        let host = if self.has_no_address() { &self.instance_name } else { &self.address };
        host.as_ref_option().map(String::as_str)
    }

    /// Rejects a name that takes the place of the address, and is no host name. Accepts unknown.
    fn check_name(&self, path: &AttributePath, problems: &mut Problems) {
        if self.has_no_address()
            && let Some(name) = set(&self.instance_name)
            && let Err(problem) = HostPort::named(&name)
        {
            problems.add(values::address(path.clone().attribute("instance_name"), problem));
        }
    }

    /// The address of its wrapper, if any user of the host can listen there.
    pub(crate) fn unprotected_address(&self) -> Option<String> {
        let address = set(&self.wrapper_address)?;
        address.parse().is_ok_and(|parsed: WrapperAddress| !parsed.is_protected()).then_some(address)
    }

    /// The wrapper that a connection reaches; `None` if an address is unknown or invalid, or a value that selects the host is unknown.
    pub(crate) fn identity(&self, selectors: Selectors) -> Option<WrapperIdentity> {
        if selectors.instance_name && self.instance_name.is_unknown()
            || selectors.instance_id && self.instance_id.is_unknown()
            || selectors.username && self.username.is_unknown()
        {
            return None;
        }
        Some(self.identity_at(&self.addresses(selectors).ok()?, selectors))
    }

    fn identity_at(
        &self,
        (address, wrapper): &(HostPort, WrapperAddress),
        selectors: Selectors,
    ) -> WrapperIdentity {
        let values = [set(&self.instance_name), set(&self.instance_id), set(&self.username)];
        WrapperIdentity::new(address, wrapper, selectors, values.each_ref().map(Option::as_deref))
    }

    /// All that identifies the manager in a plan, as far as it is known. `selectors`: `None` while the provider block is unknown. `instance`: the
    /// instance of its drain resource.
    pub(crate) fn identities(&self, selectors: Option<Selectors>, instance: Option<&str>) -> Identities {
        let ids = set(&self.instance_id).into_iter().chain(instance.map(str::to_owned));
        let wrapper = set(&self.wrapper_address);
        let instances =
            wrapper.iter().flat_map(|wrapper| ids.clone().map(move |id| format!("{id} {wrapper}")));
        let identity = selectors.and_then(|selectors| self.identity(selectors));
        Identities { wrapper: identity, instances: instances.collect() }
    }

    /// The manager for a connection. Values of the provider block take precedence. `name`: in messages.
    pub(crate) fn resolve(
        &self,
        name: &str,
        configuration: &Configuration,
    ) -> Result<Manager, InvalidManager> {
        let selectors = configuration.selectors();
        let addresses = self.addresses(selectors)?;
        let identity = self.identity_at(&addresses, selectors);
        let (address, wrapper_address) = addresses;
        let login = configuration.ssh.login(set(&self.username), set(&self.ssh_key_pem).map(Secret::new));
        let target = Target {
            manager: name.to_owned(),
            instance_name: set(&self.instance_name).unwrap_or_default(),
            instance_id: set(&self.instance_id),
            address,
            wrapper_address,
            hops: configuration.ssh.hops(&login),
            login,
            // Not as null if it is empty: that is an error of the connection.
            host_key: self.host_key.as_ref_option().cloned(),
        };
        let (clients, contacts) = (configuration.clients.clone(), configuration.contacts.clone());
        Ok(Manager::new(target, identity, clients, contacts))
    }
}

fn check_host(address: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if set(address).is_some() {
        check_address::<HostPort>(address, path, problems);
    }
}

fn check_username(username: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(username) = username
        && username.contains(|c: char| c.is_control() || c.is_whitespace())
    {
        problems.add(values::user_name(path.clone(), username));
    }
}

fn check_host_key(pins: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(pins) = pins
        && let Err(problem) = check::host_keys(pins)
    {
        problems.add(values::host_key(path.clone(), &problem));
    }
}

/// A required map of runner managers.
pub(crate) fn required_managers(description: &str) -> Attribute {
    required(AttributeType::AttributeMap(RunnerManagerArgs::attributes()), description)
}

/// The entries of a map that are known, by key. At an apply or a read all of them are.
pub(crate) fn known(managers: &RunnerManagers) -> impl Iterator<Item = (&String, &RunnerManagerArgs)> {
    managers.iter().flatten().filter_map(|(key, manager)| Some((key, manager.as_ref_option()?)))
}

/// The runner managers of a map, for an operation over all of them.
pub(crate) fn resolve(managers: &RunnerManagers, configuration: &Configuration) -> Managers {
    known(managers).map(|(key, manager)| (key.clone(), manager.resolve(key, configuration))).collect()
}

/// Checks a required map of runner managers, and its entries. Accepts unknown.
pub(crate) fn check_managers(managers: &RunnerManagers, path: &AttributePath, problems: &mut Problems) {
    check_set(managers, path, problems);
    for (key, manager) in managers.iter().flatten() {
        check_required(manager, &path.clone().key(key.clone()), problems);
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;
    use grit_ssh::Strategy;

    use super::*;
    use crate::config::object::Object as _;

    fn text(text: &str) -> Value<String> {
        Value::Value(text.to_owned())
    }

    fn pod(name: Value<String>, address: Value<String>) -> RunnerManagerArgs {
        RunnerManagerArgs {
            instance_name: name,
            address,
            wrapper_address: text("unix:///w.sock"),
            ..Default::default()
        }
    }

    fn command(arguments: &[&str]) -> Selectors {
        Strategy::SshCommand(arguments.iter().map(|it| (*it).to_owned()).collect()).selectors()
    }

    #[test]
    fn name_is_the_host_if_the_connection_needs_no_address() {
        let selectors = command(&["kubectl", "exec", "{{instance_name}}"]);
        let host = |manager: &RunnerManagerArgs| Some(manager.addresses(selectors).ok()?.0.host().to_owned());
        for no_address in [Value::Null, text("")] {
            let pod = pod(text("pod-0"), no_address);
            assert_eq!((host(&pod).as_deref(), pod.host()), (Some("pod-0"), Some("pod-0")));
        }
        let pod = pod(text("pod-0"), text("10.0.0.7"));
        assert_eq!((host(&pod).as_deref(), pod.host()), (Some("10.0.0.7"), Some("10.0.0.7")));
    }

    #[test]
    fn missing_address_that_the_connection_needs_is_an_error() {
        let pod = pod(text("pod-0"), Value::Null);
        for selectors in [Strategy::Direct.selectors(), command(&["ssh", "{{host}}", "{{instance_name}}"])] {
            let invalid = pod.addresses(selectors).unwrap_err();
            assert_eq!((invalid.attribute, invalid.problem), ("address", AddressError::Required));
            assert!(pod.identity(selectors).is_none());
        }
    }

    #[test]
    fn name_in_the_place_of_the_address_must_be_a_host_name() {
        let errors = |name: Value<String>, address| {
            let mut problems = Problems::default();
            pod(name, address).check_at(&AttributePath::new("m"), &mut problems);
            problems.iter().map(Problem::detail).collect::<Vec<_>>()
        };
        for valid in [text("pod-0"), text("pod-0.runners"), Value::Unknown] {
            assert_eq!(errors(valid, Value::Null), Vec::<String>::new());
        }
        for invalid in ["a pod", "pod-0:22", "-n", "a/b"] {
            let errors = errors(text(invalid), Value::Null);
            let start = format!("`m.instance_name`: {invalid:?} is not a valid host name");
            assert!(errors.len() == 1 && errors[0].starts_with(&start), "{errors:?}");
        }
        for address in [text("h"), Value::Unknown] {
            assert_eq!(errors(text("a pod"), address), Vec::<String>::new());
        }
        assert_eq!(
            errors(Value::Null, Value::Null),
            ["`m.instance_name` is required and must not be null.\n\nCode: invalid_config"]
        );
    }

    #[test]
    fn unknown_address_or_name_is_no_host() {
        let selectors = command(&["kubectl", "exec", "{{instance_name}}"]);
        for manager in [pod(text("pod-0"), Value::Unknown), pod(Value::Unknown, Value::Null)] {
            assert_eq!(manager.host(), None);
            assert!(manager.identity(selectors).is_none());
        }
    }
}
