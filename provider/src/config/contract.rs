//! GRIT's contract: the map of runner managers, read from the output of another state, which is JSON.
//!
//! It accepts the same values as an attribute of a resource: numbers and bools in place of strings, missing optional attributes. `instance_name` is
//! optional, because GRIT's Deployer does not require it: the key is used in its place.

use std::collections::BTreeMap;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value},
};
use serde_json::Value as Json;

use super::{manager::RunnerManagerArgs, object::Object as _, text::check_text};
use crate::explain::values;

/// Runner managers by key.
type Managers = BTreeMap<String, Value<RunnerManagerArgs>>;

/// Reads and checks a map of runner managers. Returns it, and the attributes that are not part of the contract. The map is not valid if `problems` has
/// errors.
pub(crate) fn read(
    value: &Json,
    path: &AttributePath,
    problems: &mut Problems,
) -> (Managers, Vec<AttributePath>) {
    let (mut managers, mut unused) = (Managers::new(), Vec::new());
    for (key, entry) in object(value, path, "a map of objects", problems).into_iter().flatten() {
        let path = path.clone().key(key.clone());
        if let Some(entry) = object(entry, &path, "an object", problems) {
            let names = entry.keys().filter(|name| !RunnerManagerArgs::NAMES.contains(&name.as_str()));
            unused.extend(names.map(|name| path.clone().attribute(name.clone())));
            let manager = manager(key, entry, &path, problems);
            // GRIT's Deployer requires it.
            check_text(&manager.address, &path.clone().attribute("address"), problems);
            manager.check_at(&path, problems);
            managers.insert(key.clone(), Value::Value(manager));
        }
    }
    (managers, unused)
}

fn object<'a>(
    value: &'a Json,
    path: &AttributePath,
    wanted: &str,
    problems: &mut Problems,
) -> Option<&'a serde_json::Map<String, Json>> {
    match value {
        Json::Object(members) => return Some(members),
        Json::Null => problems.add(values::null(path.clone())),
        other => problems.add(values::wrong_type(path.clone(), kind(other), wanted)),
    }
    None
}

fn manager(
    key: &str,
    entry: &serde_json::Map<String, Json>,
    path: &AttributePath,
    problems: &mut Problems,
) -> RunnerManagerArgs {
    let mut text = |name: &'static str| match entry.get(name) {
        None | Some(Json::Null) => Value::Null,
        Some(Json::String(text)) => Value::Value(text.clone()),
        Some(value @ (Json::Bool(_) | Json::Number(_))) => Value::Value(value.to_string()),
        Some(other) => {
            problems.add(values::wrong_type(path.clone().attribute(name), kind(other), "a string"));
            // Not null, which would be a second error about this attribute.
            Value::Unknown
        }
    };
    let name = text("instance_name");
    let is_missing = name.is_null() || name == Value::Value(String::new());
    RunnerManagerArgs {
        instance_name: if is_missing { Value::Value(key.to_owned()) } else { name },
        address: text("address"),
        wrapper_address: text("wrapper_address"),
        username: text("username"),
        ssh_key_pem: text("ssh_key_pem"),
        instance_id: text("instance_id"),
        host_key: text("host_key"),
    }
}

/// The type as users know it.
fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a bool",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;

    use super::*;
    use serde_json::json;

    type Read = (Managers, Vec<AttributePath>);

    fn read_json(value: &Json) -> Result<Read, Vec<String>> {
        let mut problems = Problems::default();
        let found = read(value, &AttributePath::new("runner_managers"), &mut problems);
        if problems.is_empty() { Ok(found) } else { Err(problems.iter().map(Problem::detail).collect()) }
    }

    fn managers(value: &Json) -> Json {
        let (managers, _) = read_json(value).unwrap_or_else(|errors| panic!("{errors:#?}"));
        serde_json::to_value(managers).unwrap()
    }

    #[test]
    fn deployer_example_without_instance_name_is_accepted() {
        let entry =
            json!({"address": "10.0.0.7:22", "username": "u", "wrapper_address": "unix:///run/w.sock"});
        assert_eq!(
            managers(&json!({ "runner_manager_1": entry })),
            json!({"runner_manager_1": {
                "instance_name": "runner_manager_1", "address": "10.0.0.7:22", "wrapper_address": "unix:///run/w.sock",
                "username": "u", "ssh_key_pem": null, "instance_id": null, "host_key": null,
            }})
        );
        assert_eq!(managers(&json!({})), json!({}));
    }

    #[test]
    fn numbers_and_bools_become_strings() {
        let entry = json!({"address": "h", "wrapper_address": "h:1", "instance_id": 42, "username": true, "instance_name": ""});
        let read = managers(&json!({ "a": entry }));
        assert_eq!((&read["a"]["instance_id"], &read["a"]["username"]), (&json!("42"), &json!("true")));
        assert_eq!(read["a"]["instance_name"], "a");
    }

    #[test]
    fn attributes_outside_the_contract_are_reported() {
        let entry = json!({"address": "h", "wrapper_address": "h:1", "usernmae": "u"});
        let (_, unused) = read_json(&json!({ "a": entry })).unwrap_or_default();
        assert_eq!(
            unused.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["runner_managers[\"a\"].usernmae"]
        );
    }

    #[test]
    fn each_problem_names_entry_and_key() {
        let cases = json!({
            "a": {"wrapper_address": "h:1"},
            "b": {"address": null, "wrapper_address": "/run/w.sock"},
            "c": {"address": "h:99999", "wrapper_address": ""},
            "d": {"address": {"ip": "10.0.0.7"}, "wrapper_address": ["h:1"], "ssh_key_pem": ["SECRET"]},
            "e": null,
            "f": "10.0.0.7",
            "g": {"address": "h", "wrapper_address": "h:1", "username": "a b", "host_key": "no key"},
        });
        let errors = read_json(&cases).map(|_| ()).unwrap_err().join("\n");
        assert!(!errors.contains("SECRET"));
        insta::assert_snapshot!(errors);
        for whole in [json!(null), json!("text"), json!([{"address": "h"}])] {
            insta::allow_duplicates! {
                let errors = read_json(&whole).map(|_| ()).unwrap_err();
                assert!(errors[0].starts_with("`runner_managers`"), "{errors:?}");
            }
        }
    }
}
