//! Two keys of a map that are the same runner manager: one healthy runner, or one exit, would count for both.

use std::collections::BTreeMap;

use grit_plugin::{Problems, schema::AttributePath};

use super::{
    manager::{RunnerManagerArgs, RunnerManagers, known},
    text::set,
};
use crate::{explain::values, manager::WrapperIdentity};

/// Adds an error for each manager that has the same wrapper or instance id as a previous key. Unknown values are not compared.
///
/// `identity`: the wrapper that a connection to the manager reaches.
pub(crate) fn refuse(
    managers: &RunnerManagers,
    path: &AttributePath,
    identity: impl Fn(&RunnerManagerArgs) -> Option<WrapperIdentity>,
    problems: &mut Problems,
) {
    let mut seen = BTreeMap::new();
    for (key, manager) in known(managers) {
        let wrapper = identity(manager).map(|wrapper| ("host and wrapper_address", wrapper.to_string()));
        let instance = set(&manager.instance_id).map(|id| ("instance_id", id));
        for identity in wrapper.into_iter().chain(instance) {
            let what = identity.0;
            if let Some(other) = seen.insert(identity, key) {
                let at = path.clone().key(key.clone());
                problems.add(values::same_manager(at, &path.clone().key(other.clone()), what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::{Problem, schema::Value};
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::config::provider_block::Configuration;

    fn map(entries: &[(&str, Json)]) -> BTreeMap<String, Value<RunnerManagerArgs>> {
        let manager = |entry: &Json| {
            let mut manager = json!({
                "instance_name": "m", "address": "h1", "wrapper_address": "unix:///w.sock", "username": null, "ssh_key_pem": null,
                "instance_id": null, "host_key": null,
            });
            manager.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
            serde_json::from_value(manager).unwrap()
        };
        entries.iter().map(|(key, entry)| ((*key).to_owned(), Value::Value(manager(entry)))).collect()
    }

    /// The provider block with these values of `ssh`.
    fn configured(values: &Json) -> Configuration {
        let names = "username private_key private_key_path passphrase certificate_path agent known_hosts known_hosts_path host_keys host_ca \
                     insecure_ignore_host_key connect_timeout call_timeout keepalive_interval proxy_jump proxy_command ssh_command";
        let mut ssh: serde_json::Map<_, _> =
            names.split_whitespace().map(|name| (name.to_owned(), Json::Null)).collect();
        ssh.extend(values.as_object().unwrap().clone());
        let block = json!({ "ssh": ssh, "gitlab": null, "retry": null, "max_parallel": null });
        Configuration::new(serde_json::from_value(block).unwrap(), None, |_| None)
    }

    /// The errors with these values of `ssh` in the provider block.
    fn errors(ssh: &Json, managers: &BTreeMap<String, Value<RunnerManagerArgs>>) -> Vec<String> {
        let known = configured(ssh);
        let (path, mut problems) = (AttributePath::new("runner_managers"), Problems::default());
        let managers = Value::Value(managers.clone());
        refuse(&managers, &path, |manager| manager.identity(known.selectors()), &mut problems);
        problems.iter().map(Problem::detail).collect()
    }

    #[test]
    fn same_wrapper_or_instance_is_refused_and_names_both_keys() {
        let managers = map(&[
            ("a", json!({"instance_id": "i-1"})),
            ("b", json!({"address": "H1:22"})),
            ("c", json!({"address": "h2", "instance_id": "i-1"})),
            ("d", json!({"address": "h1:2222"})),
            ("e", json!({"wrapper_address": "unix:///other.sock"})),
        ]);
        insta::assert_snapshot!(errors(&json!({}), &managers).join("\n"));
    }

    #[test]
    fn names_take_the_place_of_missing_addresses() {
        let by_name = json!({ "ssh_command": ["kubectl", "exec", "{{instance_name}}"] });
        let pod = |name: &str| json!({ "instance_name": name, "address": null });
        assert_eq!(errors(&by_name, &map(&[("a", pod("pod-0")), ("b", pod("pod-1"))])), Vec::<String>::new());
        let twice = errors(&by_name, &map(&[("a", pod("pod-0")), ("b", pod("pod-0"))]));
        assert!(twice.len() == 1 && twice[0].contains("the same host and wrapper_address"), "{twice:?}");
    }

    #[test]
    fn values_that_select_the_host_distinguish_managers() {
        let by_id = json!({ "ssh_command": ["session", "{{instance_id}}"] });
        let managers = map(&[("a", json!({"instance_id": "i-1"})), ("b", json!({"instance_id": "i-2"}))]);
        assert_eq!(errors(&by_id, &managers).len(), 0);
        assert_eq!(errors(&json!({}), &managers).len(), 1);
        let managers = map(&[("a", json!({"username": "u+m1"})), ("b", json!({"username": "u+m2"}))]);
        assert_eq!(errors(&json!({}), &managers).len(), 0);
        assert_eq!(errors(&json!({ "username": "deploy" }), &managers).len(), 1);
    }

    #[test]
    fn user_is_part_of_the_identity() {
        let managers = map(&[("a", json!({"username": "u+m1"})), ("b", json!({"username": "u+m2"}))]);
        let equal = |ssh: &Json| {
            let known = configured(ssh);
            let identity = |key: &str| managers[key].as_ref_option().unwrap().identity(known.selectors());
            identity("a") == identity("b")
        };
        let by_user = json!(["ssh", "{{username}}@{{host}}"]);
        for ssh in [json!({ "ssh_command": by_user }), json!({})] {
            assert!(!equal(&ssh), "an SSH gateway can select the host by the user");
            let mut ssh = ssh;
            ssh["username"] = json!("deploy");
            assert!(equal(&ssh), "the user of the provider block takes precedence");
        }
    }

    #[test]
    fn unknown_values_are_not_compared() {
        let by_id = json!({ "ssh_command": ["session", "{{instance_id}}"] });
        for (ssh, unknown) in [
            (&by_id, (|it| it.instance_id = Value::Unknown) as fn(&mut RunnerManagerArgs)),
            (&json!({}), |it| it.address = Value::Unknown),
            (&json!({}), |it| it.username = Value::Unknown),
            (&json!({ "ssh_command": ["ssh", "{{username}}@{{host}}"] }), |it| it.username = Value::Unknown),
        ] {
            let mut managers = map(&[("a", json!({})), ("b", json!({}))]);
            for manager in managers.values_mut() {
                let Value::Value(manager) = manager else { panic!("known") };
                unknown(manager);
            }
            managers.insert("c".to_owned(), Value::Unknown);
            assert_eq!(errors(ssh, &managers), Vec::<String>::new());
        }
    }
}
