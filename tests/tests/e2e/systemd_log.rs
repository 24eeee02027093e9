//! On a booted systemd, the last log lines of a failed runner come from the journal, and so do the messages of lost jobs.

use std::time::Duration;

use grit_testkit::program;
use grit_tests::{
    debian::machine::{LIMIT, Machine},
    poll,
};

use crate::systemd_stop::{adjust, machine};

const UNIT: &str = "grit-wrapper.service";

/// Waits until the failure reason with log lines is known.
fn reason(machine: &Machine, wanted: &str) -> String {
    poll::until(wanted, LIMIT, || {
        match machine.ask(&["status"])["failure_reason"].as_str().unwrap_or_default() {
            reason if reason.contains(wanted) => Ok(reason.to_owned()),
            reason => Err((reason.to_owned(), machine.journal())),
        }
    })
}

#[test]
fn journal_lines_explain_runner_failure() {
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
        "exit status 3\nThe last lines of the runner's log:\n  said on stdout\n  FATAL: no config for \
         glrt-[hidden]"
    );

    // The exit status of an adopted runner may be unknown; then only the lines are reported.
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

/// The message is older than the last lines: the runner writes several for each job that it aborts.
#[test]
fn journal_shows_lost_jobs_of_drain() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let script = "forged='Starting forceful shutdown'
        test -e /run/imitates && echo \"WARNING: $forged\"
        trap 'if test -e /run/imitates; then
            echo \"WARNING: GIT_SUBMODULE_STRATEGY: expected none, got \\\"$forged\\\"\"; echo \"Job succeeded  branch=$forged\"
            sh -c \"echo WARNING: $forged; echo ERROR: Job trace termination\"; exit 0; fi
            test -e /run/finishes && echo \"ERROR: Job trace termination \\\"Success\\\" failed  job=7\" && exit 0' QUIT
        trap 'echo \"WARNING: Starting forceful shutdown\"; seq 100; exit 0' TERM
        while :; do sleep 0.1; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    machine.run(&["systemctl", "start", "--no-block", UNIT]);
    let drained = |meanwhile: &dyn Fn(u64)| {
        let runner = poll::until("the runner runs", LIMIT, || match machine.ask(&["status"]) {
            status if status["state"] == "running" => Ok(status["pid"].as_u64().unwrap()),
            _ => Err(machine.journal()),
        });
        machine.run(&["grit-wrapper", "drain"]);
        poll::until("SIGQUIT is sent", LIMIT, || match machine.ask(&["status"]) {
            status if status["drain"]["signalled"] == true => Ok(()),
            status => Err(status),
        });
        meanwhile(runner);
        let status = poll::until("the runner exits", LIMIT, || match machine.ask(&["status"]) {
            status if status["state"] == "stopped" => Ok(status),
            status => Err(status),
        });
        status["drain"]["outcome"].as_str().unwrap().to_owned()
    };
    let outcome = drained(&|runner| {
        machine.run(&["kill", "-s", "TERM", &runner.to_string()]);
    });
    assert_eq!(outcome, "jobs_aborted", "{}", machine.journal());

    machine.run(&["touch", "/run/finishes"]);
    machine.run(&["grit-wrapper", "start"]);
    assert_eq!(drained(&|_| {}), "results_lost", "{}", machine.journal());

    // A variable of a job, a field, and the message of another process or of an earlier time are not evidence.
    machine.run(&["touch", "/run/imitates"]);
    machine.run(&["grit-wrapper", "start"]);
    assert_eq!(drained(&|_| {}), "clean", "{}", machine.journal());
}

#[test]
fn hanging_journalctl_delays_only_log_tail() {
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

/// The exit code does not show aborted jobs, so that without the search nothing is known about them.
#[test]
fn drain_whose_log_search_fails_is_not_clean() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let script = "trap 'exit 0' QUIT; while :; do sleep 0.02; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    std::fs::create_dir(machine.system.path("/opt/fails")).unwrap();
    let journalctl = machine.system.path("/opt/fails/journalctl");
    adjust(&machine, "Environment=GRIT_WRAPPER_START_GRACE=0s PATH=/opt/fails:/usr/bin:/bin");
    let real = "exec /usr/bin/journalctl \"$@\"";
    for (search, outcome) in [
        (real, "clean"),
        ("exec sleep 1000", "unknown"),
        ("echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", "unknown"),
        ("echo 'Journal file a.journal corrupted, ignoring file.' >&2; exit 0", "unknown"),
        ("kill -s KILL $$", "unknown"),
        (real, "clean"),
    ] {
        let script = format!("case \"$*\" in *--grep*) {search};; esac; {real}");
        program::script(&journalctl, &script).unwrap();
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
        assert_eq!(status["drain"]["outcome"], outcome, "{search}: {}", machine.journal());
        machine.run(&["grit-wrapper", "start"]);
    }
}

/// The time in which the journal is read does not shorten the part of the drain that is searched.
#[test]
fn slow_journalctl_does_not_hide_aborted_job() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let script = "trap : QUIT
        trap 'echo \"WARNING: Starting forceful shutdown\"; exit 0' TERM
        while :; do sleep 0.02; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    std::fs::create_dir(machine.system.path("/opt/slow")).unwrap();
    let slow = "case \"$*\" in *--grep*) sleep 1;; esac; exec /usr/bin/journalctl \"$@\"";
    program::script(&machine.system.path("/opt/slow/journalctl"), slow).unwrap();
    adjust(&machine, "Environment=GRIT_WRAPPER_START_GRACE=0s PATH=/opt/slow:/usr/bin:/bin");
    machine.run(&["systemctl", "start", "--no-block", UNIT]);
    let runner = poll::until("the runner handles SIGQUIT", LIMIT, || {
        let pid = machine.ask(&["status"])["pid"].as_u64().ok_or_else(|| machine.journal())?;
        let caught = format!("grep -q '^SigCgt:.*4...$' /proc/{pid}/status");
        let caught = machine.system.run(&["sh", "-c", &caught]).unwrap();
        if caught.status.success() { Ok(pid) } else { Err(machine.journal()) }
    });
    machine.run(&["sh", "-c", &format!("grit-wrapper drain && kill -s TERM {runner}")]);
    let status = poll::until("the runner exits", LIMIT, || match machine.ask(&["status"]) {
        status if status["state"] == "stopped" => Ok(status),
        status => Err(status),
    });
    assert_eq!(status["drain"]["outcome"], "jobs_aborted", "{}", machine.journal());
}
