//! Layouts without a drain: the instance is destroyed while its runner accepts jobs.

use std::time::Duration;

use grit_tests::{
    rollout::{Rollout, assert_order},
    terraform::{core, need},
};
use serde_json::json;

use super::configuration::{CREATE_FIRST, NEW, OLD, drain, drain_with, instance};

fn right(version: &str) -> String {
    instance("right", version, CREATE_FIRST) + &drain("right", CREATE_FIRST)
}

fn a_destroy_provisioner(version: &str) -> String {
    let name = "provisioner";
    let drain = format!(
        r#"
resource "terraform_data" "{name}" {{
  triggers_replace = lab_instance.{name}.id
  provisioner "local-exec" {{
    when    = destroy
    command = "touch drained-by-provisioner"
  }}
  {CREATE_FIRST}
}}
"#
    );
    instance(name, version, CREATE_FIRST) + &drain
}

fn an_instance_id_that_stays(version: &str) -> String {
    let name = "stable_name";
    instance(name, version, CREATE_FIRST)
        + &drain_with(name, &format!("lab_instance.{name}.name"), CREATE_FIRST)
}

fn ignored_changes(version: &str) -> String {
    let name = "ignored";
    let lifecycle = "lifecycle {\n    create_before_destroy = true\n    ignore_changes = [instance_id]\n  }";
    instance(name, version, CREATE_FIRST) + &drain(name, lifecycle)
}

fn a_trigger_that_keeps_its_value(version: &str) -> String {
    let name = "triggered";
    let lifecycle = format!(
        "lifecycle {{\n    create_before_destroy = true\n    replace_triggered_by = [lab_instance.{name}.name]\n  }}"
    );
    instance(name, version, CREATE_FIRST)
        + &drain_with(name, &format!("lab_instance.{name}.name"), &lifecycle)
}

fn removed_from_the_state(version: &str) -> String {
    let name = "forgotten";
    instance(name, version, CREATE_FIRST) + &drain(name, CREATE_FIRST)
}

fn configuration(version: &str) -> String {
    [
        right,
        a_destroy_provisioner,
        an_instance_id_that_stays,
        ignored_changes,
        a_trigger_that_keeps_its_value,
        removed_from_the_state,
    ]
    .map(|shape| shape(version))
    .concat()
}

#[test]
fn fixed_drain_of_replaced_instance_never_drains() {
    let rollout = Rollout::of(&configuration(OLD)).unwrap();
    let hosts = ["forgotten", "ignored", "provisioner", "stable_name", "triggered"];
    for host in hosts {
        rollout.lab.expect(&[&format!("{host} was destroyed while its runner ran")]);
    }
    rollout.workspace.apply().unwrap().succeeded();
    rollout.workspace.run(["state", "rm", "grit_runner_drain.forgotten"]).unwrap().succeeded();
    rollout.workspace.write("main.tf", &configuration(NEW)).unwrap();
    let roll = rollout.workspace.apply().unwrap().succeeded();

    let timeline = roll.timeline().join("\n");
    for host in ["provisioner", "stable_name", "ignored", "triggered", "forgotten"] {
        assert_eq!(rollout.signals(host), Vec::<String>::new(), "{host} was drained:\n{timeline}");
        assert_eq!(rollout.runner_was_alive_at_the_end_of(host), Some(true), "{host}:\n{timeline}");
    }
    assert!(!rollout.workspace.root().join("drained-by-provisioner").exists());
    assert_eq!(rollout.signals("right"), ["SIGQUIT"], "{timeline}");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("right"), Some(false), "{timeline}");
}

#[test]
fn removed_block_with_destroy_false_never_drains() {
    need(core().has_removed_blocks());
    let name = "m";
    let rollout = Rollout::of(&(instance(name, OLD, CREATE_FIRST) + &drain(name, CREATE_FIRST))).unwrap();
    rollout.lab.expect(&["m was destroyed while its runner ran"]);
    rollout.workspace.apply().unwrap().succeeded();
    let removed = "removed {\n  from = grit_runner_drain.m\n  lifecycle {\n    destroy = false\n  }\n}\n";
    rollout.workspace.write("main.tf", removed).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), Vec::<String>::new());
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(true));
}

#[test]
fn targeting_an_instance_destroys_it_without_drain() {
    let both = |version| instance("m", version, CREATE_FIRST) + &drain("m", CREATE_FIRST);
    let rollout = Rollout::of(&both(OLD)).unwrap();
    rollout.lab.expect(&["m was destroyed while its runner ran"]);
    rollout.workspace.apply().unwrap().succeeded();
    rollout.workspace.write("main.tf", &both(NEW)).unwrap();
    let applied =
        rollout.workspace.run(["apply", "-json", "-auto-approve", "-target=lab_instance.m"]).unwrap();
    let timeline = applied.succeeded().timeline();
    assert_eq!(rollout.signals("m"), Vec::<String>::new(), "{timeline:?}");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(true), "{timeline:?}");
}

#[test]
fn targeting_drains_skips_health_and_keeps_instances() {
    let mut rollout = Rollout::start().unwrap();
    let early = ["m1-v1", "m1-v2"].map(|host| format!("{host} was drained before a newer one took jobs"));
    rollout.lab.expect(&early.each_ref().map(String::as_str));
    rollout.deploy(&["m1-v1"]);

    // With the health check as target, the plan has the whole rollout, because it refers to every drain resource.
    rollout.managers(&["m1-v2"]).unwrap();
    let whole = rollout.workspace.plan().unwrap().succeeded();
    let health_check =
        rollout.workspace.run(["plan", "-json", "-target=grit_runner_health.all"]).unwrap().succeeded();
    assert_eq!(health_check.planned(), whole.planned());

    // With one new drain resource as target, the plan has the destroy of the old instance; the apply does not destroy it.
    let apply = ["apply", "-json", "-auto-approve"];
    let target = ["-target=grit_runner_drain.manager[\"m1-v2\"]"];
    let applied = rollout.workspace.run(apply.iter().chain(&target)).unwrap().succeeded();
    assert!(
        applied.planned().contains(&"delete lab_instance.manager[\"m1-v1\"]".to_owned()),
        "{:?}",
        applied.planned()
    );
    assert!(!applied.timeline().iter().any(|line| line.contains("delete")), "{:?}", applied.timeline());
    assert!(rollout.host("m1-v1").runner_pid().is_some());

    // With all drains as target, the old runners are drained without a wait for the new ones.
    rollout.lab.cloud().shape(|_, spec| spec.boot_takes = Duration::from_secs(3600));
    rollout.managers(&["m1-v3"]).unwrap();
    let target = ["-target=grit_runner_drain.manager"];
    rollout.workspace.run(apply.iter().chain(&target)).unwrap().succeeded();
    for host in ["m1-v1", "m1-v2"] {
        assert_eq!(rollout.signals(host), ["SIGQUIT"]);
        assert_eq!(rollout.runner_was_alive_at_the_end_of(host), None);
    }
}

/// The health check refers to every drain resource, so the apply also creates the new instances. It destroys nothing.
#[test]
fn targeting_health_check_keeps_old_runners() {
    for (old, new, new_host) in [("m1", "m1", "m1.2"), ("m1-v1", "m1-v2", "m1-v2")] {
        let mut rollout = Rollout::start().unwrap();
        rollout.set("managers", json!({ old: OLD })).unwrap();
        rollout.workspace.apply().unwrap().succeeded();
        rollout.set("managers", json!({ new: NEW })).unwrap();
        let target = ["apply", "-json", "-auto-approve", "-target=grit_runner_health.all"];
        let timeline = rollout.workspace.run(target).unwrap().succeeded().timeline();
        assert_order(&timeline, &["complete update grit_runner_health.all"]);
        assert_eq!(rollout.signals(old), Vec::<String>::new(), "{timeline:?}");
        assert_eq!(rollout.hosts(), [old, new_host], "{timeline:?}");

        // The next apply without a target completes the rollout.
        rollout.workspace.apply().unwrap().succeeded();
        assert_eq!(rollout.signals(old), ["SIGQUIT"]);
        assert_eq!(rollout.runner_was_alive_at_the_end_of(old), Some(false));
        assert_eq!(rollout.hosts(), [new_host]);
    }
}

/// The old and the new drain resource have the same address, so a target has both.
#[test]
fn targeting_fixed_key_drain_drains_before_health() {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect(&["m1 was drained before a newer one took jobs"]);
    rollout.set("managers", json!({ "m1": OLD })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    // The new runner does not start.
    rollout.lab.cloud().shape(|_, spec| spec.boot_takes = Duration::from_secs(3600));
    rollout.set("managers", json!({ "m1": NEW })).unwrap();
    let target = ["apply", "-json", "-auto-approve", "-target=grit_runner_drain.manager[\"m1\"]"];
    let applied = rollout.workspace.run(target).unwrap().succeeded();
    let timeline = applied.timeline();
    assert!(!timeline.iter().any(|line| line.contains("grit_runner_health")), "{timeline:?}");
    assert_eq!(rollout.signals("m1"), ["SIGQUIT"], "{timeline:?}");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1"), None, "{timeline:?}");
    assert_eq!(rollout.hosts(), ["m1", "m1.2"]);
}

/// The next plan warns only about managers that stay in the health check.
#[test]
fn plan_after_targeted_instance_warns_with_fixed_keys() {
    for (old, new, warns) in [("m1", "m1", true), ("m1-v1", "m1-v2", false)] {
        let mut rollout = Rollout::start().unwrap();
        rollout.lab.expect(&[&format!("{old} was destroyed while its runner ran")]);
        rollout.set("drain", json!({ "attempts": 2 })).unwrap();
        rollout.set("managers", json!({ old: OLD })).unwrap();
        rollout.workspace.apply().unwrap().succeeded();
        rollout.set("managers", json!({ new: NEW })).unwrap();
        let target = ["apply", "-json", "-auto-approve", "-target=lab_instance.manager"];
        rollout.workspace.run(target).unwrap().succeeded();
        assert_eq!(rollout.signals(old), Vec::<String>::new());
        assert_eq!(rollout.runner_was_alive_at_the_end_of(old), Some(true));

        let plan = rollout.workspace.plan().unwrap().succeeded();
        let warnings = plan.warnings();
        let is_warned = warnings.iter().any(|(summary, detail)| {
            *summary == "Runner managers are not healthy"
                && detail.contains(&format!("{old} is `unreachable`"))
                && detail.contains("its runner was not drained: check the jobs of this runner in GitLab")
        });
        assert_eq!(is_warned, warns, "{warnings:#?}");

        // The drain cannot reach the host. The command of its error resolves this.
        let failed = rollout.workspace.apply().unwrap().failed();
        let errors = failed.errors();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(errors[0].1.ends_with("Code: connect_failed"), "{errors:#?}");
        let (_, command) = errors[0].1.split_once("\n    GRIT_ASSUME_TERMINATED=").unwrap();
        let (gone, _) = command.split_once(" terraform COMMAND\n").unwrap();
        rollout.workspace.set_env("GRIT_ASSUME_TERMINATED", gone);
        rollout.workspace.apply().unwrap().succeeded();
        assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
    }
}
