//! The states that earlier builds wrote.

use grit_tests::terraform::{Workspace, core};
use serde_json::json;

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
