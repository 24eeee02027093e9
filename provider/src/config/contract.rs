//! GRIT's contract: the map of runner managers, read from a value whose type Terraform has not checked.
//!
//! The value comes from another state. It accepts the same values as an attribute of a resource: numbers
//! and bools in place of strings, missing optional attributes. `instance_name` is optional, because GRIT's Deployer does not require it: the
//! key is used in its place.

use std::collections::BTreeMap;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Dynamic, Value},
};

use super::{manager::RunnerManagerArgs, object::Object as _};
use crate::explain::values;

/// Runner managers by key.
type Managers = BTreeMap<String, Value<RunnerManagerArgs>>;

/// A map of runner managers that was read.
pub(crate) struct Contract {
    /// Unknown if the whole map is unknown. Not valid after an error.
    pub(crate) managers: Value<Managers>,
    /// Attributes that are not part of the contract.
    pub(crate) unused: Vec<AttributePath>,
}

/// Reads and checks a map of runner managers. Unknown parts stay unknown. `problems` has the errors.
pub(crate) fn read(value: &Dynamic, path: &AttributePath, problems: &mut Problems) -> Contract {
    let mut unused = Vec::new();
    let managers = match value {
        Dynamic::Unknown => Value::Unknown,
        Dynamic::Object(entries) => Value::Value(
            entries
                .iter()
                .map(|(key, entry)| {
                    (key.clone(), manager(key, entry, &path.clone().key(key.clone()), &mut unused, problems))
                })
                .collect(),
        ),
        Dynamic::Null => {
            problems.add(values::null(path.clone()));
            Value::Null
        }
        other => {
            problems.add(values::wrong_type(path.clone(), other.kind(), "a map of objects"));
            Value::Null
        }
    };
    Contract { managers, unused }
}

fn manager(
    key: &str,
    entry: &Dynamic,
    path: &AttributePath,
    unused: &mut Vec<AttributePath>,
    problems: &mut Problems,
) -> Value<RunnerManagerArgs> {
    let members = match entry {
        Dynamic::Object(members) => members,
        Dynamic::Unknown => return Value::Unknown,
        Dynamic::Null => {
            problems.add(values::null(path.clone()));
            return Value::Null;
        }
        other => {
            problems.add(values::wrong_type(path.clone(), other.kind(), "an object"));
            return Value::Null;
        }
    };
    let texts = RunnerManagerArgs::NAMES.iter().map(|name| {
        let value = members.get(*name).unwrap_or(&Dynamic::Null);
        (*name, text(value, path.clone().attribute(*name), problems))
    });
    let mut manager = of_texts(&texts.collect());
    let names = members.keys().filter(|name| !RunnerManagerArgs::NAMES.contains(&name.as_str()));
    unused.extend(names.map(|name| path.clone().attribute(name.clone())));
    if matches!(&manager.instance_name, Value::Null) || manager.instance_name == Value::Value(String::new()) {
        manager.instance_name = Value::Value(key.to_owned());
    }
    manager.check_at(path, problems);
    Value::Value(manager)
}

/// A runner manager with these attributes, which are all strings.
fn of_texts(texts: &BTreeMap<&'static str, Value<String>>) -> RunnerManagerArgs {
    let decoded = rmp_serde::to_vec_named(texts).ok().and_then(|texts| rmp_serde::from_slice(&texts).ok());
    // Without its attributes, it is refused.
    decoded.unwrap_or_default()
}

/// A string, or a value that Terraform converts to a string.
fn text(value: &Dynamic, path: AttributePath, problems: &mut Problems) -> Value<String> {
    match value {
        Dynamic::Null => Value::Null,
        Dynamic::Unknown => Value::Unknown,
        Dynamic::Text(text) => Value::Value(text.clone()),
        Dynamic::Bool(bool) => Value::Value(bool.to_string()),
        Dynamic::Number(number) => Value::Value(number.to_string()),
        Dynamic::List(_) | Dynamic::Object(_) => {
            problems.add(values::wrong_type(path, value.kind(), "a string"));
            // Not null, which would be a second error about this attribute.
            Value::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;

    use super::*;
    use serde_json::json;

    fn read_json(value: &serde_json::Value) -> Result<Contract, Vec<String>> {
        let value: Dynamic = serde_json::from_value(value.clone()).unwrap();
        let mut problems = Problems::default();
        let contract = read(&value, &AttributePath::new("runner_managers"), &mut problems);
        if problems.is_empty() {
            return Ok(contract);
        }
        Err(problems.iter().map(Problem::detail).collect())
    }

    fn managers(value: &serde_json::Value) -> serde_json::Value {
        let contract = read_json(value).unwrap_or_else(|errors| panic!("{errors:#?}"));
        serde_json::to_value(contract.managers).unwrap()
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
        let unused = read_json(&json!({ "a": entry })).map(|contract| contract.unused).unwrap_or_default();
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

    #[test]
    fn unknown_parts_stay_unknown() {
        let path = AttributePath::new("runner_managers");
        let entry = Dynamic::Object(BTreeMap::from([
            ("address".to_owned(), Dynamic::Unknown),
            ("wrapper_address".to_owned(), Dynamic::Text("h:1".to_owned())),
        ]));
        let value =
            Dynamic::Object(BTreeMap::from([("a".to_owned(), entry), ("b".to_owned(), Dynamic::Unknown)]));
        let mut problems = Problems::default();
        let contract = read(&value, &path, &mut problems);
        let Value::Value(managers) = contract.managers else { panic!("known") };
        assert!(managers["b"].is_unknown());
        let Value::Value(a) = &managers["a"] else { panic!("known") };
        assert!(a.address.is_unknown() && a.instance_name == Value::Value("a".to_owned()));
        let whole = read(&Dynamic::Unknown, &path, &mut problems);
        assert_eq!(problems.len(), 0, "{problems:?}");
        assert!(whole.managers.is_unknown());
    }
}
