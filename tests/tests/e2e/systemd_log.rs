//! On a booted systemd, the last error of a failed runner comes from the journal. What a runner logs decides nothing.

use std::time::Duration;

use grit_testkit::program;
use grit_tests::{
    debian::machine::{LIMIT, Machine},
    poll,
};

use crate::systemd_stop::{adjust, machine};

const UNIT: &str = "grit-wrapper.service";

/// Waits until the failure reason with the line of the log is known.
fn reason(machine: &Machine, wanted: &str) -> String {
    poll::until(wanted, LIMIT, || {
        match machine.ask(&["status"])["failure_reason"].as_str().unwrap_or_default() {
            reason if reason.contains(wanted) => Ok(reason.to_owned()),
            reason => Err((reason.to_owned(), machine.journal())),
        }
    })
}

#[test]
fn journal_line_explains_runner_failure() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    // Only lines of the runner process are used: not those of its children or of the wrapper.
    let script = "echo 'said on stdout'; echo 'FATAL: no config for glrt-0123456789abcdef' >&2
        sh -c 'echo of a job >&2'; test -e /run/lives && exec sleep 1000; exit 3";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    adjust(&machine, "Environment=GRIT_WRAPPER_RESTART=never");
    machine.run(&["systemctl", "start", "--no-block", UNIT]);
    assert_eq!(
        reason(&machine, "FATAL"),
        "exit status 3\nThe last error in the runner's log: FATAL: no config for [hidden]"
    );

    // The exit status of an adopted runner may be unknown; then only the line is reported.
    machine.run(&["touch", "/run/lives"]);
    machine.run(&["grit-wrapper", "start"]);
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=SIGKILL", UNIT]);
    machine.wait_property(UNIT, "NRestarts", "1");
    let runner = poll::until("the runner is adopted", LIMIT, || {
        machine.ask(&["status"])["pid"].as_u64().ok_or_else(|| machine.journal())
    });
    machine.run(&["kill", "-s", "KILL", &runner.to_string()]);
    let adopted = reason(&machine, "FATAL");
    let how = adopted.lines().next().unwrap_or_default();
    let known = [
        "signal: killed",
        "exited; the exit status is unknown, because this wrapper is not the parent of the process",
    ];
    assert!(known.contains(&how), "{adopted}");
}

/// A job can make its runner write each of these lines, by a variable that contains a line break.
#[test]
fn lines_of_runners_log_do_not_change_outcome() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let script = "trap 'cat /run/lines; exit 0' QUIT; while :; do sleep 0.02; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    adjust(&machine, "Environment=GRIT_WRAPPER_START_GRACE=0s");
    let aborted = "WARNING: Starting forceful shutdown  StopSignal=terminated";
    let lost =
        "ERROR: Job trace termination \"Success\" failed  error=received invalid job update response job=7";
    let json = r#"{"level":"warning","msg":"Starting forceful shutdown","time":"2026-01-01T00:00:00Z"}"#;
    let flood = format!("{}\n{lost}", vec!["INFO: a line of a job"; 20_000].join("\n"));
    for lines in ["Job succeeded", aborted, lost, json, &format!("x\n{aborted}\n{lost}"), &flood] {
        std::fs::write(machine.system.path("/run/lines"), format!("{lines}\n")).unwrap();
        machine.run(&["systemctl", "start", "--no-block", UNIT]);
        poll::until("the runner handles SIGQUIT", LIMIT, || {
            let pid = machine.ask(&["status"])["pid"].as_u64().ok_or_else(|| machine.journal())?;
            let caught = format!("grep -q '^SigCgt:.*[4-7c-f]$' /proc/{pid}/status");
            let caught = machine.system.run(&["sh", "-c", &caught]).unwrap();
            if caught.status.success() { Ok(()) } else { Err(machine.journal()) }
        });
        machine.run(&["grit-wrapper", "drain"]);
        let status = poll::until("the runner exits", LIMIT, || match machine.ask(&["status"]) {
            status if status["state"] == "stopped" => Ok(status),
            status => Err(status),
        });
        assert_eq!(status["drain"]["outcome"], "clean", "{}", &lines[..lines.len().min(200)]);
        machine.run(&["grit-wrapper", "start"]);
    }
}

#[test]
fn hanging_journalctl_delays_only_the_line() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), "echo FATAL >&2; exit 3").unwrap();
    std::fs::create_dir(machine.system.path("/opt/hangs")).unwrap();
    program::script(&machine.system.path("/opt/hangs/journalctl"), "exec sleep 1000").unwrap();
    adjust(&machine, "Environment=GRIT_WRAPPER_RESTART=never PATH=/opt/hangs:/usr/bin:/bin");
    machine.run(&["systemctl", "start", "--no-block", UNIT]);
    poll::until("the runner has failed", LIMIT, || match machine.ask(&["status"]) {
        status if status["state"] == "failed" => Ok(()),
        status => Err((status, machine.journal())),
    });
    poll::until("the reading is given up", Duration::from_secs(60), || {
        let readers = machine.system.run(&["pgrep", "--full", "[s]leep 1000"]).unwrap();
        if readers.stdout.is_empty() { Ok(()) } else { Err(readers) }
    });
    assert_eq!(machine.ask(&["status"])["failure_reason"], "exit status 3");
}
