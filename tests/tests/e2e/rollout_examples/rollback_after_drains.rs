//! A rollback after the drains have begun, as the README of `versions-as-keys` and docs/guides/rollout.md describe it.

use std::fs;

use grit_tests::{
    lab::event::{Event, What},
    rollout::{PATIENCE, is_signal},
};
use serde_json::json;

use super::{DRAIN_LIMIT, Example, versions};

fn polls(event: &Event, host: &str) -> bool {
    event.subject == host && matches!(event.what, What::RunnerPolling { .. })
}

#[test]
fn versions_as_keys_example_rolls_back_after_drains_began() {
    let mut example = Example::start("versions-as-keys");
    example.apply(json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] })).succeeded();
    let held = example.lab.queue().hold_on(&["blue-v1"], PATIENCE);

    // The rollout is interrupted: green-v1 has exited, and blue-v1 still drains.
    example.set(json!({ "active_versions": ["v2"] }));
    let mut session = example.workspace.start(["apply", "-auto-approve"]).unwrap();
    session.wait_for_text("grit_runner_drain.manager[\"green-v1\"]: Destruction complete", DRAIN_LIMIT);
    let drains = |event: &Event| event.subject == "blue-v1" && is_signal(event, "SIGQUIT");
    example.lab.events().wait_for("blue-v1 drains", DRAIN_LIMIT, drains);
    session.ctrl_c().unwrap();
    let ended = session.wait(PATIENCE);
    assert_ne!(ended.code, Some(0), "{}", ended.output);

    // Version 1 alone: the health check fails, and version 2 is not drained.
    let from = example.now();
    example.apply(json!({ "active_versions": ["v1"], "health_timeout": "6s" })).failed();
    assert_eq!(example.signalled(from, "SIGQUIT"), [""; 0]);
    assert_eq!(example.hosts(), ["blue-v1", "blue-v2", "green-v1", "green-v2"]);

    let main = fs::read_to_string(example.workspace.root().join("main.tf")).unwrap();
    let check = "resource \"grit_runner_health\" \"all\" {\n";
    let starting = main.replace(check, &format!("{check}  start_if_stopped = true\n"));
    assert_ne!(starting, main);
    example.workspace.write("main.tf", &starting).unwrap();
    // The job on blue-v1 ends after green-v1 was started.
    let release = {
        let (queue, events) = (example.lab.queue().clone(), example.lab.events().clone());
        std::thread::spawn(move || {
            events.wait_from(from, DRAIN_LIMIT, |event| polls(event, "green-v1"));
            queue.release(&held);
        })
    };
    example.apply(json!({ "health_timeout": "10m" })).succeeded();
    release.join().unwrap();
    for old in ["blue-v1", "green-v1"] {
        let polling = example.position(from, "the old runner polls", |event| polls(event, old));
        let drain = example.position(from, "version 2 drains", |event| is_signal(event, "SIGQUIT"));
        assert!(polling < drain, "{}", example.lab.events());
    }
    assert_eq!(example.signalled(from, "SIGQUIT"), ["blue-v2", "green-v2"]);
    assert_eq!(example.hosts(), ["blue-v1", "green-v1"]);

    example.workspace.write("main.tf", &main).unwrap();
    example.apply(json!({})).succeeded();
    assert!(["blue-v1", "green-v1"].iter().all(|host| example.is_running(host)));
    assert_eq!(example.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
}
