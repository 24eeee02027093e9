//! The contract with configurations and states: the schema, and the states that earlier builds wrote.

use std::fmt::Write as _;

use grit_tests::terraform::{Workspace, core, need};
use serde_json::{Value as Json, json};

const HEAD: &str =
    "terraform {\n  required_providers {\n    grit = { source = \"runner-tools/grit\" }\n  }\n}\n";

/// The lines of a block: each attribute with its type, and whether it is required, optional or computed.
fn attributes(attributes: &Json, indent: usize, text: &mut String) {
    for (name, attribute) in attributes.as_object().unwrap() {
        let nested = &attribute["nested_type"];
        let kind = match (&attribute["type"], nested["nesting_mode"].as_str()) {
            (_, Some("single")) => "object".to_owned(),
            (_, Some(mode)) => format!("{mode} of objects"),
            (Json::String(kind), None) => kind.clone(),
            (kind, None) => kind.to_string(),
        };
        let flags = [
            "required",
            "optional",
            "computed",
            "sensitive",
            "write_only",
            "deprecated",
            "required_for_import",
        ];
        let flags: Vec<_> = flags.into_iter().filter(|flag| attribute[*flag] == true).collect();
        writeln!(text, "{:indent$}{name}: {kind}, {}", "", flags.join(", ")).unwrap();
        if nested.is_object() {
            attributes_of(nested, indent + 2, text);
        }
    }
}

fn attributes_of(block: &Json, indent: usize, text: &mut String) {
    assert!(block.get("block_types").is_none(), "the snapshot has no blocks: {block}");
    if block["attributes"].is_object() {
        attributes(&block["attributes"], indent, text);
    }
}

/// All types of one kind. The descriptions are on the pages.
fn types(kind: &Json) -> String {
    let mut text = String::new();
    for (name, schema) in kind.as_object().unwrap() {
        let version = schema["version"].as_u64().map(|version| format!(" version {version}"));
        writeln!(text, "{name}{}", version.unwrap_or_default()).unwrap();
        attributes_of(schema.get("block").unwrap_or(schema), 2, &mut text);
    }
    text
}

/// `name(parameter: type, ...) -> type`.
fn functions(all: &Json) -> String {
    let mut text = String::new();
    for (name, function) in all.as_object().unwrap() {
        let of = |parameter: &Json| format!("{}: {}", parameter["name"].as_str().unwrap(), parameter["type"]);
        let mut parameters: Vec<_> =
            function["parameters"].as_array().into_iter().flatten().map(of).collect();
        if function["variadic_parameter"].is_object() {
            parameters.push(format!("{}...", of(&function["variadic_parameter"])));
        }
        writeln!(text, "{name}({}) -> {}", parameters.join(", "), function["return_type"]).unwrap();
    }
    text
}

/// The part of the schema with this name, as the core prints it.
fn printed(part: &str) -> Json {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", HEAD).unwrap();
    let run = workspace.run(["providers", "schema", "-json"]).unwrap().succeeded();
    let all: Json = serde_json::from_str(&run.stdout).unwrap();
    let grit = &all["provider_schemas"][format!("{}/runner-tools/grit", core().registry())];
    assert!(grit[part].is_object(), "the core does not print {part}");
    grit[part].clone()
}

#[test]
fn schema_of_resources_matches_reviewed_snapshot() {
    insta::assert_snapshot!("schema_provider", types(&json!({ "provider": printed("provider") })));
    insta::assert_snapshot!("schema_resources", types(&printed("resource_schemas")));
    insta::assert_snapshot!("schema_data_sources", types(&printed("data_source_schemas")));
}

#[test]
fn schema_of_functions_matches_reviewed_snapshot() {
    need(core().has_functions());
    insta::assert_snapshot!("schema_functions", functions(&printed("functions")));
}

#[test]
fn schema_of_identities_matches_reviewed_snapshot() {
    need(core().has_resource_identity());
    insta::assert_snapshot!("schema_identities", types(&printed("resource_identity_schemas")));
}

#[test]
fn schema_of_actions_matches_reviewed_snapshot() {
    need(core().has_actions());
    insta::assert_snapshot!("schema_actions", types(&printed("action_schemas")));
}

/// A state that an earlier build wrote, and the configuration that it was applied from.
const STATE: &str = include_str!("contract/state-0.1.0-dev.tfstate");
const CONFIGURATION: &str = include_str!("contract/configuration.tf");

fn with_earlier_state() -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", CONFIGURATION).unwrap();
    workspace.write("terraform.tfstate", &STATE.replace("registry.terraform.io", core().registry())).unwrap();
    workspace
}

#[test]
fn state_of_previous_build_plans_no_change() {
    let plan = with_earlier_state().plan().unwrap().succeeded();
    assert_eq!(plan.planned(), [""; 0]);
}

#[test]
fn state_of_earlier_build_is_updated_in_place() {
    let workspace = with_earlier_state();
    let changed = CONFIGURATION.replace("delete = \"6h\"", "delete = \"7h\"");
    workspace.write("main.tf", &changed).unwrap();
    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(
        applied.timeline(),
        ["start update grit_runner_drain.m1", "complete update grit_runner_drain.m1"]
    );
    let state = workspace.state().unwrap();
    let drain = &state.at("grit_runner_drain.m1")[0].attributes;
    assert_eq!(
        (&drain["id"], &drain["timeouts"]["delete"]),
        (&json!("m1@127.0.0.1:1#0a1b2c3d"), &json!("7h"))
    );
}
