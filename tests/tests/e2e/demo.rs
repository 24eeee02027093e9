//! The demo succeeds after a correct rollout, and fails after a wrong one.

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_demo")).args(arguments).output().unwrap()
}

#[test]
fn demo_rollout_under_load_loses_no_job() {
    let output = demo(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("jobs: ") && last.ends_with(" finished, 0 lost"), "{last}");
    for part in [
        "health check: all healthy",
        "drain started with",
        "runner terminated, exit code 0",
        "instance removed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn demo_runs_without_sshd() {
    let output = demo(&["--embedded-ssh"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("SSH server of the hosts: the embedded one"), "{text}");
}

#[test]
fn demo_fails_when_jobs_are_aborted() {
    let output = demo(&["--sabotage"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("a check failed"), "{errors}");
    assert!(errors.contains("was lost on"), "{errors}");
}
