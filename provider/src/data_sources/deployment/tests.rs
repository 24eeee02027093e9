use grit_plugin::{Problem, schema::Value, warnings_of};
use serde_json::{Value as Json, json};

use super::*;
use crate::config::timeouts::ReadTimeout;

/// The read of a configuration with these attributes; the others are null. The errors, then the warnings.
async fn read(attributes: Json) -> (Option<Json>, Problems, Vec<String>) {
    let (result, warnings) = warnings_of(Deployment.run(config(attributes))).await;
    let warnings = warnings.iter().map(Problem::detail).collect();
    match result {
        Ok(state) => {
            (Some(serde_json::to_value(state.runner_managers).unwrap()), Problems::default(), warnings)
        }
        Err(problems) => (None, problems, warnings),
    }
}

fn config(attributes: Json) -> DeploymentState {
    let Json::Object(attributes) = attributes else { panic!("an object") };
    let mut all = json!({
        "state_path": null, "state_json": null, "directory": null, "terraform_path": null, "allow_missing": null, "timeouts": null,
        "runner_managers": null,
    });
    attributes.into_iter().for_each(|(name, value)| all[name] = value);
    rmp_serde::from_slice(&rmp_serde::to_vec_named(&all).unwrap()).unwrap()
}

/// Attributes with the text of these outputs.
fn of_outputs(outputs: &Json) -> Json {
    let Json::Object(outputs) = outputs else { panic!("an object") };
    let described = outputs.iter().map(|(name, value)| (name.clone(), json!({ "value": value })));
    let text = Json::Object(described.collect()).to_string();
    json!({ "state_json": text })
}

/// Each error with the attribute that it points at.
fn errors(problems: &Problems) -> Vec<String> {
    problems.iter().map(|error| format!("{}: {}", error.path, error.detail())).collect()
}

fn managers() -> Json {
    json!({"a": {"instance_name": "m-a", "address": "10.0.0.7", "wrapper_address": "unix:///run/w.sock", "ssh_key_pem": "SECRET"}})
}

#[tokio::test]
async fn state_and_outputs_give_the_same_managers() {
    let state = json!({ "version": 4, "outputs": { "grit_runner_managers": { "value": managers() } } });
    let (first, problems, _) = read(json!({ "state_json": state.to_string() })).await;
    assert_eq!(errors(&problems), [""; 0]);
    let outputs = json!({ "grit_runner_managers": managers(), "other": [1] });
    let (second, _, _) = read(of_outputs(&outputs)).await;
    assert_eq!(first, second);
    assert_eq!(first.unwrap()["a"]["ssh_key_pem"], "SECRET");
}

#[tokio::test]
async fn exactly_one_source_is_required() {
    let mut all = String::new();
    for attributes in [
        json!({}),
        json!({ "state_path": "a", "directory": "b" }),
        json!({ "state_path": "", "terraform_path": "tofu" }),
        json!({ "directory": " ", "timeouts": { "read": "soon" } }),
        json!({ "state_json": "{}", "timeouts": { "read": "10ms" } }),
    ] {
        let (state, problems, _) = read(attributes).await;
        assert!(state.is_none());
        all += &format!("{}\n----\n", errors(&problems).join("\n"));
    }
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn invalid_manager_error_names_entry_and_source() {
    let outputs = json!({ "grit_runner_managers": {
        "a": { "wrapper_address": "h:1", "ssh_key_pem": ["SECRET"] }, "b": { "address": "h:0", "wrapper_address": "h:1" },
    }});
    let (state, problems, _) = read(of_outputs(&outputs)).await;
    assert!(state.is_none());
    let errors = errors(&problems).join("\n");
    assert!(!errors.contains("SECRET"));
    insta::assert_snapshot!(errors);
}

#[tokio::test]
async fn unused_attribute_is_a_warning() {
    let mut map = managers();
    map["a"]["usernmae"] = json!("deploy");
    let (state, _, warnings) = read(of_outputs(&json!({ "grit_runner_managers": map }))).await;
    assert!(state.is_some());
    assert!(warnings[0].contains("`grit_runner_managers[\"a\"].usernmae`"), "{warnings:?}");

    // Also beside errors: the misspelled name is the cause of this one.
    let misspelled = json!({ "a": { "adress": "h1", "wrapper_address": "h:1" } });
    let (state, problems, warnings) = read(of_outputs(&json!({ "grit_runner_managers": misspelled }))).await;
    assert!(state.is_none());
    assert!(
        errors(&problems)[0].contains("`grit_runner_managers[\"a\"].address` is required"),
        "{problems:?}"
    );
    assert!(warnings[0].contains("`grit_runner_managers[\"a\"].adress`"), "{warnings:?}");
}

#[tokio::test]
async fn missing_output_is_an_error_unless_allowed() {
    let mut other = of_outputs(&json!({ "other": 1 }));
    let (_, problems, _) = read(other.clone()).await;
    assert!(
        errors(&problems)[0]
            .starts_with("state_json: `state_json`: it has no output `grit_runner_managers`."),
        "{problems:?}"
    );
    other["allow_missing"] = json!(true);
    let (state, _, warnings) = read(other).await;
    assert_eq!(state, Some(json!({})));
    assert!(warnings[0].contains("Its outputs are `other`."), "{warnings:?}");
    // Only a missing output is allowed.
    let (state, problems, _) = read(json!({ "state_path": "/nonexistent", "allow_missing": true })).await;
    assert!(
        state.is_none() && errors(&problems)[0].starts_with("state_path: `/nonexistent`: No such file"),
        "{problems:?}"
    );
}

#[test]
fn unknown_values_pass_the_check() {
    let unknown = || Value::Unknown;
    for config in [
        DeploymentState { state_path: unknown(), ..config(json!({})) },
        DeploymentState { state_json: unknown(), ..config(json!({})) },
        DeploymentState {
            directory: unknown(),
            terraform_path: unknown(),
            allow_missing: Value::Unknown,
            timeouts: Value::Value(ReadTimeout { read: unknown() }),
            ..config(json!({}))
        },
    ] {
        let problems = config.check().err().unwrap_or_default();
        assert_eq!(errors(&problems), [""; 0]);
    }
}
