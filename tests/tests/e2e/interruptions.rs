//! Terraform is interrupted during a wait: no object is orphaned, the shutdown continues on the host, and the next apply joins it.

use std::{fs, time::Duration};

use grit_tests::{
    rollout::{PATIENCE, Rollout},
    terraform::{Ended, Session, core},
};
use rustix::process::Signal;
use serde_json::json;

/// The kind of interruption.
#[derive(Debug, Clone, Copy)]
enum Interruption {
    CtrlC,
    TwoCtrlC,
    TermToGroup,
    Kill,
}

impl Interruption {
    /// Whether the core then loses the objects that this apply created.
    fn forgets(self) -> bool {
        matches!(self, Self::Kill) && !core().saves_each_step()
    }
}

fn strike(mut session: Session, interruption: Interruption) -> Ended {
    match interruption {
        Interruption::CtrlC => session.ctrl_c().unwrap(),
        Interruption::TwoCtrlC => {
            session.ctrl_c().unwrap();
            session.ctrl_c().unwrap();
        }
        Interruption::TermToGroup => session.signal_group(Signal::TERM).unwrap(),
        Interruption::Kill => session.signal(Signal::KILL).unwrap(),
    }
    session.wait(PATIENCE)
}

/// A second Ctrl-C ends Terraform at once ("data loss may have occurred"), also between the moments at which it truncates the state file and writes it.
/// The user then takes the backup, which has the state before the apply.
fn restores_backup(rollout: &Rollout, interruption: Interruption) -> bool {
    let state = rollout.workspace.root().join("terraform.tfstate");
    let is_lost =
        matches!(interruption, Interruption::TwoCtrlC) && fs::read(&state).unwrap_or_default().is_empty();
    if is_lost {
        fs::copy(rollout.workspace.root().join("terraform.tfstate.backup"), &state).unwrap();
    }
    is_lost
}

fn no_provider_is_left(rollout: &Rollout) {
    rollout.workspace.providers().assert_none_left(PATIENCE);
}

/// Replaces m1-v1 while a job runs there, interrupts Terraform during the drain, and applies again.
fn during_drain(interruption: Interruption) {
    let mut rollout = Rollout::deployed(&["m1-v1"]);
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();

    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    rollout.wait_for_drain("m1-v1");
    let ended = strike(session, interruption);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    no_provider_is_left(&rollout);
    if matches!(interruption, Interruption::CtrlC | Interruption::TermToGroup) {
        // The host can handle the request before the provider has its response.
        let requested = ["The shutdown was requested and continues", "The shutdown request was sent"];
        assert!(requested.iter().any(|text| ended.output.contains(text)), "{}", ended.output);
        assert!(ended.output.contains("Code: interrupted"), "{}", ended.output);
    }

    // The drain continues on the host, and the state has the drain resource and the instance.
    assert_eq!(rollout.lab.queue().tally().running, 1);
    let forgets = restores_backup(&rollout, interruption) || interruption.forgets();
    let state = rollout.workspace.state().unwrap();
    let versions = if forgets { 1 } else { 2 };
    for kept in ["lab_instance.manager", "grit_runner_drain.manager"] {
        assert_eq!(state.at(kept).len(), versions, "{kept}: {state:?}");
    }

    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    // If the core lost the new instance, it has created it a second time; the first one is in no state.
    let left: &[&str] = if forgets { &["m1-v2", "m1-v2.2"] } else { &["m1-v2"] };
    assert_eq!(rollout.hosts(), left);
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"], "joined, not asked again");
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

/// Interrupts Terraform during the first health wait, and applies again.
fn during_health_wait(interruption: Interruption) {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.cloud().shape(|_, spec| spec.boot_takes = Duration::from_secs(10));
    rollout.managers(&["m1-v1"]).unwrap();
    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    session.wait_for_text("grit_runner_health.all: Creating...", PATIENCE);
    let ended = strike(session, interruption);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    no_provider_is_left(&rollout);

    let state = rollout.workspace.state().unwrap();
    let known = if interruption.forgets() { 0 } else { 1 };
    assert_eq!(state.at("lab_instance.manager").len(), known, "{state:?}");
    assert_eq!(state.at("grit_runner_drain.manager").len(), known, "{state:?}");
    assert_eq!(
        state.at("grit_runner_health.all").len(),
        0,
        "a health_check that was not passed is not there: {state:?}"
    );

    rollout.workspace.apply().unwrap().succeeded();
    let left: &[&str] = if interruption.forgets() { &["m1-v1", "m1-v1.2"] } else { &["m1-v1"] };
    assert_eq!(rollout.hosts(), left, "the instance is made anew only where the core forgot it");
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());
}

#[test]
fn ctrl_c_during_drain_keeps_instance() {
    during_drain(Interruption::CtrlC);
}

#[test]
fn two_ctrl_c_during_drain_keep_instance() {
    during_drain(Interruption::TwoCtrlC);
}

#[test]
fn sigterm_to_group_during_drain_keeps_instance() {
    during_drain(Interruption::TermToGroup);
}

#[test]
fn sigkill_of_terraform_during_drain_keeps_instance() {
    during_drain(Interruption::Kill);
}

#[test]
fn ctrl_c_during_health_wait_keeps_old_version() {
    during_health_wait(Interruption::CtrlC);
}

#[test]
fn sigkill_during_health_wait_keeps_old_version() {
    during_health_wait(Interruption::Kill);
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
    let ended = strike(session, Interruption::CtrlC);
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
