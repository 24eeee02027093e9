//! Ctrl-C, signals and SIGKILL: the provider exits in time, and no existing object is lost from the state.

use grit_tests::terraform::{Ended, Session, Workspace, core};
use rustix::process::Signal;

use crate::lab_probe::{LIMIT, SOON, lab};

/// Longer than every wait of a test: a call that ends earlier was stopped.
const LONG: u32 = 300_000;

fn creating(count: u32, mode: &str) -> Workspace {
    lab(&format!(
        r#"
        resource "lab_probe" "p" {{
          count     = {count}
          name      = "p${{count.index}}"
          mode      = "{mode}"
          create_ms = {LONG}
        }}
        "#
    ))
}

fn apply(lab: &Workspace) -> Session {
    lab.start(["apply", "-auto-approve"]).unwrap()
}

#[track_caller]
fn assert_tainted(lab: &Workspace, count: usize) {
    let state = lab.state().unwrap();
    assert_eq!(state.objects.len(), count, "{}", state.text);
    for object in &state.objects {
        assert!(object.tainted, "{object:?}");
        assert!(object.attributes["id"].as_str().is_some_and(|id| id.starts_with("id-p")), "{object:?}");
        assert!(object.private.is_some(), "{object:?}");
    }
}

#[track_caller]
fn assert_stopped(ended: &Ended, summary: &str) {
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains(summary), "{}", ended.output);
    assert!(!ended.output.contains("Plugin did not respond"), "{}", ended.output);
}

#[test]
fn ctrl_c_during_create_taints_resource() {
    let lab = creating(1, "");
    let mut session = apply(&lab);
    lab.wait_for("create_start", 1, LIMIT);
    session.ctrl_c().unwrap();
    assert_stopped(&session.wait(LIMIT), "Create interrupted");
    assert_tainted(&lab, 1);
    lab.wait_for("create_stopped", 1, SOON);
    lab.providers().assert_none_left(SOON);
}

#[test]
fn ctrl_c_stops_ten_parallel_creates() {
    let lab = creating(10, "");
    let mut session = apply(&lab);
    lab.wait_for("create_start", 10, LIMIT);
    session.ctrl_c().unwrap();
    let ended = session.wait(LIMIT);
    if core().crashes_on_stopped_creates() {
        assert!(
            ended.output.contains("has status ObjectStatus(0), which cannot be saved in state"),
            "{}",
            ended.output
        );
    } else {
        assert_stopped(&ended, "Create interrupted");
        assert_tainted(&lab, 10);
    }
    lab.providers().assert_none_left(SOON);
}

#[test]
fn ctrl_c_during_destroy_keeps_resource() {
    let lab = lab(&format!("resource \"lab_probe\" \"p\" {{\n name = \"p0\"\n destroy_ms = {LONG}\n}}\n"));
    lab.apply().unwrap().succeeded();
    let mut session = lab.start(["destroy", "-auto-approve"]).unwrap();
    lab.wait_for("destroy_start", 1, LIMIT);
    session.ctrl_c().unwrap();
    assert_stopped(&session.wait(LIMIT), "Destroy interrupted");
    let state = lab.state().unwrap();
    assert_eq!(state.objects.len(), 1, "{}", state.text);
    assert!(!state.objects[0].tainted);
    assert!(state.objects[0].private.is_some());
    lab.providers().assert_none_left(SOON);
}

#[test]
fn sigterm_to_process_group_stops_create() {
    let lab = creating(1, "");
    let session = apply(&lab);
    lab.wait_for("create_start", 1, LIMIT);
    session.signal_group(Signal::TERM).unwrap();
    assert_stopped(&session.wait(LIMIT), "Create interrupted");
    assert_tainted(&lab, 1);
    lab.providers().assert_none_left(SOON);
}

#[test]
fn second_ctrl_c_ends_unresponsive_create() {
    let lab = creating(1, "unresponsive");
    let mut session = apply(&lab);
    lab.wait_for("create_start", 1, LIMIT);
    session.ctrl_c().unwrap();
    session.wait_for_text("Gracefully shutting down", LIMIT);
    session.ctrl_c().unwrap();
    let ended = session.wait(LIMIT);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("Two interrupts received"), "{}", ended.output);
    lab.providers().assert_none_left(SOON);
}

#[test]
fn provider_exits_cleanly_after_terraform_is_killed() {
    let lab = creating(1, "");
    let session = apply(&lab);
    lab.wait_for("create_start", 1, LIMIT);
    session.signal(Signal::KILL).unwrap();
    assert_eq!(session.wait(LIMIT).signal, Some(9));
    // The call was stopped by its token, not dropped.
    lab.wait_for("create_stopped", 1, SOON);
    lab.providers().assert_none_left(SOON);
    assert_eq!(lab.journal().iter().filter(|entry| entry.event == "create_dropped").count(), 0);
}

#[test]
fn sighup_ends_terraform_and_provider() {
    let lab = creating(1, "");
    let session = apply(&lab);
    lab.wait_for("create_start", 1, LIMIT);
    session.signal_group(Signal::HUP).unwrap();
    assert_eq!(session.wait(LIMIT).signal, Some(1));
    lab.wait_for("create_stopped", 1, SOON);
    lab.providers().assert_none_left(SOON);
}
