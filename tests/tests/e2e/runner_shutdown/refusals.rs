//! What a plan refuses: runner managers that the same configuration keeps. `acceptance::invalid` has the wrong values.

use grit_tests::terraform::{Workspace, core};
use serde_json::{Value as Json, json};

/// A host that does not exist: a plan makes no connection.
fn manager(address: &str) -> Json {
    json!({ "instance_name": "m1", "address": address, "wrapper_address": "unix:///run/w.sock" })
}

fn with_id(mut manager: Json, id: &str) -> Json {
    manager["instance_id"] = json!(id);
    manager
}

fn workspace(resources: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    write(&workspace, resources);
    workspace
}

fn write(workspace: &Workspace, resources: &Json) {
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "resource": resources,
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
}

fn shutdown(managers: &Json) -> Json {
    json!({ "old": { "runner_managers": managers } })
}

const TITLE: &str = "Plan would shut down a runner manager of this configuration";

/// Plans several times, because Terraform plans the resources in any order. Returns how many plans only warned.
#[track_caller]
fn warned(resources: &Json, keeper: &str) -> usize {
    let workspace = workspace(resources);
    let mut warned = 0;
    for _ in 0..grit_testkit::rounds(4, 60) {
        let plan = workspace.plan().unwrap();
        let reports = if plan.errors().is_empty() {
            warned += 1;
            plan.warnings()
        } else {
            plan.errors()
        };
        assert!(!reports.is_empty());
        for (title, detail) in reports {
            assert_eq!(title, TITLE);
            assert!(detail.contains(keeper), "{detail}");
            assert!(detail.ends_with("Code: refused"), "{detail}");
        }
    }
    warned
}

/// A first plan without unknown values can be the plan of an apply, in which the create of a drain must not fail.
#[test]
fn manager_of_a_new_drain_is_refused_or_reported_in_any_order() {
    let drain = |manager: Json| json!({ "own": { "instance_id": "i-1", "runner_manager": manager } });
    warned(
        &json!({
            "grit_runner_drain": drain(manager("10.0.0.1")),
            "grit_runner_shutdown": shutdown(&json!({ "a": manager("10.0.0.1:22") })),
        }),
        "grit_runner_drain",
    );
    // Another address of the same instance and wrapper.
    warned(
        &json!({
            "grit_runner_drain": drain(manager("10.0.0.1")),
            "grit_runner_shutdown": shutdown(&json!({ "a": with_id(manager("m1.example.com"), "i-1") })),
        }),
        "grit_runner_drain",
    );
}

#[test]
fn manager_of_a_health_check_is_refused_in_any_order() {
    let resources = json!({
        "grit_runner_health": { "all": { "runner_managers": { "a": manager("10.0.0.1") } } },
        "grit_runner_shutdown": shutdown(&json!({ "b": manager("10.0.0.1") })),
    });
    assert_eq!(warned(&resources, "grit_runner_health"), 0);
}

#[test]
fn manager_of_a_stored_drain_is_refused() {
    let drain = json!({ "own": { "instance_id": "i-1", "runner_manager": manager("10.0.0.1") } });
    let workspace = workspace(&json!({ "grit_runner_drain": drain }));
    workspace.apply().unwrap().succeeded();
    let both = json!({
        "grit_runner_drain": drain,
        "grit_runner_shutdown": shutdown(&json!({ "a": manager("10.0.0.1") })),
    });
    write(&workspace, &both);
    for _ in 0..grit_testkit::rounds(4, 60) {
        for arguments in [&["plan", "-json"][..], &["plan", "-json", "-refresh=false"]] {
            let refused = workspace.run(arguments).unwrap().failed();
            assert_eq!(refused.errors()[0].0, "Plan would shut down a runner manager of this configuration");
        }
    }
}

/// The documented limit of a plan without a refresh, before Terraform 1.16. It is never silent.
#[test]
fn plan_without_refresh_warns_about_drain_of_retired_manager() {
    let own = json!({ "instance_id": "i-1", "runner_manager": manager("10.0.0.1") });
    let workspace = workspace(&json!({ "grit_runner_drain": { "own": own } }));
    workspace.apply().unwrap().succeeded();
    let both = |drain_depends: &[&str], shutdown_depends: &[&str]| {
        let new = json!({ "instance_id": "i-2", "runner_manager": manager("10.0.0.2"), "depends_on": drain_depends });
        let old = json!({ "runner_managers": { "a": manager("10.0.0.2") }, "depends_on": shutdown_depends });
        write(
            &workspace,
            &json!({ "grit_runner_drain": { "own": own, "new": new }, "grit_runner_shutdown": { "old": old } }),
        );
    };
    // The drain is planned after the shutdown.
    both(&["grit_runner_shutdown.old"], &[]);
    assert_eq!(workspace.plan().unwrap().failed().errors()[0].0, TITLE);
    let planned = workspace.run(["plan", "-json", "-refresh=false"]).unwrap();
    if core().stores_planned_private() {
        assert_eq!(planned.failed().errors()[0].0, TITLE);
    } else {
        let planned = planned.succeeded();
        let warnings = planned.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].0, TITLE);
    }
    // The shutdown is planned after the drain.
    both(&[], &["grit_runner_drain.new"]);
    for arguments in [&["plan", "-json"][..], &["plan", "-json", "-refresh=false"]] {
        assert_eq!(workspace.run(arguments).unwrap().failed().errors()[0].0, TITLE);
    }
}

#[test]
fn other_managers_are_planned() {
    let drain = json!({ "own": { "instance_id": "i-2", "runner_manager": manager("10.0.0.2") } });
    let health = json!({ "all": { "runner_managers": { "a": with_id(manager("10.0.0.2"), "i-2") } } });
    let workspace = workspace(&json!({
        "grit_runner_drain": drain,
        "grit_runner_health": health,
        "grit_runner_shutdown": shutdown(&json!({ "a": with_id(manager("10.0.0.1"), "i-1") })),
    }));
    let plan = workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned().len(), 3);
    assert_eq!(plan.warnings(), []);
}

#[test]
fn kept_manager_unknown_at_plan_is_refused_at_apply() {
    // The address is unknown at plan. The drain comes first, as a health check between them requires.
    let text = r#"
terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
  }
}
resource "terraform_data" "address" { input = "10.0.0.1" }
resource "grit_runner_drain" "own" {
  instance_id    = "i-1"
  runner_manager = { instance_name = "m1", address = terraform_data.address.output, wrapper_address = "unix:///run/w.sock" }
}
resource "grit_runner_shutdown" "old" {
  depends_on      = [grit_runner_drain.own]
  runner_managers = { a = { instance_name = "m1", address = terraform_data.address.output, wrapper_address = "unix:///run/w.sock" } }
}
"#;
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", text).unwrap();
    workspace.plan().unwrap().succeeded();
    let refused = workspace.apply().unwrap().failed();
    let errors = refused.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "Plan would shut down a runner manager of this configuration");
    assert_eq!(workspace.state().unwrap().at("grit_runner_shutdown.old").len(), 0);
}

#[test]
fn shutdown_import_is_refused_with_next_step() {
    let workspace = workspace(&json!({ "grit_runner_shutdown": shutdown(&json!({})) }));
    let run = workspace.run(["import", "grit_runner_shutdown.old", "x"]).unwrap().failed();
    assert!(run.stderr.contains("grit_runner_shutdown cannot be imported"), "{}", run.stderr);
}
