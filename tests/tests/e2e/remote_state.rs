//! A killed Terraform with a remote state: no object of the apply is in the state, and the next apply continues.

use grit_tests::{
    rollout::{PATIENCE, Rollout},
    terraform::Backend,
};
use rustix::process::Signal;

#[test]
fn apply_after_kill_with_remote_state_joins_drain() {
    let backend = Backend::start().unwrap();
    let mut rollout = Rollout::start().unwrap();
    // So Terraform writes the state only at the end, also on a slow machine.
    rollout.workspace.set_env("TF_STATE_PERSIST_INTERVAL", "3600");
    backend.init(&rollout.workspace, &["grit", "lab"]).unwrap();
    rollout.deploy(&["m1-v1"]);
    assert_eq!(backend.count("lab_instance"), 1);

    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    rollout.wait_for_drain("m1-v1");
    session.signal(Signal::KILL).unwrap();
    session.wait(PATIENCE);
    rollout.workspace.providers().assert_none_left(PATIENCE);
    for kind in ["lab_instance", "grit_runner_drain"] {
        assert_eq!(backend.count(kind), 1, "{kind}: nothing of the apply was written");
    }

    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"], "joined, not asked again");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false));
    assert_eq!(rollout.hosts(), ["m1-v2", "m1-v2.2"], "the first new instance is left over");
    assert_eq!(backend.count("lab_instance"), 1);
}
