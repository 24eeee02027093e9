//! Another process sends SIGTERM to a draining runner. The runner aborts its jobs and still exits with code 0.

use std::{process::Command, thread, time::Duration};

use grit_tests::{
    lab::{Lab, host::Host},
    poll,
    rollout::{PATIENCE, is_signal},
    terraform::{self, Workspace},
};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

fn status(host: &Host) -> Json {
    let mut command = Command::new(terraform::built("grit-wrapper").unwrap());
    let output = command.args(["status", "--json", "--address", &host.wrapper_address()]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The runner's output goes to a pipe, so that only its metrics show the abort.
#[test]
fn drain_with_foreign_sigterm_warns_about_aborted_jobs() {
    let lab = Lab::start().unwrap();
    lab.expect_lost(2);
    lab.expect(&["m1 received SIGQUIT, SIGTERM"]);
    lab.cloud().shape(|_, spec| *spec = std::mem::take(spec).runner(&["--abort-takes", "4s"]));
    let (instance, host) = lab.cloud().create("m1", "19.1.0").unwrap();
    let workspace = Workspace::new(&["grit"]).unwrap();
    let drain = json!({ "grit_runner_drain": { "m1": {
        "instance_id": instance.id,
        "runner_manager": instance.runner_manager(),
        "timeouts": { "delete": "60s" },
    } } });
    workspace.write("main.tf.json", &lab.configuration(&drain)).unwrap();
    workspace.apply().unwrap().succeeded();
    lab.queue().submit_held(2);
    poll::until("the jobs run", PATIENCE, || match lab.queue().tally() {
        tally if tally.running == 2 => Ok(()),
        tally => Err(tally),
    });

    let destroyed = thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap().succeeded());
        lab.events().wait_for("the drain", PATIENCE, |event| is_signal(event, "SIGQUIT"));
        // The runner drops a signal that follows another one immediately.
        thread::sleep(Duration::from_millis(100));
        host.signal_runner(Signal::TERM).unwrap();
        poll::until("the abort is seen", PATIENCE, || {
            let status = status(&host);
            let reasons = status["health"]["reasons"].to_string();
            if reasons.contains("a process other than the wrapper sent SIGTERM") {
                Ok(())
            } else {
                Err(status)
            }
        });
        destroy.join().unwrap()
    });
    let warnings = destroyed.warnings();
    let is_about_jobs = |detail: &str| detail.contains("\"m1\"") && detail.contains("jobs were aborted");
    assert!(warnings.iter().any(|(_, detail)| is_about_jobs(detail)), "{warnings:?}");
    let status = status(&host);
    let of_drain = (&status["drain"]["mode"], &status["drain"]["outcome"], &status["exit"]["how"]["code"]);
    assert_eq!(of_drain, (&json!("graceful"), &json!("jobs_aborted"), &json!(0)), "{status}");
    assert_eq!(lab.queue().tally().lost, 2);
}
