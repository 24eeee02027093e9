//! The action with upstream's wrapper: a drain in two invocations.

use std::time::Duration;

use grit_proto::runner_wrapper::Status as RunnerStatus;
use grit_tests::{
    lab::Lab,
    rollout::PATIENCE,
    terraform::{Workspace, core, need},
};
use serde_json::json;

use crate::upstream_wrapper::{Upstream, manager};

#[test]
fn upstream_drain_in_two_invocations() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let upstream = Upstream::new(Duration::ZERO, Duration::MAX);
    let managers = json!({ "m1": manager(&instance, upstream.serve()) });
    let drain = |wait: bool| {
        json!({ "config": {
            "runner_managers": managers, "wait": wait, "timeouts": { "invoke": "60s" },
        } })
    };
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": { "private_key_path": lab.client_key().path } } },
        "action": {
            "grit_drain": { "start": drain(false), "finish": drain(true) },
        },
    });
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    let invoke = |action: &str| {
        workspace.run(["apply", "-json", "-auto-approve", &format!("-invoke=action.{action}")]).unwrap()
    };
    let started = invoke("grit_drain.start").succeeded();
    let end = "does not wait for its end (over TCP, not verified)";
    assert!(
        started.stdout.contains("m1: the shutdown is in progress") && started.stdout.contains(end),
        "{}",
        started.stdout
    );
    assert_eq!(started.warnings(), []);
    let arguments = ["apply", "-auto-approve", "-no-color", "-invoke=action.grit_drain.finish"];
    let session = workspace.start(arguments).unwrap();
    session.wait_for_text("m1: draining", PATIENCE);
    upstream.exit();
    let finished = session.wait(PATIENCE);
    assert_eq!(finished.code, Some(0), "{}", finished.output);
    assert!(finished.output.contains("m1: the runner exited after "), "{}", finished.output);
    assert_eq!((upstream.status(), upstream.requests()), (RunnerStatus::Stopped.into(), 1));

    let again = invoke("grit_drain.finish").succeeded();
    let exited = "m1: the runner had already exited (over TCP, not verified)";
    assert!(again.stdout.contains(exited), "{}", again.stdout);
}
