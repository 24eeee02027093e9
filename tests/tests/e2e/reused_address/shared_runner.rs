//! Two drain resources of different instances with one runner manager: the exit of its runner is the evidence for one of them only.

use super::*;

const TITLE: &str = "Two drain resources with one runner manager";

/// Drain resources `a` and `b` with these instances. The health check has no managers, and so makes no connection.
fn drains(address: &Address, instances: [&str; 2]) -> Json {
    let health = json!({ "all": {
        "runner_managers": {}, "drains": { "a": "${grit_runner_drain.a.id}", "b": "${grit_runner_drain.b.id}" },
    } });
    let drains = json!({ "a": address.drain(instances[0]), "b": address.drain(instances[1]) });
    json!({ "grit_runner_drain": drains, "grit_runner_health": health })
}

#[track_caller]
fn assert_refused(errors: &[(&str, &str)], instances: [&str; 2]) {
    assert!(!errors.is_empty());
    for (title, detail) in errors {
        assert_eq!(*title, TITLE);
        assert!(instances.iter().all(|instance| detail.contains(&format!("{instance:?}"))), "{detail}");
        assert!(detail.ends_with("Code: refused"), "{detail}");
    }
}

#[test]
fn two_drains_of_one_runner_are_refused_at_plan() {
    let mut address = Address::new();
    // New ones: the health check proves that this is a plan.
    address.write(&drains(&address, ["i-a", "i-b"]));
    assert_refused(&address.workspace.plan().unwrap().failed().errors(), ["i-a", "i-b"]);

    let mut without_health = drains(&address, ["i-a", "i-b"]);
    without_health.as_object_mut().unwrap().remove("grit_runner_health");
    address.write(&without_health);
    if core().stores_planned_private() {
        assert_refused(&address.workspace.plan().unwrap().failed().errors(), ["i-a", "i-b"]);
        address.workspace.set_env("GRIT_PLAN_CHECK", "off");
        address.workspace.apply().unwrap().succeeded();
        address.workspace.set_env("GRIT_PLAN_CHECK", "on");
    } else {
        // A create must not fail if it may be of an apply.
        let applied = address.workspace.apply().unwrap().succeeded();
        let warnings = applied.warnings();
        assert!(warnings.iter().any(|(title, _)| *title == TITLE), "{warnings:?}");
    }

    // Both are kept, replaced, or removed.
    assert_refused(&address.workspace.plan().unwrap().failed().errors(), ["i-a", "i-b"]);
    let mut replaced = drains(&address, ["i-c", "i-d"]);
    replaced["grit_runner_drain"]["a"]["runner_manager"]["address"] = json!("m-c.example.com");
    replaced["grit_runner_drain"]["b"]["runner_manager"]["address"] = json!("m-d.example.com");
    address.write(&replaced);
    assert_refused(&address.workspace.plan().unwrap().failed().errors(), ["i-a", "i-b"]);
    address.write(&json!({ "terraform_data": { "x": {} } }));
    assert_refused(&address.workspace.plan().unwrap().failed().errors(), ["i-a", "i-b"]);
    address.workspace.destroy().unwrap().failed();
    assert_eq!(address.signals(), 0);

    // The user confirms that one instance is gone. The other one is drained.
    address.workspace.set_env("GRIT_ASSUME_TERMINATED", "i-a");
    address.workspace.apply().unwrap().succeeded();
    assert_eq!(address.signals(), 1);
}

/// The plan was made with the check off, in another process.
#[test]
fn exit_of_one_runner_is_the_evidence_for_one_instance() {
    let mut address = Address::new();
    let mut resources = drains(&address, ["i-a", "i-b"]);
    resources.as_object_mut().unwrap().remove("grit_runner_health");
    address.write(&resources);
    address.workspace.set_env("GRIT_PLAN_CHECK", "off");
    address.workspace.apply().unwrap().succeeded();
    address.workspace.run(["plan", "-destroy", "-out=saved"]).unwrap().succeeded();
    address.workspace.set_env("GRIT_PLAN_CHECK", "on");
    let failed = address.workspace.run(["apply", "-json", "saved"]).unwrap().failed();
    let errors = failed.errors();
    let [(title, detail)] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(*title, "Runner manager m1 was not drained");
    assert!(detail.contains("\"i-a\"") && detail.contains("\"i-b\""), "{detail}");
    assert_eq!(address.workspace.state().unwrap().objects.len(), 1);
    assert_eq!(address.signals(), 1);
}
