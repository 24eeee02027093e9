//! Values in the plugin host: every kind is transferred, secrets are in no file, and errors name their attribute.

use std::fs;

use grit_tests::terraform::{Workspace, core};
use serde_json::{Value as Json, json};

use crate::lab_probe::{lab, probe, with_header};

const UNKNOWN: &str = "resource \"terraform_data\" \"later\" {}\n";

#[test]
fn terraform_accepts_schema() {
    let lab = lab("");
    let run = lab.run(["providers", "schema", "-json"]).unwrap().succeeded();
    let schema: Json = serde_json::from_str(&run.stdout).unwrap();
    let lab = &schema["provider_schemas"][format!("{}/runner-tools/lab", core().registry())];
    let probe = &lab["resource_schemas"]["lab_probe"];
    assert_eq!(probe["version"], 2);
    let attributes = &probe["block"]["attributes"];
    let nested = &attributes["items"]["nested_type"];
    assert_eq!(
        (&nested["nesting_mode"], &nested["attributes"]["key"]["sensitive"]),
        (&json!("map"), &json!(true))
    );
    assert!(lab["data_source_schemas"]["lab_echo"].is_object() && lab["provider"].is_object());
}

#[test]
fn nested_attributes_and_numbers_round_trip() {
    let lab = lab(&probe(
        "p",
        r#"
        weight = 0.1
        items = {
          "with key" = { host = "h1", port = 22, key = "k" }
          plain      = { host = "h2" }
        }
        "#,
    ));
    lab.apply().unwrap().succeeded();
    let attributes = lab.state().unwrap().objects[0].attributes.clone();
    assert_eq!(attributes["weight"], 0.1);
    assert_eq!(
        attributes["items"],
        json!({
            "with key": {"host": "h1", "port": 22, "key": "k"},
            "plain": {"host": "h2", "port": null, "key": null},
        })
    );
    assert_eq!(lab.plan().unwrap().succeeded().planned(), [""; 0]);
    lab.write("main.tf", &with_header(&probe("p", "weight = 0.30000000000000000000000000001"))).unwrap();
    lab.apply().unwrap().succeeded();
    assert_eq!(lab.plan().unwrap().succeeded().planned(), [""; 0]);
}

#[test]
fn unknown_values_are_unknown_at_plan_and_known_at_apply() {
    // The first is completely unknown; the second has a known prefix.
    for name in ["terraform_data.later.id", "\"p-${terraform_data.later.id}\""] {
        let lab = lab(&format!("{UNKNOWN}resource \"lab_probe\" \"p\" {{\n name = {name}\n}}\n"));
        lab.apply().unwrap().succeeded();
        let planned = lab.wait_for("plan_create", 2, crate::lab_probe::SOON);
        assert_eq!(planned[0].fields["name"], json!({"unknown": true}), "{name}");
        assert!(planned[1].fields["name"].is_string(), "{name}");
        assert_eq!(lab.plan().unwrap().succeeded().planned(), [""; 0]);
    }
}

#[track_caller]
fn refuses(lab: &Workspace, summary: &str, part_of_detail: &str) {
    let plan = lab.plan().unwrap().failed();
    let errors = plan.errors();
    assert!(
        errors.iter().any(|(s, detail)| *s == summary && detail.contains(part_of_detail)),
        "no error {summary:?} with {part_of_detail:?} in {errors:#?}"
    );
}

#[test]
fn undecodable_value_error_names_attribute() {
    let unknown = lab(&format!("{UNKNOWN}{}", probe("p", "known = terraform_data.later.id")));
    refuses(&unknown, "Provider bug", "cannot decode the configuration");

    let fraction = lab(&probe("p", "items = { a = { host = \"h\" }, b = { host = \"h\", port = 22.5 } }"));
    refuses(&fraction, "Provider bug", "cannot decode the configuration");
}

#[test]
fn invalid_configuration_points_at_attribute() {
    let lab = lab(&probe("p", "mode = \"invalid\""));
    let validate = lab.run(["validate"]).unwrap().failed();
    for part in ["Invalid mode", "main.tf line 8", "mode = \"invalid\""] {
        assert!(validate.stderr.contains(part), "{part}: {}", validate.stderr);
    }
    let typed = lab.validate().unwrap().failed();
    assert_eq!(typed.errors(), [("Invalid mode", "`invalid` is refused, as it says.\n\nCode: lab")]);
}

/// Changes the only object in the state file, as another release of the provider would have written it.
fn edit_state(lab: &Workspace, edit: impl FnOnce(&mut Json)) {
    let path = lab.root().join("terraform.tfstate");
    let mut state: Json = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut state["resources"][0]["instances"][0]);
    fs::write(path, state.to_string()).unwrap();
}

#[test]
fn upgrade_state_sees_every_stored_state() {
    let lab = lab(&format!("{}{}", probe("p", ""), probe("q", "")));
    lab.apply().unwrap().succeeded();
    assert!(lab.journal().iter().all(|entry| entry.event != "observed"));
    lab.plan().unwrap().succeeded();
    let observed = lab.journal().into_iter().filter(|entry| entry.event == "observed");
    let mut names: Vec<_> = observed.map(|entry| entry.fields["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["p", "q"]);
}

#[test]
fn unknown_schema_version_is_rejected() {
    let lab = lab(&probe("p", ""));
    lab.apply().unwrap().succeeded();
    edit_state(&lab, |object| object["schema_version"] = json!(0));
    refuses(&lab, "Unsupported state version", "has schema version 0");
}
