//! Plans that would drain a running runner by accident are refused; normal plans are not. Only applies that drain need a host.

use grit_tests::{
    lab::{Lab, event::What},
    rollout::{PATIENCE, assert_order, is_signal},
    terraform::{Workspace, core},
};
use serde_json::json;

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
        assert_eq!(summary, "Plan would drain a runner whose instance is kept");
        assert!(detail.contains("\"i-1\"") && detail.contains("add a `moved` block"), "{detail}");
        assert!(detail.ends_with("Code: refused"), "{detail}");
    }
}

/// Without a refresh, this may be an apply.
#[track_caller]
fn assert_warned(workspace: &Workspace, arguments: &[&str]) {
    let planned = workspace.run(["plan", "-json"].iter().chain(arguments)).unwrap().succeeded();
    let warnings = planned.warnings();
    assert!(
        warnings.iter().any(|(summary, _)| *summary == "Plan would drain a runner whose instance is kept"),
        "{warnings:?}"
    );
}

#[test]
fn replacing_a_drain_is_refused_unless_the_check_is_off() {
    let mut workspace = guarded("\"i-1\"");
    assert_refused(&workspace, &["-replace=grit_runner_drain.a"]);
    assert_refused(&workspace, &["-replace=grit_runner_drain.a", "-refresh=false"]);
    workspace.set_env("GRIT_PLAN_CHECK", "OFF");
    let plan = workspace.run(["plan", "-json", "-replace=grit_runner_drain.a"]).unwrap().succeeded();
    assert_eq!(plan.planned(), ["replace grit_runner_drain.a"]);
    let warnings = plan.warnings();
    assert!(warnings.iter().any(|(_, detail)| detail.contains("GRIT_PLAN_CHECK=off")), "{warnings:?}");
}

#[test]
fn renaming_a_drain_needs_a_moved_block() {
    let workspace = guarded("\"i-1\"");
    let renamed = format!("{HEAD}{}", drain("b", "\"i-1\"", ""));
    workspace.write("main.tf", &renamed).unwrap();
    assert_refused(&workspace, &[]);

    let moved = "moved {\n  from = grit_runner_drain.a\n  to   = grit_runner_drain.b\n}\n";
    workspace.write("main.tf", &format!("{renamed}{moved}")).unwrap();
    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(applied.timeline(), Vec::<String>::new());
}

/// The plan shows a usual drain itself. A warning that each rollout prints would hide the others.
#[test]
fn plan_warns_only_of_drains_that_can_abort_jobs() {
    let shuts_down = "The plan shuts down a runner";
    for (options, limit) in [
        ("", None),
        ("on_timeout = \"force\"", Some("has not exited within 3h, its remaining jobs are ABORTED")),
        ("mode = \"forceful\"", Some("the running jobs of the runner are ABORTED")),
    ] {
        let workspace = Workspace::new(&["grit"]).unwrap();
        workspace.write("main.tf", &format!("{HEAD}{}", drain("a", "\"i-1\"", options))).unwrap();
        workspace.apply().unwrap().succeeded();
        let replaced = drain("a", "\"i-2\"", options);
        for (change, configuration) in [("replace", &*replaced), ("delete", "")] {
            workspace.write("main.tf", &format!("{HEAD}{configuration}")).unwrap();
            let plan = workspace.plan().unwrap().succeeded();
            assert_eq!(plan.planned(), [format!("{change} grit_runner_drain.a")]);
            let warnings = plan.warnings();
            let about: Vec<_> = warnings.iter().filter(|(summary, _)| *summary == shuts_down).collect();
            match limit {
                None => assert!(about.is_empty(), "{warnings:?}"),
                Some(limit) => assert!(
                    matches!(about[..], [(_, detail)] if detail.contains("\"m1\"") && detail.contains(limit)),
                    "{options}: {warnings:?}"
                ),
            }
        }
    }
}

#[test]
fn unchanged_instance_id_known_at_apply_is_not_drained() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let config = |input: &str| {
        // `output` is unknown when `input` changes, and has the same value afterwards.
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
    assert!(warnings.iter().any(|(summary, _)| summary.contains("Drain of m1 was skipped")), "{warnings:?}");
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

/// The instance id is not that of one instance, and is known only at apply. Terraform would destroy the old instance next.
#[test]
fn new_instance_with_same_id_known_at_apply_keeps_old_instance() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let config = |input: &str, address: &str| {
        let id = "terraform_data.x.output == null ? \"name\" : \"name\"";
        let source = format!("resource \"terraform_data\" \"x\" {{\n  input = \"{input}\"\n}}\n");
        let drain = drain("a", id, "").replace("127.0.0.1:1", address);
        workspace.write("main.tf", &format!("{HEAD}{source}{drain}")).unwrap();
    };
    config("one", "127.0.0.1:1");
    workspace.apply().unwrap().succeeded();
    config("two", "127.0.0.2:1");
    let failed = workspace.apply().unwrap().failed();
    let (summary, detail) = &failed.errors()[0];
    assert!(summary.contains("m1 was not drained"), "{summary}");
    assert!(detail.contains("same `instance_id` \"name\", but another host or wrapper address"), "{detail}");

    // The next step of the error.
    workspace.run(["state", "rm", "grit_runner_drain.a"]).unwrap().succeeded();
    workspace.apply().unwrap().succeeded();
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

/// Drain resources by `count`, each for the instance of its index.
fn counted(instances: &[&str], cbd: bool) -> String {
    let list = serde_json::to_string(instances).unwrap();
    let drain = drain("a", "local.instances[count.index]", "count = length(local.instances)")
        .replace("127.0.0.1:1", "${local.instances[count.index]}.example.com");
    let drain = if cbd { drain } else { drain.replace("create_before_destroy = true", "") };
    format!("{HEAD}locals {{\n  instances = {list}\n}}\n{drain}")
}

#[test]
fn count_insertion_is_always_refused() {
    // Terraform plans the shifted and the new index in parallel, so their order varies.
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &counted(&["i-1"], true)).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace.write("main.tf", &counted(&["i-0", "i-1"], true)).unwrap();
    for _ in 0..grit_testkit::rounds(4, 100) {
        assert_refused(&workspace, &[]);
        assert_refused(&workspace, &["-refresh=false"]);
    }
}

#[test]
fn count_removal_is_refused_without_create_before_destroy() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &counted(&["i-0", "i-1"], false)).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace.write("main.tf", &counted(&["i-1"], false)).unwrap();
    assert_refused(&workspace, &[]);
    workspace.apply().unwrap().failed();
    assert_eq!(workspace.state().unwrap().objects.len(), 2);
}

/// A destroy starts with a plan of the configuration.
#[test]
fn destroy_with_shifted_count_is_refused() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &counted(&["i-1"], true)).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace.write("main.tf", &counted(&["i-0", "i-1"], true)).unwrap();
    let refused = workspace.run(["plan", "-json", "-destroy"]).unwrap().failed();
    for (summary, detail) in refused.errors() {
        assert_eq!(summary, "Plan would drain a runner whose instance is kept");
        assert!(detail.contains("use the variable values of the last apply"), "{detail}");
    }
    let plan = workspace.run(["plan", "-json", "-destroy", "-refresh=false"]).unwrap().succeeded();
    assert_eq!(plan.planned(), ["delete grit_runner_drain.a[0]"]);
    workspace.write("main.tf", &counted(&["i-1"], true)).unwrap();
    let plan = workspace.run(["plan", "-json", "-destroy"]).unwrap().succeeded();
    assert_eq!(plan.planned(), ["delete grit_runner_drain.a[0]"]);
}

#[test]
fn tainted_drain_destroys_after_untaint_or_no_refresh() {
    let workspace = guarded("\"i-1\"");
    workspace.run(["taint", "grit_runner_drain.a"]).unwrap().succeeded();
    assert_refused(&workspace, &[]);
    assert_warned(&workspace, &["-refresh=false"]);
    let refused = workspace.run(["plan", "-json", "-destroy"]).unwrap().failed();
    let errors = refused.errors();
    assert!(
        errors[0].1.contains("terraform untaint") && errors[0].1.contains("-refresh=false"),
        "{errors:?}"
    );
    let plan = workspace.run(["plan", "-json", "-destroy", "-refresh=false"]).unwrap().succeeded();
    assert_eq!(plan.planned(), ["delete grit_runner_drain.a"]);
    workspace.run(["untaint", "grit_runner_drain.a"]).unwrap().succeeded();
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
    workspace.run(["plan", "-json", "-destroy"]).unwrap().succeeded();
}

#[test]
fn two_drains_of_one_instance_in_a_health_check_are_refused() {
    let health_check = "resource \"grit_runner_health\" \"all\" {\n  runner_managers = {}\n  drains = { a = grit_runner_drain.a.id, b = grit_runner_drain.b.id }\n}\n";
    let two = format!("{}{}", drain("a", "\"i-1\"", ""), drain("b", "\"i-1\"", ""));
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}{two}{health_check}")).unwrap();
    let refused = workspace.plan().unwrap().failed();
    let titles: Vec<_> = refused.errors().into_iter().map(|(title, _)| title.to_owned()).collect();
    assert_eq!(titles, ["Two drain resources for one instance"]);
}

#[test]
fn removing_one_of_two_drains_of_an_instance_is_refused() {
    let both = format!("{}{}", drain("a", "\"i-1\"", ""), drain("b", "\"i-1\"", ""));
    const TITLE: &str = "Two drain resources for one instance";
    let mut workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}{both}")).unwrap();
    if core().stores_planned_private() {
        let refused = workspace.plan().unwrap().failed();
        assert!(refused.errors().iter().all(|(title, _)| *title == TITLE), "{:?}", refused.errors());
        workspace.set_env("GRIT_PLAN_CHECK", "off");
        workspace.apply().unwrap().succeeded();
        workspace.set_env("GRIT_PLAN_CHECK", "on");
    } else {
        // Without a health check the provider cannot detect that this is a plan, so it is a warning.
        let applied = workspace.apply().unwrap().succeeded();
        let warnings = applied.warnings();
        assert!(warnings.iter().any(|(title, _)| *title == TITLE), "{warnings:?}");
    }
    workspace.write("main.tf", &format!("{HEAD}{}", drain("a", "\"i-1\"", ""))).unwrap();
    let refused = workspace.plan().unwrap().failed();
    let errors = refused.errors();
    assert!(
        errors.iter().all(|(title, _)| *title == "Plan would drain a runner whose instance is kept"),
        "{errors:?}"
    );
    assert!(errors[0].1.contains("terraform state rm"), "{errors:?}");
    // Both can be removed.
    workspace.write("main.tf", HEAD).unwrap();
    workspace.plan().unwrap().succeeded();
}

#[test]
fn equal_instance_id_without_create_before_destroy_drains() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.1").unwrap();
    let events = lab.events();
    events.wait_for("m1 runs", PATIENCE, |event| matches!(event.what, What::RunnerPolling { .. }));
    let workspace = Workspace::new(&["grit"]).unwrap();
    let config = |input: &str| {
        let resources = json!({
            "terraform_data": { "x": { "input": input } },
            "grit_runner_drain": { "a": {
                // `output` is unknown when `input` changes, and the identifier has the same value afterwards.
                "instance_id": format!("${{terraform_data.x.output == null ? \"\" : {:?}}}", instance.id),
                "runner_manager": instance.runner_manager(),
                "timeouts": { "delete": "60s" },
            } },
        });
        workspace.write("main.tf.json", &lab.configuration(&resources)).unwrap();
    };
    let stored = || workspace.state().unwrap().at("grit_runner_drain.a")[0].attributes.clone();
    config("one");
    workspace.apply().unwrap().succeeded();
    let first = stored();
    config("two");
    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(applied.planned(), ["replace grit_runner_drain.a", "update terraform_data.x"]);
    let warnings = applied.warnings();
    assert!(
        warnings.iter().any(|(_, detail)| detail.contains("the instance is kept, but its runner is drained")),
        "{warnings:?}"
    );

    // Terraform destroys the old drain resource first. The new one has the same instance, and is stored.
    assert_order(
        &applied.timeline(),
        &[
            "start delete grit_runner_drain.a",
            "complete delete grit_runner_drain.a",
            "start create grit_runner_drain.a",
            "complete create grit_runner_drain.a",
        ],
    );
    let drained = events.all().iter().filter(|event| is_signal(event, "SIGQUIT")).count();
    assert_eq!(drained, 1, "{events}");
    let second = stored();
    assert_eq!(second["instance_id"], first["instance_id"]);
    assert_ne!(second["id"], first["id"]);
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}
