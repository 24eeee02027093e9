//! On a booted systemd: a full disk, a lost file, and changed settings of the runner's unit.

use std::fs;

use grit_tests::{
    debian::machine::{LIMIT, Machine, RUNNER_UNIT, WRAPPER_UNIT},
    poll,
};

use crate::systemd::{assert_clean, assert_closed, crash, drop_in, machine};

const STATE: &str = "/run/grit-wrapper/gitlab-runner.service.state";
const DROP_IN: &str = "/usr/lib/systemd/system/gitlab-runner.service.d/10-grit-wrapper.conf";

/// Waits until a health reason contains this text.
#[track_caller]
fn wait_reason(machine: &Machine, wanted: &str) {
    machine.wait_status(wanted, |status| status["health"]["reasons"].to_string().contains(wanted));
}

#[test]
fn drain_on_full_disk_loses_no_job() {
    let Some(machine) = machine(&[]) else { return };
    machine.run(&["mkdir", "/run/grit-wrapper"]);
    machine.run(&["mount", "-t", "tmpfs", "-o", "size=64k,mode=0755", "tmpfs", "/run/grit-wrapper"]);
    machine.start_with_wrapper();
    machine.wait_level("polling");
    let jobs = machine.hold_jobs(1);
    // It writes as much as there is space for.
    machine.system.run(&["dd", "if=/dev/zero", "of=/run/grit-wrapper/full", "bs=1k"]).unwrap();
    crash(&machine, "KILL");
    machine.system.run(&["grit-wrapper", "drain", "--id", "deploy-7"]).unwrap();
    wait_reason(&machine, "No space left on device");
    machine.run(&["rm", "/run/grit-wrapper/full"]);
    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.wait_signals(1);
    machine.lab.queue().release(&jobs);
    assert_clean(&machine, &machine.wait_state("stopped"));
    machine.wait_property(RUNNER_UNIT, "ActiveState", "inactive");
    assert_closed(&machine, || drop(machine.run(&["systemctl", "start", RUNNER_UNIT])));
    assert_eq!((machine.starts(), machine.signals()), (1, vec!["SIGQUIT".to_owned()]));
}

/// The drain is lost with the file. The runner continues to drain, and no second one is started.
#[test]
fn lost_intent_starts_no_second_runner() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.wait_signals(1);
    machine.run(&["systemctl", "stop", WRAPPER_UNIT]);
    machine.run(&["rm", STATE]);
    machine.run(&["systemctl", "start", WRAPPER_UNIT]);
    assert_eq!(machine.runner(), runner);
    // The client repeats its request.
    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.lab.queue().release(&jobs);
    let status = machine.wait_state("stopped");
    assert_eq!(
        (&status["drain"]["id"], &status["exit"]["how"]["code"]),
        (&"deploy-7".into(), &0.into()),
        "{status}"
    );
    assert_closed(&machine, || drop(machine.run(&["systemctl", "start", RUNNER_UNIT])));
    machine.assert_never_two_runners(0);

    // After the exit.
    machine.run(&["systemctl", "stop", WRAPPER_UNIT]);
    machine.run(&["rm", STATE]);
    machine.run(&["systemctl", "start", WRAPPER_UNIT]);
    assert!(machine.ask(&["status"])["pid"].is_null());
    assert_eq!(machine.starts(), 1);
    machine.run(&["grit-wrapper", "start"]);
    machine.wait_level("polling");
    assert_eq!(machine.starts(), 2);
}

/// A file that no release can read, or that a newer one has written.
#[test]
fn unreadable_intent_keeps_runner() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    machine.run(&["systemctl", "stop", WRAPPER_UNIT]);
    let state = machine.system.path(STATE);
    let ours = fs::read_to_string(&state).unwrap();
    fs::write(&state, "{").unwrap();
    machine.system.run(&["systemctl", "start", "--no-block", WRAPPER_UNIT]).unwrap();
    poll::until("the wrapper has read it", LIMIT, || {
        let journal = machine.run(&["journalctl", "--unit", WRAPPER_UNIT, "--output", "cat"]);
        if journal.contains(STATE) { Ok(()) } else { Err(journal) }
    });
    assert_eq!((machine.runner(), machine.starts(), machine.signals().len()), (runner, 1, 0));
    fs::write(&state, ours).unwrap();
    machine.wait_level("polling");
    machine.lab.queue().release(&jobs);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
    assert_eq!((machine.runner(), machine.starts(), machine.signals().len()), (runner, 1, 0));
}

#[test]
fn missing_line_of_drop_in_is_a_health_reason() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    machine.wait_level("polling");
    let changed = |wanted: &str| {
        // The wrapper reads the settings each minute, and at its start.
        crash(&machine, "KILL");
        wait_reason(&machine, wanted);
        machine.wait_level("process");
    };
    for (setting, line) in [
        ("KillMode=process", "`KillMode=mixed`"),
        ("KillSignal=SIGTERM", "`KillSignal=SIGQUIT`"),
        ("TimeoutStopSec=2h", "`TimeoutStopSec=infinity`"),
        ("RestartSec=100ms", "`RestartSec=5s`"),
        ("ExecStop=", "`ExecStop=-+/usr/bin/grit-wrapper exec-stop %n`"),
        ("ExecCondition=", "`ExecCondition=+/usr/bin/test ! -e /run/grit-wrapper/held/%n`"),
    ] {
        drop_in(&machine, RUNNER_UNIT, &format!("[Service]\n{setting}\n"));
        changed(line);
    }
    fs::remove_file(machine.system.path("/etc/systemd/system/gitlab-runner.service.d/test.conf")).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    crash(&machine, "KILL");
    machine.wait_level("polling");

    let text = fs::read_to_string(machine.system.path(DROP_IN)).unwrap();
    machine.run(&["rm", DROP_IN]);
    machine.run(&["systemctl", "daemon-reload"]);
    changed("`ExecStopPost=-+/usr/bin/grit-wrapper exec-stop-post %n`");
    fs::write(machine.system.path(DROP_IN), text).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    crash(&machine, "KILL");
    machine.wait_level("polling");
    assert_eq!((machine.starts(), machine.signals().len()), (1, 0));
}
