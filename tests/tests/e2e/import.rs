//! Import and identity of drain resources. No host is needed: an import does not connect.

use grit_tests::{
    ssh_server::KeyPair,
    terraform::{Workspace, core, need},
};
use serde_json::{Value as Json, json};

/// A workspace with one drain resource for this instance, and further blocks.
fn workspace(instance: &str, blocks: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    write(&workspace, instance, blocks);
    workspace
}

fn write(workspace: &Workspace, instance: &str, blocks: &Json) {
    let manager = json!({
        "instance_name": "m1",
        "address": "127.0.0.1:1",
        "wrapper_address": "unix:///run/wrapper.sock",
        "username": "deploy",
        "ssh_key_pem": KeyPair::generate().unwrap().private,
    });
    let drain = json!({
        "instance_id": instance,
        "runner_manager": manager,
        "retry": { "attempts": 1 },
        "lifecycle": { "create_before_destroy": true },
    });
    let mut main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "resource": { "grit_runner_drain": { "a": drain } },
    });
    main.as_object_mut().unwrap().extend(blocks.as_object().unwrap().clone());
    workspace.write("main.tf.json", &main.to_string()).unwrap();
}

fn import_block(target: &Json) -> Json {
    let mut block = json!({ "to": "grit_runner_drain.a" });
    block.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
    json!({ "import": [block] })
}

/// The only object, which an apply has completed.
#[track_caller]
fn assert_complete(workspace: &Workspace, instance: &str) {
    let state = workspace.state().unwrap();
    let object = state.at("grit_runner_drain.a")[0];
    assert_eq!(object.attributes["instance_id"], instance);
    assert_eq!(object.attributes["runner_manager"]["instance_name"], "m1");
    let id = object.attributes["id"].as_str().unwrap();
    assert!(id.starts_with("m1@127.0.0.1:1#"), "{id}");
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0]);
}

#[test]
fn imported_drain_is_completed_by_next_apply() {
    let workspace = workspace("i-1", &json!({}));
    let run = workspace.run(["import", "grit_runner_drain.a", "i-1"]).unwrap().succeeded();
    assert!(run.stdout.contains("Imported drain resource is incomplete"), "{}", run.stdout);

    // Before that apply there is no target to drain.
    let refused = workspace.destroy().unwrap().failed();
    let (title, detail) = refused.errors()[0];
    assert_eq!(title, "Drain resource has an invalid runner manager");
    assert!(detail.contains("`runner_manager`") && detail.ends_with("Code: invalid_config"), "{detail}");

    let applied = workspace.apply().unwrap().succeeded();
    assert_eq!(
        applied.timeline(),
        ["start update grit_runner_drain.a", "complete update grit_runner_drain.a"]
    );
    assert_complete(&workspace, "i-1");
}

#[test]
fn import_block_by_id_is_complete_after_one_apply() {
    let workspace = workspace("i-1", &import_block(&json!({ "id": "i-1" })));
    let applied = workspace.apply().unwrap().succeeded();
    assert!(!applied.timeline().iter().any(|line| line.contains("create")), "{:?}", applied.timeline());
    assert_complete(&workspace, "i-1");
}

#[test]
fn import_block_by_identity_is_complete_after_one_apply() {
    let blocks = import_block(&json!({ "identity": { "instance_id": "i-1" } }));
    need(core().has_resource_identity());
    let workspace = workspace("i-1", &blocks);
    workspace.apply().unwrap().succeeded();
    assert_complete(&workspace, "i-1");
}

#[test]
fn import_for_another_instance_is_refused_at_plan() {
    let workspace = workspace("i-2", &import_block(&json!({ "id": "i-1" })));
    let refused = workspace.plan().unwrap().failed();
    let (title, detail) = refused.errors()[0];
    assert_eq!(title, "Imported drain resource belongs to another instance");
    assert!(detail.contains("\"i-1\"") && detail.ends_with("Code: invalid_config"), "{detail}");
}

#[test]
fn import_with_empty_id_is_refused() {
    let workspace = workspace("i-1", &json!({}));
    let run = workspace.run(["import", "grit_runner_drain.a", " "]).unwrap().failed();
    assert!(run.stderr.contains("Import id is empty"), "{}", run.stderr);
}

#[test]
fn import_of_instance_with_a_drain_is_refused() {
    let workspace = workspace("i-1", &json!({}));
    workspace.apply().unwrap().succeeded();
    let text = std::fs::read_to_string(workspace.root().join("main.tf.json")).unwrap();
    let mut main: Json = serde_json::from_str(&text).unwrap();
    let drain = main["resource"]["grit_runner_drain"]["a"].clone();
    main["resource"]["grit_runner_drain"]["b"] = drain;
    main["import"] = json!([{ "to": "grit_runner_drain.b", "id": "i-1" }]);
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    let refused = workspace.plan().unwrap().failed();
    assert_eq!(refused.errors()[0].0, "Plan would drain a runner whose instance is kept");
}

/// The identity of the only object in the state file.
fn stored_identity(workspace: &Workspace) -> Json {
    let text = std::fs::read_to_string(workspace.root().join("terraform.tfstate")).unwrap();
    let state: Json = serde_json::from_str(&text).unwrap();
    state["resources"][0]["instances"][0]["identity"].clone()
}

#[test]
fn state_has_identity_of_each_new_instance() {
    let workspace = workspace("i-1", &json!({}));
    workspace.apply().unwrap().succeeded();
    let expected = |instance: &str| match core().has_resource_identity() {
        true => json!({ "instance_id": instance }),
        false => Json::Null,
    };
    assert_eq!(stored_identity(&workspace), expected("i-1"));
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0]);

    // A replacement; the old host does not exist.
    write(&workspace, "i-2", &json!({}));
    let workspace = workspace.env("GRIT_ASSUME_TERMINATED", "i-1");
    workspace.apply().unwrap().succeeded();
    assert_eq!(stored_identity(&workspace), expected("i-2"));
}

#[test]
fn state_without_identity_gets_one_at_refresh() {
    need(core().has_resource_identity());
    let workspace = workspace("i-1", &json!({}));
    workspace.apply().unwrap().succeeded();
    let path = workspace.root().join("terraform.tfstate");
    let mut state: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let object = state["resources"][0]["instances"][0].as_object_mut().unwrap();
    object.remove("identity").unwrap();
    object.remove("identity_schema_version");
    std::fs::write(&path, state.to_string()).unwrap();
    workspace.run(["apply", "-json", "-auto-approve", "-refresh-only"]).unwrap().succeeded();
    assert_eq!(stored_identity(&workspace), json!({ "instance_id": "i-1" }));
}
