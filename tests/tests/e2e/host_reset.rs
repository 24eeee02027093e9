//! A host that is reset during a drain: its jobs are lost, and the runner is drained again after the boot.

use grit_testkit::not_covered;
use grit_tests::{
    lab::event::What,
    rollout::{PATIENCE, Rollout},
};

#[test]
fn host_reset_during_drain_is_drained_again() {
    if !rustix::process::geteuid().is_root() {
        return not_covered(
            "a host that is restarted during a drain",
            "only root can give it another boot id",
        );
    }
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect_lost(1);
    rollout.deploy(&["m1-v1"]);
    rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let roll = rollout
        .apply_while(|| {
            rollout.wait_for_drain("m1-v1");
            let before = rollout.host("m1-v1").runner_pid();
            rollout.host("m1-v1").reboot().unwrap();
            rollout.lab.events().wait_for("the runner starts at boot", PATIENCE, |event| {
                event.subject == "m1-v1"
                    && matches!(event.what, What::RunnerStarted { pid, .. } if Some(pid) != before)
            });
        })
        .unwrap()
        .succeeded();
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false), "{:?}", roll.timeline());
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT", "SIGQUIT"], "one for each runner process");
    assert_eq!(rollout.lab.queue().tally().lost, 1, "the job ended with the host");
    let title = "Host of m1-v1 restarted during the drain";
    assert!(roll.warnings().iter().any(|(summary, _)| *summary == title), "{:?}", roll.warnings());
}
