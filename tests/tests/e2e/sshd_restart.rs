//! sshd restarts in a drain, as in an upgrade of its package: the drain continues on the host, and the provider connects again.

use grit_tests::{rollout::Rollout, sshd};

#[test]
fn sshd_restarts_in_a_drain() {
    if !sshd::is_installed() {
        return grit_testkit::not_covered("a drain in which sshd restarts", "there is no sshd");
    }
    let mut rollout = Rollout::deployed(&["m1-v1"]);
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let roll = rollout.apply_while(|| {
        rollout.wait_for_drain("m1-v1");
        rollout.host("m1-v1").restart_sshd().unwrap();
        rollout.lab.queue().release(&jobs);
    });
    assert_eq!(roll.unwrap().succeeded().warnings(), []);
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"]);
}
