//! The wrapper's packages on a running machine: upgrade, downgrade and removal, and the migration from upstream's wrapper. The commands are read from
//! docs/wrapper/running.md.

use std::fs;

use grit_tests::{
    debian::{
        both,
        machine::{LIMIT, Machine, RUNNER_UNIT, WRAPPER_UNIT},
    },
    poll,
    sshd::free_address,
};

use crate::systemd::{assert_clean, assert_closed, drop_in, listen_address, machine, while_jobs_run};

const PROGRAM: &str = "/usr/bin/grit-wrapper";
const DOCUMENT: &str = include_str!("../../../docs/wrapper/running.md");

/// The commands in the first code block below a heading of the document.
fn documented(heading: &str) -> String {
    let (_, below) = DOCUMENT.split_once(&format!("# {heading}\n")).expect(heading);
    let block = below.lines().skip_while(|line| !line.starts_with("    "));
    block.take_while(|line| line.starts_with("    ")).map(|line| format!("{}\n", line.trim())).collect()
}

/// Runs commands of the document, up to the first that fails.
fn follow(machine: &Machine, commands: &str) -> String {
    machine.run(&["sh", "-e", "-c", commands])
}

/// Installs a version, and asserts that another wrapper runs the new binary.
#[track_caller]
fn upgrade(machine: &Machine, install: impl Fn()) {
    let wrapper = || machine.property(WRAPPER_UNIT, "MainPID");
    let before = wrapper();
    install();
    let after = wrapper();
    assert_ne!(after, before, "{}", machine.journal());
    machine.run(&["sh", "-c", &format!("[ /proc/{after}/exe -ef {PROGRAM} ]")]);
    assert_eq!(machine.property(WRAPPER_UNIT, "ActiveState"), "active");
}

/// Before, in and after a drain.
fn upgrades_and_downgrades(machine: &Machine, install: impl Fn(&str)) {
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    install("2.0.0");
    assert_eq!(machine.property(WRAPPER_UNIT, "ActiveState"), "inactive");
    machine.run(&["systemctl", "enable", "--now", WRAPPER_UNIT]);
    let jobs = machine.hold_jobs(2);
    let runner = machine.runner();
    let both_ways = || {
        for version in ["3.0.0", "1.0.0"] {
            upgrade(machine, || install(version));
        }
    };
    both_ways();
    machine.wait_level("polling");
    assert_eq!((machine.runner(), machine.signals().len()), (runner, 0));

    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.wait_signals(1);
    // The wrapper that sends SIGQUIT also confirms that no job request was open; the next one cannot.
    poll::until("the confirmation", LIMIT, || match machine.ask(&["status"])["drain"].take() {
        drain if drain["open_requests"] == 0 => Ok(()),
        drain => Err(drain),
    });
    both_ways();
    let status = machine.wait_state("draining");
    assert_eq!((&status["drain"]["id"], machine.runner()), (&"deploy-7".into(), runner), "{status}");
    machine.lab.queue().release(&jobs);
    assert_clean(machine, &machine.wait_state("stopped"));

    machine.wait_property(RUNNER_UNIT, "ActiveState", "inactive");
    both_ways();
    let status = machine.wait_state("stopped");
    assert_eq!(status["drain"]["id"], "deploy-7", "{status}");
    assert_clean(machine, &status);
    assert_closed(machine, || drop(machine.run(&["systemctl", "start", RUNNER_UNIT])));
    assert_eq!(machine.starts(), 1);

    // While systemd stops the unit: the command of the drop-in is the replaced program.
    machine.run(&["grit-wrapper", "start"]);
    let jobs = machine.hold_jobs(1);
    let signals = machine.signals().len();
    machine.run(&["systemctl", "stop", "--no-block", RUNNER_UNIT]);
    machine.wait_signals(signals + 1);
    both_ways();
    assert_eq!(machine.property(RUNNER_UNIT, "ActiveState"), "deactivating");
    machine.lab.queue().release(&jobs);
    assert_clean(machine, &machine.wait_state("stopped"));
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.wait_level("polling");
    machine.assert_never_two_runners(0);
    assert_eq!(machine.starts(), 3);
    // The next wrapper repeats SIGQUIT, which has no effect on a runner that drains.
    assert!(machine.signals().iter().all(|signal| signal == "SIGQUIT"), "{:?}", machine.signals());
}

#[test]
fn deb_upgrade_and_downgrade_keep_runner_and_drain() {
    let Some(machine) = machine(&[]) else { return };
    // `systemctl stop` repeats SIGQUIT.
    machine.lab.expect_anything();
    upgrades_and_downgrades(&machine, |version| drop(machine.install(version)));
}

/// With RPM, the script of the new package runs before those of the old one.
#[test]
fn rpm_upgrade_and_downgrade_keep_runner_and_drain() {
    let Some(machine) = machine(&[]) else { return };
    // `systemctl stop` repeats SIGQUIT.
    machine.lab.expect_anything();
    upgrades_and_downgrades(&machine, |version| drop(machine.install_rpm(version)));
    removal_keeps_runner(&machine, &["rpm", "--erase", "grit-wrapper"]);
}

#[test]
fn deb_removal_keeps_runner_and_refuses_during_drain() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    removal_keeps_runner(&machine, &["dpkg", "--remove", "grit-wrapper"]);
    machine.run(&["dpkg", "--purge", "grit-wrapper"]);
    let left = "/etc/systemd/system/multi-user.target.wants/grit-wrapper.service";
    assert!(fs::symlink_metadata(machine.system.path(left)).is_err());
}

/// Refused in drains of a client and of `systemctl stop`, and while the runner has the unit file of the package.
fn removal_keeps_runner(machine: &Machine, remove: &[&str]) {
    let refused = |wanted: &str| {
        let output = machine.system.run(remove).unwrap();
        assert!(!output.status.success() && both(&output).contains(wanted), "{}", both(&output));
        machine.ask(&["status"]);
    };
    machine.wait_state("running");
    let signals = machine.signals().len();
    let jobs = machine.hold_jobs(1);
    machine.ask(&["drain"]);
    machine.wait_signals(signals + 1);
    refused("a drain is in progress: gitlab-runner.service");
    machine.lab.queue().release(&jobs);
    machine.wait_state("stopped");
    machine.run(&["grit-wrapper", "start"]);
    let jobs = machine.hold_jobs(1);
    while_jobs_run(machine, &jobs, signals + 2, || {
        machine.run(&["systemctl", "stop", RUNNER_UNIT]);
    });

    machine.remove_runner_unit();
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.wait_state("running");
    refused("which belongs to this package");
    machine.install_runner_unit();

    let jobs = machine.hold_jobs(1);
    let (runner, starts) = (machine.runner(), machine.starts());
    machine.run(remove);
    assert_eq!(machine.property(WRAPPER_UNIT, "LoadState"), "not-found");
    // The defaults of systemd, as before the installation.
    let shown = ["KillMode", "ExecStop", "ActiveState"].map(|name| machine.property(RUNNER_UNIT, name));
    assert_eq!(shown, ["control-group", "", "active"]);
    for left in [
        PROGRAM,
        "/run/grit-wrapper",
        "/run/gitlab-runner-wrapper.sock",
        "/usr/lib/systemd/system/gitlab-runner.service",
    ] {
        assert!(fs::symlink_metadata(machine.system.path(left)).is_err(), "{left}");
    }
    assert_eq!((machine.runner(), machine.starts(), machine.signals().len()), (runner, starts, signals + 2));
    machine.lab.queue().release(&jobs);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
    machine.assert_never_two_runners(0);
}

/// Upstream's wrapper in the service, as GRIT's modules install it. It does not forward SIGQUIT, and keeps running after the runner has exited.
#[test]
fn migration_from_upstream_wrapper_loses_no_job() {
    let Some(machine) = machine(&[]) else { return };
    let script = "#!/bin/sh\ntrap '' QUIT\n/usr/bin/gitlab-runner run &\nwait\nwhile :; do sleep 0.1; done\n";
    let program = machine.system.path("/usr/bin/upstream-wrapper");
    fs::write(&program, script).unwrap();
    machine.run(&["chmod", "755", "/usr/bin/upstream-wrapper"]);
    drop_in(&machine, RUNNER_UNIT, "[Service]\nExecStart=\nExecStart=/usr/bin/upstream-wrapper\n");
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    let jobs = machine.hold_jobs(1);
    while_jobs_run(&machine, &jobs, 1, || drop(follow(&machine, &documented("From upstream's wrapper"))));
    assert_eq!(machine.runner(), None);
    drop_in(&machine, RUNNER_UNIT, "");
    machine.install("1.0.0");
    machine.run(&["systemctl", "enable", "--now", RUNNER_UNIT, WRAPPER_UNIT]);
    machine.wait_level("polling");
    assert_eq!(machine.hold_jobs(1).len(), 1);
    assert_eq!((machine.starts(), machine.lab.queue().tally().lost), (2, 0));
    assert_eq!(machine.signals(), ["SIGQUIT"]);
}

#[test]
fn further_runner_has_its_own_wrapper() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let folder = machine.system.path("/etc/gitlab-runner-b");
    fs::create_dir(&folder).unwrap();
    let config = fs::read_to_string(machine.system.path("/etc/gitlab-runner/config.toml")).unwrap();
    fs::write(
        folder.join("config.toml"),
        config.replace(listen_address(&config), &free_address().unwrap().to_string()),
    )
    .unwrap();
    fs::write(folder.join(".runner_system_id"), "machine-b").unwrap();
    let unit = fs::read_to_string(machine.system.path("/etc/systemd/system/gitlab-runner.service")).unwrap();
    let unit = unit.replace("/etc/gitlab-runner/", "/etc/gitlab-runner-b/");
    fs::write(machine.system.path("/etc/systemd/system/gitlab-runner-b.service"), unit).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "gitlab-runner-b.service"]);

    let shown = follow(&machine, &documented("Further runners on one host"));
    assert!(shown.contains("running"), "{shown}");
    machine.run(&["systemctl", "enable", "--now", RUNNER_UNIT, WRAPPER_UNIT]);
    machine.wait_level("polling");
    let address = "unix:///run/grit-wrapper/gitlab-runner-b.service.sock";
    let wait = ["grit-wrapper", "wait", "--for", "polling", "--timeout", "60s", "--address", address];
    machine.run(&wait);
    machine.run(&["grit-wrapper", "drain", "--wait", "--address", address]);
    machine.wait_property("gitlab-runner-b.service", "ActiveState", "inactive");
    machine.run(&["systemctl", "start", "gitlab-runner-b.service"]);
    assert_eq!(machine.property("gitlab-runner-b.service", "ActiveState"), "inactive");
    machine.wait_level("polling");
    assert_eq!(machine.property(RUNNER_UNIT, "ActiveState"), "active");

    // An upgrade restarts both wrappers.
    let instance = "grit-wrapper@gitlab-runner-b.service";
    let before = machine.property(instance, "MainPID");
    upgrade(&machine, || drop(machine.install("2.0.0")));
    assert_ne!(machine.property(instance, "MainPID"), before);
    machine.run(&["grit-wrapper", "start", "--address", address]);
    machine.run(&wait);
    poll::until("three starts", LIMIT, || match machine.starts() {
        3 => Ok(()),
        count => Err(count),
    });
    assert_eq!(machine.signals(), ["SIGQUIT"]);
}
