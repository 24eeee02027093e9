//! The models of the simulation are held against reality: the same script runs here with real processes, and has the same traces.

use std::{fs, path::Path};

use grit_tests::{
    poll,
    rollout::{PATIENCE, Rollout},
    traces::Traces,
};

#[track_caller]
fn assert_as_simulated(script: &str, real: &Traces) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/scripts").join(script);
    let simulated = fs::read_to_string(&path).unwrap();
    let real = real.to_string();
    assert!(real == simulated, "this run has other traces than {}:\n{real}", path.display());
}

/// Version 1, then version 2 while a job runs, then a destroy. `in_drain`: happens while the runner of version 1 drains.
fn roll(in_drain: impl FnOnce(&Rollout)) -> Traces {
    let mut rollout = Rollout::start().unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    let first = rollout.workspace.apply().unwrap().succeeded();
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let second = rollout.apply_while(|| {
        rollout.wait_for_drain("m1-v1");
        in_drain(&rollout);
        rollout.lab.queue().release(&jobs);
    });
    let second = second.unwrap().succeeded();
    let last = rollout.workspace.destroy().unwrap().succeeded();
    let mut traces = Traces::of(&rollout.lab.events().all());
    traces.terraform = [first, second, last].iter().flat_map(|run| run.timeline()).collect();
    traces
}

#[test]
fn rollout_has_traces_of_simulation() {
    assert_as_simulated("rollout.txt", &roll(|_| {}));
}

#[test]
fn rollout_with_killed_wrapper_has_traces_of_simulation() {
    let traces = roll(|rollout| {
        rollout.host("m1-v1").replace_wrapper().unwrap();
        poll::until("SIGQUIT was repeated", PATIENCE, || match rollout.signals("m1-v1").len() {
            2 => Ok(()),
            other => Err(other),
        });
    });
    assert_as_simulated("killed-wrapper.txt", &traces);
}
