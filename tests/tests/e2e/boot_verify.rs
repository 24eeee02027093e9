//! The boot verification (`experimental.boot_verify`, from GitLab Runner 19.2 on): a health check waits for it, and a drain cancels it.

use std::time::Duration;

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What},
    poll,
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use serde_json::{Value as Json, json};

fn verifying(takes: &'static str) -> (Lab, Instance) {
    let lab = Lab::start().unwrap();
    lab.cloud().shape(move |_, spec| *spec = std::mem::take(spec).runner(&["--boot-verify", takes]));
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    (lab, instance)
}

fn workspace(lab: &Lab, kind: &str, attributes: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let main = lab.configuration(&json!({ kind: { "m1": attributes } }));
    workspace.write("main.tf.json", &main).unwrap();
    workspace
}

#[test]
fn health_check_waits_for_boot_verification() {
    let (lab, instance) = verifying("3s");
    let health_check = json!({ "runner_managers": { "m1": instance.runner_manager() }, "level": "ready" });
    workspace(&lab, "grit_runner_health", &health_check).apply().unwrap().succeeded();
    let is_start = |event: &grit_tests::lab::event::Event| matches!(event.what, What::RunnerStarted { .. });
    let started = lab.events().find(is_start).unwrap();
    let proven = lab.events().note("m1", "proven");
    assert!(proven.at >= started.at + Duration::from_secs(3), "{}", lab.events());
}

/// The runner cancels the verification and exits with an error, as after a failed one. No job is lost, because it never accepted one.
#[test]
fn drain_during_boot_verification_reports_runner_error() {
    let (lab, instance) = verifying("1h");
    lab.expect(&["m1 exited with 1 after its drain"]);
    let drain = json!({ "instance_id": instance.id, "runner_manager": instance.runner_manager() });
    let workspace = workspace(&lab, "grit_runner_drain", &drain);
    workspace.apply().unwrap().succeeded();
    let status = || {
        let mut command = std::process::Command::new(built("grit-wrapper").unwrap());
        let output =
            command.args(["status", "--json", "--address", &instance.wrapper_address]).output().unwrap();
        serde_json::from_slice::<Json>(&output.stdout).map_err(|error| error.to_string())
    };
    poll::until("the verification is under way", PATIENCE, || {
        let status = status()?;
        if status.to_string().contains("boot-verify pending") { Ok(()) } else { Err(status.to_string()) }
    });
    workspace.destroy().unwrap().succeeded();
    let ended = status().unwrap();
    assert_eq!((&ended["state"], &ended["exit"]["how"]["code"]), (&json!("failed"), &json!(1)), "{ended}");
    assert!(ended["failure_reason"].as_str().unwrap().starts_with("exit status 1"), "{ended}");
    assert_eq!(lab.queue().runner("m1").polls, 0, "it asked for a job");
}
