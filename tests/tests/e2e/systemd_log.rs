//! On a booted systemd, the last error of a failed runner comes from the journal. What a runner logs decides nothing.

use std::time::Duration;

use grit_testkit::program;
use grit_tests::{
    debian::machine::{LIMIT, Machine, RUNNER_UNIT},
    poll,
};

use crate::systemd::{adjust, drop_in, machine};

/// Waits until the failure reason is this one.
fn wait_reason(machine: &Machine, wanted: &str) {
    machine.wait_status(wanted, |status| status["failure_reason"] == wanted);
}

#[test]
fn journal_line_explains_runner_failure() {
    let Some(machine) = machine(&[]) else { return };
    // Only lines of the runner process are used: not those of its children or of the wrapper.
    let script = "echo 'said on stdout'; echo 'FATAL: no config for glrt-0123456789abcdef' >&2
        sh -c 'echo of a job >&2'; test -e /run/lives && exec sleep 1000; exit 3";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    drop_in(&machine, RUNNER_UNIT, "[Service]\nRestart=no\n");
    machine.start_wrapper();
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    let line = "The last error in the runner's log: FATAL: no config for [hidden]";
    wait_reason(&machine, &format!("exit status 3\n{line}"));

    machine.run(&["touch", "/run/lives"]);
    machine.run(&["grit-wrapper", "start"]);
    machine.wait_state("running");
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=KILL", RUNNER_UNIT]);
    wait_reason(&machine, &format!("signal: killed\n{line}"));
}

/// A job can make its runner write each of these lines, by a variable that contains a line break.
#[test]
fn lines_of_runners_log_do_not_change_outcome() {
    let Some(machine) = machine(&[]) else { return };
    let script = "trap 'cat /run/lines; exit 0' QUIT; while :; do sleep 0.02; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    adjust(&machine, "Environment=GRIT_WRAPPER_START_GRACE=0s");
    let aborted = "WARNING: Starting forceful shutdown  StopSignal=terminated";
    let lost =
        "ERROR: Job trace termination \"Success\" failed  error=received invalid job update response job=7";
    let json = r#"{"level":"warning","msg":"Starting forceful shutdown","time":"2026-01-01T00:00:00Z"}"#;
    let each = ["Job succeeded", aborted, lost, json, "x", aborted, lost].join("\n");
    let flood = format!("{}\n{lost}", vec!["INFO: a line of a job"; 20_000].join("\n"));
    machine.start_with_wrapper();
    for lines in [each, flood] {
        std::fs::write(machine.system.path("/run/lines"), format!("{lines}\n")).unwrap();
        poll::until("the runner handles SIGQUIT", LIMIT, || {
            let pid = machine.ask(&["status"])["pid"].as_u64().ok_or_else(|| machine.journal())?;
            let caught = format!("grep -q '^SigCgt:.*[4-7c-f]$' /proc/{pid}/status");
            let caught = machine.system.run(&["sh", "-c", &caught]).unwrap();
            if caught.status.success() { Ok(()) } else { Err(machine.journal()) }
        });
        machine.run(&["grit-wrapper", "drain"]);
        let status = machine.wait_state("stopped");
        assert_eq!(status["drain"]["outcome"], "clean", "{}", &lines[..lines.len().min(200)]);
        machine.run(&["grit-wrapper", "start"]);
    }
}

#[test]
fn hanging_journalctl_delays_only_the_line() {
    let Some(machine) = machine(&[]) else { return };
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), "echo FATAL >&2; exit 3").unwrap();
    std::fs::create_dir(machine.system.path("/opt/hangs")).unwrap();
    program::script(&machine.system.path("/opt/hangs/journalctl"), "exec sleep 1000").unwrap();
    adjust(&machine, "Environment=PATH=/opt/hangs:/usr/bin:/bin");
    drop_in(&machine, RUNNER_UNIT, "[Service]\nRestart=no\n");
    machine.start_wrapper();
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.wait_state("failed");
    poll::until("the reading is given up", Duration::from_secs(60), || {
        let readers = machine.system.run(&["pgrep", "--full", "[s]leep 1000"]).unwrap();
        if readers.stdout.is_empty() { Ok(()) } else { Err(readers) }
    });
    assert_eq!(machine.ask(&["status"])["failure_reason"], "exit status 3");
}
