use grit_plugin::{Problem, schema::Value, warnings_of};
use serde_json::{Value as Json, json};

use super::*;

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
        "state_path": null, "directory": null, "terraform_path": null, "runner_managers": null,
    });
    attributes.into_iter().for_each(|(name, value)| all[name] = value);
    rmp_serde::from_slice(&rmp_serde::to_vec_named(&all).unwrap()).unwrap()
}

/// The read of a file with this text.
async fn read_text(text: &str) -> (Option<Json>, Problems, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    std::fs::write(&path, text).unwrap();
    let (state, problems, warnings) = read(json!({ "state_path": path })).await;
    let named = |problem: Problem| Problem {
        happened: problem.happened.replace(&path.display().to_string(), "FILE"),
        ..problem
    };
    (state, problems.into_iter().map(named).collect(), warnings)
}

/// The read of these outputs.
async fn read_outputs(outputs: &Json) -> (Option<Json>, Problems, Vec<String>) {
    let Json::Object(outputs) = outputs else { panic!("an object") };
    let described = outputs.iter().map(|(name, value)| (name.clone(), json!({ "value": value })));
    read_text(&Json::Object(described.collect()).to_string()).await
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
    let (first, problems, _) = read_text(&state.to_string()).await;
    assert_eq!(errors(&problems), [""; 0]);
    let outputs = json!({ "grit_runner_managers": managers(), "other": [1] });
    let (second, _, _) = read_outputs(&outputs).await;
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
        json!({ "directory": " " }),
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
    let (state, problems, _) = read_outputs(&outputs).await;
    assert!(state.is_none());
    let errors = errors(&problems).join("\n");
    assert!(!errors.contains("SECRET"));
    insta::assert_snapshot!(errors);
}

#[tokio::test]
async fn unused_attribute_is_a_warning() {
    let mut map = managers();
    map["a"]["usernmae"] = json!("deploy");
    let (state, _, warnings) = read_outputs(&json!({ "grit_runner_managers": map })).await;
    assert!(state.is_some());
    assert!(warnings[0].contains("`grit_runner_managers[\"a\"].usernmae`"), "{warnings:?}");

    // Also beside errors: the misspelled name is the cause of this one.
    let misspelled = json!({ "a": { "adress": "h1", "wrapper_address": "h:1" } });
    let (state, problems, warnings) = read_outputs(&json!({ "grit_runner_managers": misspelled })).await;
    assert!(state.is_none());
    assert!(
        errors(&problems)[0].contains("`grit_runner_managers[\"a\"].address` is required"),
        "{problems:?}"
    );
    assert!(warnings[0].contains("`grit_runner_managers[\"a\"].adress`"), "{warnings:?}");
}

#[tokio::test]
async fn missing_output_or_file_is_an_error() {
    let (_, problems, _) = read_outputs(&json!({ "other": 1 })).await;
    assert!(
        errors(&problems)[0].contains("it has no output `grit_runner_managers`. Its outputs are `other`."),
        "{problems:?}"
    );
    let (_, problems, _) = read(json!({ "state_path": "/nonexistent" })).await;
    assert!(errors(&problems)[0].starts_with("state_path: `/nonexistent`: No such file"), "{problems:?}");
}

#[test]
fn unknown_values_pass_the_check() {
    let unknown = || Value::Unknown;
    for config in [
        DeploymentState { state_path: unknown(), ..config(json!({})) },
        DeploymentState { directory: unknown(), terraform_path: unknown(), ..config(json!({})) },
    ] {
        let problems = config.check().err().unwrap_or_default();
        assert_eq!(errors(&problems), [""; 0]);
    }
}
