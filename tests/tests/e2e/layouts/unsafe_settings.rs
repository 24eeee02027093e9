//! Settings that look harmless: an instance without a drain resource, keys that two versions share, `prevent_destroy`.

use grit_tests::{lab::checks::violations, rollout::Rollout};
use serde_json::json;

use super::configuration::{CREATE_FIRST, NEW, OLD, drain, health_check, instance, manager};

#[test]
fn instance_without_drain_resource_is_warned_and_not_drained() {
    let configuration = |version: &str| {
        let over = format!(
            "runner_managers = {{ guarded = grit_runner_drain.guarded.runner_manager, bare = {} }}\n  \
             drains = {{ guarded = grit_runner_drain.guarded.id }}",
            manager("lab_instance.bare")
        );
        instance("guarded", version, CREATE_FIRST)
            + &drain("guarded", CREATE_FIRST)
            + &instance("bare", version, CREATE_FIRST)
            + &health_check("all", &over, "60s", CREATE_FIRST)
    };
    let rollout = Rollout::of(&configuration(OLD)).unwrap();
    rollout.lab.expect(&["bare was destroyed while its runner ran"]);
    let first = rollout.workspace.apply().unwrap().succeeded();
    let warnings = first.warnings();
    let (_, detail) = warnings
        .iter()
        .find(|(title, _)| *title == "Runner managers without a drain resource")
        .unwrap_or_else(|| panic!("no warning: {warnings:?}"));
    assert!(detail.contains("runner managers: bare.") && detail.ends_with("Code: notice"), "{detail}");

    rollout.workspace.write("main.tf", &configuration(NEW)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("bare"), Vec::<String>::new());
    assert_eq!(rollout.runner_was_alive_at_the_end_of("bare"), Some(true));
    assert_eq!(rollout.signals("guarded"), ["SIGQUIT"]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("guarded"), Some(false));
}

#[test]
fn versions_with_the_same_key_never_run_side_by_side() {
    // `merge` keeps one manager for each key, so "both versions" is the new one.
    let mut rollout = Rollout::start().unwrap();
    rollout.set("managers", json!({ "m1": OLD })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let from = rollout.lab.events().all().len();
    let main = rollout.workspace.root().join("main.tf");
    let text = std::fs::read_to_string(&main).unwrap();
    let merged = format!("merge([{{ m1 = \"{OLD}\" }}, {{ m1 = \"{NEW}\" }}]...)");
    rollout
        .workspace
        .write("main.tf", &text.replace("for_each = var.managers", &format!("for_each = {merged}")))
        .unwrap();
    let both = rollout.workspace.apply().unwrap().succeeded();
    assert!(both.timeline().iter().any(|line| line.contains("delete")), "{:?}", both.timeline());
    assert_eq!(rollout.hosts(), ["m1.2"]);
    assert_eq!(violations(&rollout.lab.events().all(), from, &["m1"], &["m1.2"]), Vec::<String>::new());
}

#[test]
fn prevent_destroy_blocks_rollouts_but_not_removal() {
    let protected = "lifecycle {\n    create_before_destroy = true\n    prevent_destroy       = true\n  }";
    let both = |version: &str| instance("m", version, CREATE_FIRST) + &drain("m", protected);
    let rollout = Rollout::of(&both(OLD)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();

    rollout.workspace.write("main.tf", &both(NEW)).unwrap();
    let blocked = rollout.workspace.plan().unwrap().failed();
    // Also the title of OpenTofu.
    let title = blocked.errors()[0].0.to_owned();
    assert!(
        ["Instance cannot be destroyed", "Resource instance cannot be destroyed"].contains(&&*title),
        "{title}"
    );
    assert_eq!(rollout.hosts(), ["m"]);

    // Terraform reads the setting from the block, which is gone.
    rollout.workspace.write("main.tf", &instance("m", OLD, CREATE_FIRST)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), ["SIGQUIT"]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), None);
}
