//! `validate_managers`: checks a map of runner managers, and returns it with the type that resources take.

use grit_plugin::{
    Function, FunctionError, Problems,
    schema::{AnyValue, AttributePath, AttributeType, Dynamic, FunctionSchema, Parameter, Value},
};
use grit_ssh::Selectors;

use super::runner_managers;
use crate::{
    config::{
        contract::{self, Managers},
        manager::RunnerManagerArgs,
        object::Object as _,
        same_manager,
    },
    explain::functions,
};

const PARAMETER: &str = "runner_managers";

#[derive(Debug)]
pub struct ValidateManagers;

impl Function for ValidateManagers {
    type Arguments = (Value<AnyValue>,);
    type Output = Managers;

    fn schema(&self) -> FunctionSchema {
        FunctionSchema {
            summary: "Checks a map of runner managers",
            description: "Returns the map of runner managers with the type that the resources accept, or an error that names the entry \
                          and the attribute. The function refuses attributes that a runner manager does not have (a resource ignores them), and \
                          two entries for one runner manager. Two entries with the same address are refused even if a placeholder such \
                          as `{{instance_id}}` in `ssh_command` selects different hosts. A missing `instance_name` is set to the key of \
                          the entry. Unknown values stay unknown.",
            parameters: vec![Parameter {
                name: PARAMETER,
                kind: AttributeType::Any,
                allow_unknown: true,
                description: "Map of runner managers, as in the output `grit_runner_managers`.",
            }],
            variadic: None,
            returns: runner_managers(),
        }
    }

    fn call(&self, (value,): (Value<AnyValue>,)) -> Result<Value<Managers>, FunctionError> {
        let path = AttributePath::new(PARAMETER);
        let mut problems = Problems::default();
        let contract = contract::read(&Dynamic::from(&value), &path, &mut problems);
        let mut known = RunnerManagerArgs::NAMES.to_vec();
        known.sort_unstable();
        for unused in &contract.unused {
            problems.add(functions::unused_attribute(unused, &known).at(unused.clone()));
        }
        // No provider block is known: the user of each entry can select the host.
        let selectors = Selectors { username: true, ..Selectors::default() };
        same_manager::refuse(&contract.managers, &path, |manager| manager.identity(selectors), &mut problems);
        if problems.is_empty() {
            Ok(contract.managers)
        } else {
            Err(functions::invalid_argument(0, &problems))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn validate(managers: &Json) -> Result<Json, FunctionError> {
        let result = ValidateManagers.call((Value::Value(AnyValue::of_json(managers)),))?;
        Ok(serde_json::to_value(result).unwrap())
    }

    fn manager(address: &str) -> Json {
        json!({"address": address, "wrapper_address": "unix:///run/w.sock"})
    }

    #[test]
    fn valid_map_is_returned_complete() {
        let managers = validate(&json!({ "a": manager("h1"), "b": manager("h2") })).unwrap();
        assert_eq!(managers["a"]["instance_name"], "a");
        assert_eq!(managers["b"].as_object().map(serde_json::Map::len), Some(7));
        assert_eq!(validate(&json!({})), Ok(json!({})));
    }

    #[test]
    fn misspelled_attribute_and_same_target_are_refused() {
        let mut misspelled = manager("h3");
        misspelled["usernmae"] = json!("deploy");
        let error =
            validate(&json!({ "a": manager("h1"), "b": manager("h1:22"), "c": misspelled })).unwrap_err();
        assert_eq!(error.argument, Some(0));
        insta::assert_snapshot!(error.text);
    }

    #[test]
    fn invalid_entry_is_an_error_of_the_argument() {
        let error = validate(&json!({ "a": {"wrapper_address": "h:1"} })).unwrap_err();
        assert_eq!(
            error.text,
            "`runner_managers[\"a\"].address` is required and must not be null.\n\nCode: invalid_config"
        );
    }

    /// The misspelled name is the cause of the first error.
    #[test]
    fn all_problems_are_reported_together() {
        let misspelled = json!({"adress": "h1", "wrapper_address": "foo"});
        let error =
            validate(&json!({ "a": misspelled, "b": manager("h2"), "c": manager("h2") })).unwrap_err();
        insta::assert_snapshot!(error.text);
    }

    #[test]
    fn unknown_map_stays_unknown() {
        assert!(ValidateManagers.call((Value::Unknown,)).is_ok_and(|result| result.is_unknown()));
    }
}
