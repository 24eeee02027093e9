//! Terraform is interrupted after the health check has started the drains.

use grit_tests::{poll, rollout::PATIENCE, terraform::core};
use rustix::process::Signal;
use serde_json::json;

use super::{deployed, drained, fleet, managers, names};

/// Starts a rollout while all old runners have a job, and interrupts it when all of them are draining. Returns the rollout and the jobs.
fn interrupted(count: usize, by: Signal) -> (grit_tests::rollout::Rollout, Vec<u64>) {
    let old = fleet(count, "19.2.0", "-v1");
    let mut rollout = deployed(&old);
    let jobs = rollout.hold_jobs(count);
    rollout.set("managers", fleet(count, "19.2.1", "-v2")).unwrap();
    let mut session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    poll::until("all drains are in progress", PATIENCE * 3, || match drained(&rollout, &names(&old)) {
        all if all == count => Ok(()),
        some => Err(some),
    });
    // Then the core has saved the health check. Terraform truncates its state file before it writes it: one that is killed in between loses all of it.
    session.wait_for_text("Destroying...", PATIENCE);
    match by {
        Signal::INT => session.ctrl_c().unwrap(),
        signal => session.signal(signal).unwrap(),
    }
    let ended = session.wait(PATIENCE);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    rollout.workspace.providers().assert_none_left(PATIENCE);
    assert_eq!(rollout.lab.queue().tally().running, count);
    (rollout, jobs)
}

fn next_apply_ends_rollout(by: Signal) {
    let (rollout, jobs) = interrupted(managers(), by);
    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (managers(), 0));
    for host in names(&fleet(managers(), "", "-v1")) {
        assert_eq!(rollout.signals(&host), ["SIGQUIT"]);
        assert_eq!(rollout.runner_was_alive_at_the_end_of(&host), Some(false));
    }
    // A core that is killed can forget new instances, which the next apply creates again.
    if by == Signal::INT || core().saves_each_step() {
        let mut hosts = rollout.hosts();
        hosts.sort();
        assert_eq!(hosts, names(&fleet(managers(), "", "-v2")));
    }
}

#[test]
fn ctrl_c_after_started_drains_is_continued() {
    next_apply_ends_rollout(Signal::INT);
}

#[test]
fn sigkill_after_started_drains_is_continued() {
    next_apply_ends_rollout(Signal::KILL);
}

#[test]
fn interrupted_rollout_rolls_back_with_start_if_stopped() {
    let (mut rollout, jobs) = interrupted(2, Signal::INT);
    rollout.lab.queue().release(&jobs);
    let old = fleet(2, "19.2.0", "-v1");
    rollout.set("managers", old.clone()).unwrap();
    rollout.set("health", json!({ "start_drains": true, "start_if_stopped": true })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let mut hosts = rollout.hosts();
    hosts.sort();
    assert_eq!(hosts, names(&old));
    for host in names(&old) {
        assert!(rollout.host(&host).runner_pid().is_some(), "{host}");
        assert_eq!(rollout.signals(&host), ["SIGQUIT"]);
    }
}
