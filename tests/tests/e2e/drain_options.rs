//! Options of a drain: the forceful mode.

use grit_tests::{
    lab::{Lab, cloud::Instance},
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use serde_json::{Value as Json, json};

/// A workspace with one drain with these optional attributes.
fn drain(lab: &Lab, instance: &Instance, options: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let mut attributes = json!({
        "instance_id": instance.id,
        "runner_manager": instance.runner_manager(),
        "retry": { "attempts": 2 },
        "timeouts": { "delete": "60s" },
    });
    attributes.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let main = lab.configuration(&json!({ "grit_runner_drain": { "m1": attributes } }));
    workspace.write("main.tf.json", &main).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace
}

/// An operator's `grit-wrapper drain` on the host of `m1`.
fn drain_by_hand(lab: &Lab, options: &[&str]) {
    let socket = lab.cloud().host("m1").unwrap().wrapper_socket();
    let mut command = std::process::Command::new(built("grit-wrapper").unwrap());
    command
        .args(["drain", "--id", "operator"])
        .args(options)
        .arg(format!("--address=unix://{}", socket.display()));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn drain_made_forceful_by_operator_succeeds_with_warning() {
    let lab = Lab::start().unwrap();
    lab.expect_lost(1);
    lab.expect(&["m1 received SIGQUIT, SIGTERM"]);
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({}));
    lab.queue().submit_held(1);
    lab.events().wait_for("the job runs", PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    let destroyed = std::thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap());
        lab.events()
            .wait_for("m1 drains", PATIENCE, |event| grit_tests::rollout::is_signal(event, "SIGQUIT"));
        drain_by_hand(&lab, &["--force"]);
        destroy.join().unwrap().succeeded()
    });
    let warnings = destroyed.warnings();
    let told = warnings.iter().find(|(summary, _)| *summary == "Runner of m1 did not exit cleanly");
    assert!(
        told.is_some_and(|(_, detail)| detail.contains("the drain became forceful on the host")),
        "{warnings:?}"
    );
    assert_eq!(lab.queue().tally().lost, 1);
}

#[test]
fn forceful_mode_warns_at_plan_and_aborts_jobs() {
    let lab = Lab::start().unwrap();
    lab.expect_lost(1);
    lab.expect(&["m1 received SIGTERM"]);
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = drain(&lab, &instance, &json!({ "mode": "forceful" }));
    lab.queue().submit_held(1);
    lab.events().wait_for("the job runs", PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    let plan = workspace.run(["plan", "-json", "-destroy"]).unwrap().succeeded();
    let warnings = plan.warnings();
    assert!(warnings.iter().any(|(_, detail)| detail.contains("ABORTED")), "{warnings:?}");
    workspace.destroy().unwrap().succeeded();
    assert_eq!(lab.queue().tally().lost, 1);
}
