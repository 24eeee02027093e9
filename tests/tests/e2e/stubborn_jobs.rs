//! Jobs that ignore SIGTERM. As with the real runner, each job is a separate process group, and after its
//! `shutdown_timeout` the runner exits 1 and leaves the processes of its jobs behind.

use std::time::Duration;

use grit_tests::{lab::Lab, poll, rollout::PATIENCE, terraform::Workspace};
use serde_json::json;

#[test]
fn forceful_drain_leaves_no_job_process() {
    let lab = Lab::start().unwrap();
    lab.expect_lost(2);
    lab.expect(&["m1 exited with 1 after its drain", "m1 received SIGTERM"]);
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).runner(&["--job-process=stubborn"]);
        spec.shutdown_timeout = Some(Duration::from_secs(1));
    });
    let (instance, host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let jobs = || host.processes().into_iter().filter(|process| process.program == "sleep").count();
    let workspace = Workspace::new(&["grit"]).unwrap();
    let drain = json!({ "grit_runner_drain": { "m1": {
        "instance_id": instance.id,
        "runner_manager": instance.runner_manager(),
        "mode": "forceful",
        "timeouts": { "delete": "60s" },
    } } });
    workspace.write("main.tf.json", &lab.configuration(&drain)).unwrap();
    workspace.apply().unwrap().succeeded();
    lab.queue().submit_held(2);
    poll::until("the processes of two jobs", PATIENCE, || match jobs() {
        2 => Ok(()),
        count => Err(count),
    });
    let destroyed = workspace.destroy().unwrap().succeeded();
    assert_eq!(jobs(), 0, "{:?}", host.processes());
    assert_eq!(host.runner_pid(), None);
    let warnings = destroyed.warnings();
    assert!(warnings.iter().any(|(_, detail)| detail.contains("m1")), "jobs were aborted: {warnings:?}");
}
