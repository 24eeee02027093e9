//! Two keys of one runner manager: one healthy runner, or one exit, must not count for both.

use grit_tests::terraform::Workspace;
use serde_json::{Value as Json, json};

const RESOURCES: [&str; 2] = ["grit_runner_health", "grit_runner_shutdown"];

/// A workspace with a resource whose managers `v2-a` and `v2-b` have these addresses. No host exists: nothing may connect.
fn workspace(resource: &str, addresses: [&str; 2]) -> Workspace {
    let manager = |address: &str| json!({ "instance_name": "m", "address": address, "wrapper_address": "unix:///run/w.sock" });
    let managers = json!({ "v2-a": manager(addresses[0]), "v2-b": manager(addresses[1]) });
    let resources: Json = json!({
        "terraform_data": { "address": { "input": "10.0.0.1" } },
        resource: { "all": { "runner_managers": managers } },
    });
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "resource": resources,
    });
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace
}

#[track_caller]
fn assert_two_keys(errors: &[(&str, &str)]) {
    let [(title, detail)] = errors else { panic!("{errors:?}") };
    assert_eq!(*title, "Runner manager has two keys");
    for key in ["v2-a", "v2-b"] {
        assert!(detail.contains(&format!("`runner_managers[{key:?}]`")), "{detail}");
    }
    assert!(detail.ends_with("Code: invalid_config"), "{detail}");
}

#[test]
fn two_keys_of_one_manager_are_refused_at_plan() {
    for resource in RESOURCES {
        assert_two_keys(&workspace(resource, ["10.0.0.1", "10.0.0.1:22"]).plan().unwrap().failed().errors());
        workspace(resource, ["10.0.0.1", "10.0.0.2"]).plan().unwrap().succeeded();
    }
}

#[test]
fn two_keys_of_one_manager_known_at_apply_are_refused_there() {
    for resource in RESOURCES {
        let workspace = workspace(resource, ["${terraform_data.address.output}", "10.0.0.1"]);
        workspace.plan().unwrap().succeeded();
        assert_two_keys(&workspace.apply().unwrap().failed().errors());
        assert_eq!(workspace.state().unwrap().at(&format!("{resource}.all")).len(), 0);
    }
}
