//! Another `instance_type` or other `user_data` of a manager whose key stays. AWS stops an instance for such a change, so the examples replace
//! the instance after a drain.

use std::fs;

use grit_tests::{lab::apply, lab_provider::instance::CLOUD};
use serde_json::{Value as Json, json};

use super::{Example, manager};

/// Applies the example with `variables(manager)`, then with another type, then with other user data. `managers` are the names of the instances.
#[track_caller]
fn assert_drained_for_changes(name: &str, managers: &[&str], variables: impl Fn(&Json) -> Json) {
    let mut example = Example::start(name);
    let mut manager = manager("19.2.1");
    example.apply(variables(&manager)).succeeded();
    let held = example.hold_until_drain(managers[0]);
    let load = example.load(8);
    let mut old: Vec<String> = managers.iter().map(|name| (*name).to_owned()).collect();
    for (generation, (attribute, value)) in
        [("instance_type", "t3.large"), ("user_data", "#!/bin/sh -e")].into_iter().enumerate()
    {
        let from = example.now();
        manager[attribute] = json!(value);
        example.apply(variables(&manager)).succeeded();
        // The cloud appends a number to a name that was used before.
        let new: Vec<String> = managers.iter().map(|name| format!("{name}.{}", generation + 2)).collect();
        example.assert_rolled(from, &old, &new);
        assert_eq!(example.hosts(), new, "{attribute}");
        assert_eq!(example.workspace.plan().unwrap().succeeded().planned(), [""; 0], "{attribute}");
        old = new;
    }
    example.assert_no_job_lost(load, held);
}

/// The variables of a single version with two equal managers.
fn one_version(manager: &Json) -> Json {
    json!({ "versions": { "v1": { "blue": manager, "green": manager } }, "active_versions": ["v1"] })
}

#[test]
fn versions_as_keys_example_drains_before_a_type_change() {
    assert_drained_for_changes("versions-as-keys", &["blue-v1", "green-v1"], one_version);
}

#[test]
fn module_per_version_example_drains_before_a_type_change() {
    assert_drained_for_changes("module-per-version", &["blue-v1", "green-v1"], one_version);
}

#[test]
fn canary_example_drains_before_a_type_change() {
    assert_drained_for_changes("canary", &["blue-v1", "green-v1"], |manager| {
        json!({
            "versions": { "v1": { "blue": manager, "green": manager } },
            "active_version": "v1",
            "canary": "blue",
            "soak": "1s",
            "health_timeout": "60s",
        })
    });
}

#[test]
fn blue_green_example_drains_before_a_type_change() {
    assert_drained_for_changes(
        "blue-green",
        &["blue-a", "blue-b"],
        |manager| json!({ "colours": { "blue": { "a": manager, "b": manager }, "green": {} }, "active": "blue" }),
    );
}

#[test]
fn shards_example_drains_before_a_type_change() {
    assert_drained_for_changes("shards", &["linux-1-v1", "linux-2-v1"], |manager| {
        let mut manager = manager.clone();
        manager["managers"] = json!(2);
        manager["version"] = json!("v1");
        json!({ "shards": { "linux": manager } })
    });
}

#[test]
fn emergency_stop_example_drains_before_a_type_change() {
    assert_drained_for_changes(
        "emergency-stop",
        &["blue", "green"],
        |manager| json!({ "managers": { "blue": manager, "green": manager } }),
    );
}

/// The variables of a version whose managers have this type.
fn typed(instance_type: &str) -> Json {
    let mut manager = manager("19.2.1");
    manager["instance_type"] = json!(instance_type);
    one_version(&manager)
}

/// Sets the type, and applies while the cloud creates no instances.
fn apply_without_capacity(example: &mut Example, instance_type: &str) {
    let endpoint = example.lab.cloud().endpoint().to_owned();
    example.set(typed(instance_type));
    example.workspace.set_env(CLOUD, "http://127.0.0.1:1");
    let arguments = ["apply", "-json", "-auto-approve", "-refresh=false"];
    let failed = apply::run(example.lab.events(), &example.workspace, &arguments).unwrap().failed();
    assert!(
        failed.errors().iter().any(|(title, _)| *title == "Instance was not created"),
        "{:?}",
        failed.errors()
    );
    example.workspace.set_env(CLOUD, endpoint);
}

/// `versions-as-keys` without the lines of `main.tf` that make a change of the type a replacement.
fn without_replacement() -> Example {
    let example = Example::start("versions-as-keys");
    let main = fs::read_to_string(example.workspace.root().join("main.tf")).unwrap();
    let (before, rest) = main.split_once("  # To change the type,").unwrap();
    let (_, after) = rest.split_once("user_data_replace_on_change = true\n").unwrap();
    example.workspace.write("main.tf", &format!("{before}{after}")).unwrap();
    example
}

/// A job that an in-place change of the type aborts.
#[track_caller]
fn assert_job_lost(example: &mut Example, from: usize) {
    example.apply(typed("t3.large")).succeeded();
    example.lab.expect_lost(1);
    assert_eq!(example.lab.queue().tally().lost, 1, "{}", example.lab.events());
    assert_eq!(example.signalled(from, "SIGQUIT"), [""; 0]);
    assert_eq!(example.hosts(), ["blue-v1", "green-v1"]);
}

#[test]
fn type_change_in_place_loses_jobs() {
    let mut example = without_replacement();
    example.apply(typed("t3.small")).succeeded();
    let from = example.start_held_job();
    assert_job_lost(&mut example, from);
}

#[test]
fn replace_triggered_by_loses_jobs_after_a_failed_apply() {
    let mut example = without_replacement();
    let main = fs::read_to_string(example.workspace.root().join("main.tf")).unwrap();
    let triggered = main.replacen(
        "    create_before_destroy = true\n",
        "    create_before_destroy = true\n    replace_triggered_by  = [terraform_data.type[each.key]]\n",
        1,
    );
    let stored = "resource \"terraform_data\" \"type\" {\n  for_each = local.managers\n  input    = each.value.instance_type\n  \
                  lifecycle {\n    create_before_destroy = true\n  }\n}\n";
    example.workspace.write("main.tf", &(triggered + stored)).unwrap();
    example.apply(typed("t3.small")).succeeded();
    let from = example.start_held_job();
    apply_without_capacity(&mut example, "t3.large");
    assert_job_lost(&mut example, from);
}

#[test]
fn type_change_is_a_replacement_after_a_failed_apply() {
    let mut example = Example::start("versions-as-keys");
    example.apply(typed("t3.small")).succeeded();
    let held = example.hold_until_drain("blue-v1");
    let load = example.load(8);
    let from = example.now();
    apply_without_capacity(&mut example, "t3.large");
    example.apply(json!({})).succeeded();
    example.assert_rolled(from, &["blue-v1", "green-v1"], &["blue-v1.2", "green-v1.2"]);
    example.assert_no_job_lost(load, held);
}
