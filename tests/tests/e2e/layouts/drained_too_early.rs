//! Layouts in which the old runner is drained although the new version never becomes healthy.

use std::time::Duration;

use grit_tests::{
    lab::event::What,
    rollout::{PATIENCE, Rollout},
};

use super::configuration::{
    CREATE_FIRST, NEW, OLD, drain, health_check, instance, manager, over_the_drain, over_the_instance,
};

/// The timeout of a health check that fails.
const HEALTH_TIMEOUT: &str = "6s";

/// All three in one module, which the root module calls once per version.
const MODULE: &str = r#"
terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
    lab  = { source = "runner-tools/lab" }
  }
}
variable "version_of_runner" { type = string }
variable "name" { type = string }
"#;

/// The correct layout, beside the others: its runner must keep running.
fn right(version: &str) -> String {
    let name = "right";
    instance(name, version, CREATE_FIRST)
        + &drain(name, CREATE_FIRST)
        + &health_check(name, &over_the_drain(name), HEALTH_TIMEOUT, CREATE_FIRST)
}

fn create_first_on_the_instance_alone(version: &str) -> String {
    let name = "alone";
    instance(name, version, CREATE_FIRST)
        + &drain(name, "")
        + &health_check(name, &over_the_drain(name), HEALTH_TIMEOUT, "")
}

fn no_reference_between_gate_and_drain(version: &str) -> String {
    let name = "unrelated";
    instance(name, version, CREATE_FIRST)
        + &drain(name, CREATE_FIRST)
        + &health_check(name, &over_the_instance(name), HEALTH_TIMEOUT, CREATE_FIRST)
}

fn all_three_in_one_module(version: &str) -> String {
    format!(
        "\nmodule \"together\" {{\n  for_each = {{ \"{version}\" = true }}\n  source = \"./together\"\n  \
         version_of_runner = each.key\n  name = \"together-${{each.key}}\"\n}}\n"
    )
}

fn a_block_for_each_version(version: &str) -> String {
    let name = &format!("block_{}", version.replace('.', "_"));
    instance(name, version, CREATE_FIRST)
        + &drain(name, CREATE_FIRST)
        + &health_check(name, &over_the_drain(name), HEALTH_TIMEOUT, CREATE_FIRST)
}

/// Versions as keys, as in the guide, with `over` in the health check and `more` in each block.
fn versions_as_keys(name: &str, version: &str, over: &str, more: &str, more_of_drain: &str) -> String {
    let keys = format!("for_each = {{ \"{version}\" = true }}\n  {more}");
    let each = |text: String| {
        text.replace(&format!("lab_instance.{name}."), &format!("lab_instance.{name}[each.key]."))
    };
    let names = (format!("= \"{name}\""), format!("= \"{name}-${{each.key}}\""));
    instance(name, version, &keys).replace(&names.0, &names.1)
        + &each(drain(name, &format!("{keys}\n  {more_of_drain}")))
        + &health_check(name, over, HEALTH_TIMEOUT, more)
}

fn the_reference_comes_with_the_roll(version: &str) -> String {
    let entry = manager("instance");
    let over = format!("runner_managers = {{ for key, instance in lab_instance.late : key => {entry} }}");
    let reference = if version == NEW { "depends_on = [grit_runner_health.late]" } else { "" };
    versions_as_keys("late", version, &over, CREATE_FIRST, reference)
}

fn create_first_comes_with_the_roll(version: &str) -> String {
    let drains = "in grit_runner_drain.later : key => drain";
    let over = format!(
        "runner_managers = {{ for key, drain {drains}.runner_manager }}\n  drains = {{ for key, drain {drains}.id }}"
    );
    versions_as_keys("later", version, &over, if version == NEW { CREATE_FIRST } else { "" }, "")
}

fn configuration(version: &str) -> String {
    [
        right,
        create_first_on_the_instance_alone,
        no_reference_between_gate_and_drain,
        all_three_in_one_module,
        a_block_for_each_version,
        the_reference_comes_with_the_roll,
        create_first_comes_with_the_roll,
    ]
    .map(|shape| shape(version))
    .concat()
}

#[test]
fn wrong_layouts_drain_old_runner_before_new_is_healthy() {
    let rollout = Rollout::of(&configuration(OLD)).unwrap();
    let module = instance("m", "VERSION", CREATE_FIRST)
        .replace("\"VERSION\"", "var.version_of_runner")
        .replace("= \"m\"", "= var.name")
        + &drain("m", CREATE_FIRST)
        + &health_check("m", &over_the_drain("m"), HEALTH_TIMEOUT, CREATE_FIRST);
    rollout.workspace.write("together/main.tf", &format!("{MODULE}{module}")).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    // The new version exists, and its wrapper never starts.
    rollout.lab.cloud().shape(|_, spec| {
        if spec.runner_version == NEW {
            spec.boot_takes = Duration::from_secs(3600);
        }
    });
    let apply = ["apply", "-json", "-auto-approve", "-parallelism=40"];
    rollout.workspace.run(apply).unwrap().succeeded();

    rollout.workspace.write("main.tf", &configuration(NEW)).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    let roll = rollout.workspace.run(apply).unwrap().failed();

    let old = |name: &str| format!("{name}{OLD}");
    let drained = [
        "alone",
        "unrelated",
        &old("together-"),
        &format!("block_{}", OLD.replace('.', "_")),
        &old("late-"),
        &old("later-"),
    ];
    let timeline = roll.timeline().join("\n");
    for host in drained {
        rollout.lab.expect(&[&format!("{host} was drained before a newer one took jobs")]);
        assert_eq!(rollout.signals(host), ["SIGQUIT"], "{host} keeps the order after all:\n{timeline}");
    }
    assert_eq!(rollout.signals("right"), Vec::<String>::new(), "{timeline}");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("right"), None, "{timeline}");

    // Every health check failed for the expected reason.
    let errors = roll.errors();
    assert_eq!(errors.len(), 7, "{errors:?}");
    assert!(errors.iter().all(|(_, detail)| detail.contains("Code: ")), "{errors:?}");

    // With `create_before_destroy` on the instance only, the old runner is drained before the new version runs.
    let asked = rollout.wait_for_drain("alone");
    let booted = rollout
        .lab
        .events()
        .find(|event| event.subject == "alone.2" && matches!(event.what, What::RunnerStarted { .. }));
    assert!(booted.is_none_or(|booted| asked.seq < booted.seq));
    rollout.workspace.providers().assert_none_left(PATIENCE);
}
