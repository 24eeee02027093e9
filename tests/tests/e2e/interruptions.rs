//! Whatever ends Terraform in the middle of a wait: nothing is orphaned, the shutdown goes on on the host, the next apply joins it.

use std::time::Duration;

use grit_tests::{
    rollout::{PATIENCE, Rollout},
    terraform::{Ended, Session, core},
};
use rustix::process::Signal;
use serde_json::json;

/// How Terraform is ended.
#[derive(Debug, Clone, Copy)]
enum Blow {
    CtrlC,
    TwoCtrlC,
    TermToGroup,
    Kill,
}

impl Blow {
    /// Whether the core has then forgotten what this apply made.
    fn forgets(self) -> bool {
        matches!(self, Self::Kill) && !core().saves_each_step()
    }
}

fn strike(mut session: Session, blow: Blow) -> Ended {
    match blow {
        Blow::CtrlC => session.ctrl_c().unwrap(),
        Blow::TwoCtrlC => {
            session.ctrl_c().unwrap();
            session.ctrl_c().unwrap();
        }
        Blow::TermToGroup => session.signal_group(Signal::TERM).unwrap(),
        Blow::Kill => session.signal(Signal::KILL).unwrap(),
    }
    session.wait(PATIENCE)
}

fn no_provider_is_left(rollout: &Rollout) {
    rollout.workspace.providers().assert_none_left(PATIENCE);
}

/// Rolls away from m1-v1 while a job runs there, ends Terraform in the middle of the drain, and applies again.
fn in_a_drain(blow: Blow) {
    let mut rollout = Rollout::start().unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();

    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    rollout.wait_for_drain("m1-v1");
    let ended = strike(session, blow);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    no_provider_is_left(&rollout);
    if matches!(blow, Blow::CtrlC | Blow::TermToGroup) {
        // The host can be quicker than its answer: then the provider does not know yet that the request arrived.
        let requested = ["The shutdown was requested and continues", "The shutdown request was sent"];
        assert!(requested.iter().any(|text| ended.output.contains(text)), "{}", ended.output);
        assert!(ended.output.contains("Code: interrupted"), "{}", ended.output);
    }

    // On the host the drain goes on, and the state knows guard and instance.
    assert_eq!(rollout.lab.queue().tally().running, 1);
    let state = rollout.workspace.state().unwrap();
    let versions = if blow.forgets() { 1 } else { 2 };
    for kept in ["lab_instance.manager", "grit_runner_drain.manager"] {
        assert_eq!(state.at(kept).len(), versions, "{kept}: {state:?}");
    }

    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    // Where the core forgot the new instance, it has made it a second time; the first one is a machine that no state knows.
    let left: &[&str] = if blow.forgets() { &["m1-v2", "m1-v2.2"] } else { &["m1-v2"] };
    assert_eq!(rollout.hosts(), left);
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"], "joined, not asked again");
    assert_eq!(rollout.lab.queue().tally().lost, 0);
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

/// Ends Terraform in the middle of the first health wait, and applies again.
fn in_a_health_wait(blow: Blow) {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.cloud().shape(|_, spec| spec.boot_takes = Duration::from_secs(10));
    rollout.managers(&["m1-v1"]).unwrap();
    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    session.wait_for_text("grit_runner_health.all: Creating...", PATIENCE);
    let ended = strike(session, blow);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    no_provider_is_left(&rollout);

    let state = rollout.workspace.state().unwrap();
    let known = if blow.forgets() { 0 } else { 1 };
    assert_eq!(state.at("lab_instance.manager").len(), known, "{state:?}");
    assert_eq!(state.at("grit_runner_drain.manager").len(), known, "{state:?}");
    assert_eq!(
        state.at("grit_runner_health.all").len(),
        0,
        "a gate that was not passed is not there: {state:?}"
    );

    rollout.workspace.apply().unwrap().succeeded();
    let left: &[&str] = if blow.forgets() { &["m1-v1", "m1-v1.2"] } else { &["m1-v1"] };
    assert_eq!(rollout.hosts(), left, "the instance is made anew only where the core forgot it");
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());
}

#[test]
fn ctrl_c_during_drain_keeps_instance() {
    in_a_drain(Blow::CtrlC);
}

#[test]
fn two_ctrl_c_during_drain_keep_instance() {
    in_a_drain(Blow::TwoCtrlC);
}

#[test]
fn sigterm_to_group_during_drain_keeps_instance() {
    in_a_drain(Blow::TermToGroup);
}

#[test]
fn sigkill_of_terraform_during_drain_keeps_instance() {
    in_a_drain(Blow::Kill);
}

#[test]
fn ctrl_c_during_health_wait_keeps_old_version() {
    in_a_health_wait(Blow::CtrlC);
}

#[test]
fn sigterm_to_group_during_health_wait_keeps_old_version() {
    in_a_health_wait(Blow::TermToGroup);
}

#[test]
fn sigkill_during_health_wait_keeps_old_version() {
    in_a_health_wait(Blow::Kill);
}

#[test]
fn ctrl_c_during_ten_drains_keeps_instances() {
    let mut rollout = Rollout::start().unwrap();
    let names: Vec<_> = (0..10).map(|number| format!("m{number}-v1")).collect();
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    rollout.managers(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    rollout.set("health", json!({ "create": "120s" })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let jobs = rollout.hold_jobs(10);

    let session = rollout.workspace.start(["destroy", "-auto-approve"]).unwrap();
    for name in &names {
        rollout.wait_for_drain(name);
    }
    let ended = strike(session, Blow::CtrlC);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    assert_eq!(ended.output.matches("Code: interrupted").count(), 10, "{}", ended.output);
    no_provider_is_left(&rollout);
    assert_eq!(rollout.workspace.state().unwrap().at("grit_runner_drain.manager").len(), 10);

    rollout.lab.queue().release(&jobs);
    rollout.workspace.destroy().unwrap().succeeded();
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (10, 0));
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}
