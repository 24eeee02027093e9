//! The models of the simulation are held against reality: the same script runs here with real processes, and has the same traces.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use grit_tests::{
    lab::event::What,
    rollout::{PATIENCE, Rollout},
    terraform::{Run, built},
    traces::Traces,
};

#[track_caller]
fn assert_as_simulated(script: &str, real: &Traces) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/scripts").join(script);
    let simulated = fs::read_to_string(&path).unwrap();
    let real = real.to_string();
    assert!(real == simulated, "this run has other traces than {}:\n{real}", path.display());
}

/// Version 1, then version 2 while a job runs, then a destroy. `second`: performs the second step.
fn roll(second: impl FnOnce(&Rollout, &[u64]) -> Vec<Run>) -> Traces {
    let mut rollout = Rollout::start().unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    let mut runs = vec![rollout.workspace.apply().unwrap().succeeded()];
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    runs.extend(second(&rollout, &jobs));
    runs.push(rollout.workspace.destroy().unwrap().succeeded());
    let mut traces = Traces::of(&rollout.lab.events().all());
    traces.terraform = runs.iter().flat_map(Run::timeline).collect();
    traces
}

/// One apply. `in_drain`: happens while the runner of version 1 drains.
fn roll_with(in_drain: impl FnOnce(&Rollout)) -> Traces {
    roll(|rollout, jobs| {
        let run = rollout.apply_while(|| {
            rollout.wait_for_drain("m1-v1");
            in_drain(rollout);
            rollout.lab.queue().release(jobs);
        });
        vec![run.unwrap().succeeded()]
    })
}

/// Waits until the wrapper has logged this.
#[track_caller]
fn wait_for_log(rollout: &Rollout, text: &str) {
    rollout.lab.events().wait_for(text, PATIENCE, |event| match &event.what {
        What::Log { line } => line.contains(text),
        _ => false,
    });
}

#[test]
fn rollout_has_traces_of_simulation() {
    assert_as_simulated("rollout.txt", &roll_with(|_| {}));
}

#[test]
fn rollout_with_killed_wrapper_has_traces_of_simulation() {
    let traces = roll_with(|rollout| {
        rollout.host("m1-v1").replace_wrapper().unwrap();
        wait_for_log(rollout, "the runner of a killed wrapper is running: waiting for its exit");
    });
    assert_as_simulated("killed-wrapper.txt", &traces);
}

#[test]
fn rollout_with_forced_drain_has_traces_of_simulation() {
    let traces = roll_with(|rollout| {
        rollout.lab.expect_lost(1);
        rollout.lab.expect(&["m1-v1 received SIGQUIT, SIGTERM"]);
        let socket = rollout.host("m1-v1").wrapper_socket();
        let mut command = Command::new(built("grit-wrapper").unwrap());
        command.args(["drain", "--id=op-0", "--force"]).arg(format!("--address=unix://{}", socket.display()));
        assert!(command.stdin(Stdio::null()).output().unwrap().status.success());
        // Else the job could end first.
        rollout
            .lab
            .events()
            .wait_for("the abort", PATIENCE, |event| matches!(event.what, What::JobLost { .. }));
    });
    assert_as_simulated("forced-drain.txt", &traces);
}

#[test]
fn interrupted_rollout_has_traces_of_simulation() {
    let traces = roll(|rollout, jobs| {
        let mut session = rollout.workspace.start(["apply", "-auto-approve", "-json"]).unwrap();
        rollout.wait_for_drain("m1-v1");
        session.ctrl_c().unwrap();
        let interrupted = Run::from(session.wait(PATIENCE));
        rollout.lab.queue().release(jobs);
        vec![interrupted, rollout.workspace.apply().unwrap().succeeded()]
    });
    assert_as_simulated("interrupted.txt", &traces);
}
