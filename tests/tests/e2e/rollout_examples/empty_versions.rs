//! A rollout to a version or colour without managers, for example because of a mistake in a map: the plan refuses it, because it would drain all
//! runners.

use serde_json::{Value as Json, json};

use super::{Example, manager};

#[track_caller]
fn assert_refused(name: &str, valid: Json, empty: Json, message: &str) {
    let mut example = Example::start(name);
    example.apply(valid).succeeded();
    let hosts = example.hosts();
    let from = example.now();
    let refused = example.apply(empty).failed();
    assert!(refused.errors().iter().any(|(_, detail)| detail.contains(message)), "{:?}", refused.errors());
    assert_eq!(example.signalled(from, "SIGQUIT"), [""; 0]);
    assert_eq!(example.hosts(), hosts);
}

/// An example with the variables `versions` and `active_versions`.
#[track_caller]
fn assert_empty_version_refused(name: &str) {
    let versions = json!({ "v1": { "blue": manager("19.2.1") }, "v2": {} });
    assert_refused(
        name,
        json!({ "versions": versions, "active_versions": ["v1"] }),
        json!({ "active_versions": ["v2"] }),
        "Each version of active_versions must have a manager in versions",
    );
}

#[test]
fn versions_as_keys_example_refuses_an_empty_version() {
    assert_empty_version_refused("versions-as-keys");
}

#[test]
fn module_per_version_example_refuses_an_empty_version() {
    assert_empty_version_refused("module-per-version");
}

#[test]
fn blue_green_example_refuses_an_empty_colour() {
    let colours = |green: Json| json!({ "blue": { "a": manager("19.2.1") }, "green": green });
    assert_refused(
        "blue-green",
        json!({ "colours": colours(json!({})), "active": "blue" }),
        json!({ "active": "green" }),
        "The colour of active must have a manager in colours",
    );
}
