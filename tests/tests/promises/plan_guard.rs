//! Plans that would drain a live runner by accident are refused; ordinary ones are not. No host is needed: a refused plan touches none.

use grit_tests::terraform::{Workspace, core};

const HEAD: &str = r#"
terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
  }
}
"#;

fn drain(address: &str, instance: &str, more: &str) -> String {
    format!(
        r#"
resource "grit_runner_drain" "{address}" {{
  instance_id = {instance}
  runner_manager = {{
    instance_name   = "m1"
    address         = "127.0.0.1:1"
    wrapper_address = "unix:///run/wrapper.sock"
  }}
  lifecycle {{
    create_before_destroy = true
  }}
  {more}
}}
"#
    )
}

fn guarded(instance: &str) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}{}", drain("a", instance, ""))).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace
}

#[track_caller]
fn assert_refused(workspace: &Workspace, arguments: &[&str]) {
    let refused = workspace.run(["plan", "-json"].iter().chain(arguments)).unwrap().failed();
    let errors = refused.errors();
    assert!(!errors.is_empty());
    for (summary, detail) in errors {
        assert_eq!(summary, "This plan would drain a live runner");
        assert!(detail.contains("\"i-1\"") && detail.contains("add a `moved` block"), "{detail}");
        assert!(detail.ends_with("Code: refused"), "{detail}");
    }
}

#[test]
fn replace_is_refused() {
    let workspace = guarded("\"i-1\"");
    assert_refused(&workspace, &["-replace=grit_runner_drain.a"]);
    assert_refused(&workspace, &["-replace=grit_runner_drain.a", "-refresh=false"]);
}

#[test]
fn a_taint_is_refused_and_untaint_heals_it() {
    let workspace = guarded("\"i-1\"");
    workspace.run(["taint", "grit_runner_drain.a"]).unwrap().succeeded();
    assert_refused(&workspace, &[]);
    workspace.run(["untaint", "grit_runner_drain.a"]).unwrap().succeeded();
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

#[test]
fn a_rename_is_refused_without_a_moved_block_and_harmless_with_one() {
    let workspace = guarded("\"i-1\"");
    let renamed = format!("{HEAD}{}", drain("b", "\"i-1\"", ""));
    workspace.write("main.tf", &renamed).unwrap();
    assert_refused(&workspace, &[]);

    let moved = "moved {\n  from = grit_runner_drain.a\n  to   = grit_runner_drain.b\n}\n";
    workspace.write("main.tf", &format!("{renamed}{moved}")).unwrap();
    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(applied.timeline(), Vec::<String>::new());
}

#[test]
fn the_override_lets_such_a_plan_through() {
    let workspace = guarded("\"i-1\"").env("GRIT_PLAN_GUARD", "off");
    let plan = workspace.run(["plan", "-json", "-replace=grit_runner_drain.a"]).unwrap().succeeded();
    assert_eq!(plan.planned(), ["replace grit_runner_drain.a"]);
}

#[test]
fn a_new_instance_replaces_the_guard_and_the_plan_says_what_that_means() {
    let workspace = guarded("\"i-1\"");
    workspace.write("main.tf", &format!("{HEAD}{}", drain("a", "\"i-2\"", ""))).unwrap();
    let plan = workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned(), ["replace grit_runner_drain.a"]);
    let warnings = plan.warnings();
    assert!(
        warnings
            .iter()
            .any(|(summary, detail)| summary.contains("m1 will be shut down") && detail.contains("up to 3h")),
        "{warnings:?}"
    );
}

#[test]
fn removing_the_guard_says_what_that_means() {
    let workspace = guarded("\"i-1\"");
    workspace.write("main.tf", HEAD).unwrap();
    let plan = workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned(), ["delete grit_runner_drain.a"]);
    assert!(plan.warnings().iter().any(|(summary, _)| summary.contains("m1 will be shut down")));
}

#[test]
fn an_instance_id_that_only_the_apply_makes_known_does_not_drain_the_instance_that_stays() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let config = |input: &str| {
        // `output` is unknown whenever `input` changes, and then turns out to be the same.
        let id = "terraform_data.x.output == null ? \"i-1\" : \"i-1\"";
        let source = format!("resource \"terraform_data\" \"x\" {{\n  input = \"{input}\"\n}}\n");
        workspace.write("main.tf", &format!("{HEAD}{source}{}", drain("a", id, ""))).unwrap();
    };
    config("one");
    workspace.apply().unwrap().succeeded();
    config("two");
    // The host does not exist: a drain would fail.
    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(
        applied.planned(),
        ["replace grit_runner_drain.a", "update terraform_data.x"],
        "the case is the one that is meant"
    );
    let warnings = applied.warnings();
    assert!(warnings.iter().any(|(summary, _)| summary.contains("m1 was not drained")), "{warnings:?}");
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

#[test]
fn a_destroy_provisioner_construct_is_adopted_without_a_drain() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}resource \"terraform_data\" \"old\" {{}}\n")).unwrap();
    workspace.apply().unwrap().succeeded();
    let moved = "moved {\n  from = terraform_data.old\n  to   = grit_runner_drain.a\n}\n";
    workspace.write("main.tf", &format!("{HEAD}{}{moved}", drain("a", "\"i-1\"", ""))).unwrap();
    let applied = workspace.apply().unwrap();
    if !core().moves_between_types() {
        let errors = applied.failed();
        assert_eq!(errors.errors()[0].0, "Resource type mismatch");
        return;
    }
    assert_eq!(
        applied.succeeded().timeline(),
        ["start update grit_runner_drain.a", "complete update grit_runner_drain.a"]
    );
}

#[test]
fn import_is_refused_with_what_to_do() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}{}", drain("a", "\"i-1\"", ""))).unwrap();
    let run = workspace.run(["import", "grit_runner_drain.a", "i-1"]).unwrap().failed();
    assert!(run.stderr.contains("A drain guard cannot be imported"), "{}", run.stderr);
}
