//! What the tests on a booted systemd share: `systemd_*.rs`, and others that start the wrapper's unit.

use std::fs;

use grit_tests::{
    debian::machine::{LIMIT, Machine, RUNNER_UNIT, WRAPPER_UNIT},
    poll,
};

/// A machine. If none can be booted, the test is reported as not covered.
pub(crate) fn machine(options: &[&str]) -> Option<Machine> {
    match Machine::boot(options) {
        Ok(machine) => Some(machine),
        Err(why) => {
            grit_testkit::not_covered("the wrapper under a systemd that runs", &format!("{why:#}"));
            None
        }
    }
}

/// The administrator's settings for the wrapper's unit.
pub(crate) fn adjust(machine: &Machine, settings: &str) {
    drop_in(machine, WRAPPER_UNIT, &format!("[Service]\n{settings}\n"));
}

/// The administrator's drop-in of a unit, which the next one replaces.
pub(crate) fn drop_in(machine: &Machine, unit: &str, text: &str) {
    let folder = machine.system.path(&format!("/etc/systemd/system/{unit}.d"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("test.conf"), text).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
}

/// Configures the runner so that there are gaps between its job requests while it has jobs, and that the wrapper waits for them: below 0.4 s, it does
/// not wait until no request is due.
pub(crate) fn leave_gaps(machine: &Machine) {
    machine.change_config(|text| {
        text.replace("check_interval = 0.1", "check_interval = 1")
            .replace("request_concurrency = 4", "request_concurrency = 1")
    });
}

/// The `listen_address` of a runner's configuration.
pub(crate) fn listen_address(config: &str) -> &str {
    config.split("listen_address = \"").nth(1).unwrap().split('"').next().unwrap()
}

/// Ends the wrapper with this signal, and waits until systemd has started the next one.
pub(crate) fn crash(machine: &Machine, signal: &str) {
    let restarts: u32 = machine.property(WRAPPER_UNIT, "NRestarts").parse().unwrap();
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal", signal, WRAPPER_UNIT]);
    machine.wait_property(WRAPPER_UNIT, "NRestarts", &(restarts + 1).to_string());
    machine.wait_property(WRAPPER_UNIT, "ActiveState", "active");
}

/// Runs a command that waits for jobs, and releases them when runners have handled this number of signals.
pub(crate) fn while_jobs_run(machine: &Machine, jobs: &[u64], signals: usize, command: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let waits = scope.spawn(&command);
        machine.wait_signals(signals);
        assert!(!waits.is_finished(), "it does not wait for the jobs\n{}", machine.journal());
        machine.lab.queue().release(jobs);
        waits.join().unwrap();
    });
}

/// Asserts that a runner exited with code 0 after a graceful drain, and that no job was lost.
#[track_caller]
pub(crate) fn assert_clean(machine: &Machine, status: &serde_json::Value) {
    let (outcome, code) = (&status["drain"]["outcome"], &status["exit"]["how"]["code"]);
    assert_eq!((outcome, code), (&"clean".into(), &0.into()), "{status}\n{}", machine.journal());
    assert_eq!(machine.lab.queue().tally().lost, 0, "{}", machine.journal());
}

/// Asserts that a start of the runner's unit starts no runner, and that the wrapper logs this.
#[track_caller]
pub(crate) fn assert_closed(machine: &Machine, start: impl Fn()) {
    let warnings = || {
        machine
            .run(&["journalctl", "--unit", WRAPPER_UNIT, "--output", "cat"])
            .matches("has skipped a start")
            .count()
    };
    let (starts, before) = (machine.starts(), warnings());
    start();
    poll::until("a warning about the start", LIMIT, || match warnings() {
        count if count > before => Ok(()),
        _ => Err(machine.journal()),
    });
    assert_eq!((machine.runner(), machine.starts()), (None, starts), "{}", machine.journal());
    assert_eq!(machine.property(RUNNER_UNIT, "ActiveState"), "inactive");
}
