//! The wrapper's package on a running machine, and the migrations of a runner to the wrapper and back. The commands
//! are read from docs/wrapper/running.md.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use grit_tests::{
    debian::machine::{LIMIT, Machine},
    poll,
};

use crate::systemd_stop::{assert_runner_has_own_cgroup, machine};

const OURS: &str = "grit-wrapper.service";
const THEIRS: &str = "gitlab-runner.service";
const PROGRAM: &str = "/usr/bin/grit-wrapper";
const DOCUMENT: &str = include_str!("../../../docs/wrapper/running.md");

/// The commands in the first code block below a heading of the document.
fn documented(heading: &str) -> Vec<&'static str> {
    let (_, below) = DOCUMENT.split_once(&format!("\n### {heading}\n")).expect(heading);
    let block = below.lines().skip_while(|line| !line.starts_with("    "));
    block.take_while(|line| line.starts_with("    ")).map(str::trim).collect()
}

/// Runs commands of the document, up to the first that fails.
fn follow(machine: &Machine, commands: &[&str]) {
    machine.run(&["sh", "-e", "-c", &commands.join("\n")]);
}

fn wrapper(machine: &Machine, unit: &str) -> u32 {
    machine.property(unit, "MainPID").parse().unwrap()
}

/// Whether the unit's main process runs the installed binary.
fn runs_installed(machine: &Machine, unit: &str) -> bool {
    let test = format!("[ /proc/{}/exe -ef {PROGRAM} ]", wrapper(machine, unit));
    machine.system.run(&["sh", "-c", &test]).unwrap().status.success()
}

/// The running service of GitLab's package.
pub(crate) fn plain_service(machine: &Machine, command: &str) {
    plain_unit(machine, command);
    machine.run(&["systemctl", "enable", "--now", THEIRS]);
}

/// The same service in an image, not running.
pub(crate) fn plain_unit(machine: &Machine, command: &str) {
    let unit = format!(
        "[Unit]\nDescription=GitLab Runner\nConditionFileIsExecutable=/usr/bin/gitlab-runner\nAfter=network.target\n\
         [Service]\nStartLimitInterval=5\nStartLimitBurst=10\nExecStart={command}\nRestart=always\nRestartSec=120\n\
         EnvironmentFile=-/etc/sysconfig/gitlab-runner\n[Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(machine.system.path("/etc/systemd/system/gitlab-runner.service"), unit).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
}

pub(crate) const PLAIN: &str = "/usr/bin/gitlab-runner \"run\" \"--config\" \"/etc/gitlab-runner/config.toml\" \
                     \"--working-directory\" \"/home/gitlab-runner\" \"--service\" \"gitlab-runner\" \"--user\" \"gitlab-runner\"";

#[test]
fn upgrade_keeps_runner_and_removal_drains_it() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    machine.run(&["systemctl", "enable", "--now", OURS]);
    let held = machine.hold_jobs(2);
    let runner = machine.runner();

    // Jobs run all the time.
    let upgraded = AtomicBool::new(false);
    let flowed = std::thread::scope(|scope| {
        let flow = scope.spawn(|| {
            let mut count = 0;
            while !upgraded.load(Ordering::Relaxed) {
                count += machine.lab.queue().submit(1, Duration::from_millis(200)).len();
                std::thread::sleep(Duration::from_millis(200));
            }
            count
        });
        for version in ["2.0.0", "3.0.0"] {
            let before = wrapper(&machine, OURS);
            let said = machine.install(version);
            assert!(said.contains("now runs the new binary; its runner was not stopped"), "{said}");
            assert_eq!(machine.property(OURS, "ActiveState"), "active");
            assert_eq!(wrapper(&machine, OURS), before);
            assert!(runs_installed(&machine, OURS));
            assert_eq!(machine.runner(), runner);
        }
        upgraded.store(true, Ordering::Relaxed);
        flow.join().unwrap()
    });
    assert_eq!(machine.property(OURS, "NRestarts"), "0");
    assert_eq!(machine.signals(), [""; 0]);

    // A stopping runner starts no further jobs.
    machine.lab.queue().wait_until_none_waits(LIMIT);

    // While the service stops, the wrapper goes on with the drain.
    machine.run(&["systemctl", "stop", "--no-block", OURS]);
    machine.wait_signals(1);
    let said = machine.install("4.0.0");
    assert!(said.contains("is stopping; its wrapper was not upgraded"), "{said}");
    assert_eq!(machine.property(OURS, "ActiveState"), "deactivating");
    assert_eq!(machine.runner(), runner);
    machine.lab.queue().release(&held);
    machine.wait_property(OURS, "ActiveState", "inactive");
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.open()), (flowed + held.len(), 0, 0));
    assert_eq!((machine.starts(), machine.signals().as_slice()), (1, &["SIGQUIT".to_owned()][..]));

    // A runner without a wrapper.
    machine.run(&["systemctl", "start", OURS]);
    let held = machine.hold_jobs(1);
    machine.run(&["systemctl", "stop", "--no-block", OURS]);
    machine.wait_signals(2);
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=KILL", OURS]);
    machine.wait_property(OURS, "ActiveState", "failed");
    let refused = machine.system.run(&["dpkg", "--remove", "grit-wrapper"]).unwrap();
    let said = grit_tests::debian::both(&refused);
    assert!(!refused.status.success() && said.contains("still run without a wrapper"), "{said}");
    machine.run(&["systemctl", "start", OURS]);
    machine.lab.queue().release(&held);
    poll::until("the next runner", LIMIT, || match machine.starts() {
        3 => Ok(()),
        count => Err((count, machine.journal())),
    });

    // A process that runs the program in another service, such as a job. This service starts without the package.
    let waits = "[Service]\nExecStart=/bin/sh -c '/usr/bin/grit-wrapper wait --for stopped --address \
                 unix:///run/grit-wrapper/wrapper.sock & wait'\n";
    fs::write(machine.system.path("/run/systemd/system/waits.service"), waits).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "waits.service"]);
    poll::until("the process", LIMIT, || {
        let found = machine.system.run(&[
            "sh",
            "-c",
            "grep --files-with-matches --null-data --line-regexp wait /proc/[0-9]*/cmdline",
        ]);
        if found.unwrap().stdout.is_empty() { Err(()) } else { Ok(()) }
    });

    let held = machine.hold_jobs(1);
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| machine.run(&["dpkg", "--remove", "grit-wrapper"]));
        machine.wait_signals(3);
        assert!(!removal.is_finished());
        machine.lab.queue().release(&held);
        let said = removal.join().unwrap();
        assert!(said.contains("waits until its runner has finished its jobs"), "{said}");
    });
    assert_eq!(machine.runner(), None);
    assert_eq!(machine.property(OURS, "LoadState"), "not-found");
    assert_eq!(machine.lab.queue().tally().lost, 0);
    machine.run(&["dpkg", "--purge", "grit-wrapper"]);
    let left = "/etc/systemd/system/multi-user.target.wants/grit-wrapper.service";
    assert!(fs::symlink_metadata(machine.system.path(left)).is_err());
    assert!(!machine.system.path("/run/grit-wrapper").exists());
}

/// Jobs may start services on purpose. Only a runner without a wrapper is a reason to refuse.
#[test]
fn removal_continues_beside_process_of_finished_job() {
    let Some(machine) = machine(&[]) else { return };
    // The state file outlives the drain of a client, also without a runner.
    for is_drained in [false, true] {
        machine.install("1.0.0");
        machine.run(&["systemctl", "start", OURS]);
        machine.lab.queue().submit(1, Duration::ZERO);
        machine.lab.queue().wait_all_ended(LIMIT).unwrap();
        let runner = &machine.ask(&["status"])["pid"];
        let start = format!(
            "cgroup=$(sed -n s,^0::,,p /proc/{runner}/cgroup); setsid sleep 86400 >/dev/null 2>&1 & \
             echo $! > /sys/fs/cgroup$cgroup/cgroup.procs; echo $!"
        );
        let left = machine.run(&["sh", "-e", "-c", &start]);
        if is_drained {
            machine.ask(&["drain"]);
            machine.wait_property(OURS, "StatusText", "stopped");
        }
        let removed = machine.system.run(&["dpkg", "--remove", "grit-wrapper"]).unwrap();
        let said = grit_tests::debian::both(&removed);
        assert!(removed.status.success(), "after a drain: {is_drained}: {said}");
        let (_, pids) = said.split_once("of grit-wrapper.service keep running: ").expect(&said);
        assert!(pids.split_whitespace().any(|pid| pid == left), "{left}: {said}");
        assert!(!said.contains("systemctl start"), "{said}");
        machine.run(&["kill", "-s", "0", &left]);
        assert_eq!(machine.runner(), None);
        assert_eq!(machine.system.path("/run/grit-wrapper").exists(), is_drained);
    }
    assert_eq!(machine.signals(), ["SIGQUIT"; 2]);
}

/// With RPM, the script of the new package runs before those of the old one.
#[test]
fn rpm_upgrade_keeps_runner_and_removal_drains_it() {
    let Some(machine) = machine(&[]) else { return };
    machine.install_rpm("1.0.0");
    machine.run(&["systemctl", "enable", "--now", OURS]);
    let held = machine.hold_jobs(2);
    let (runner, before) = (machine.runner(), wrapper(&machine, OURS));
    let said = machine.install_rpm("2.0.0");
    assert!(said.contains("now runs the new binary; its runner was not stopped"), "{said}");
    assert!(runs_installed(&machine, OURS) && wrapper(&machine, OURS) == before);
    assert_eq!((machine.runner(), machine.signals().len()), (runner, 0));
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| machine.run(&["rpm", "--erase", "grit-wrapper"]));
        machine.wait_signals(1);
        assert!(!removal.is_finished());
        machine.lab.queue().release(&held);
        removal.join().unwrap();
    });
    assert_eq!(
        (machine.runner(), machine.starts(), machine.signals()),
        (None, 1, vec!["SIGQUIT".to_owned()])
    );
    assert_eq!(machine.property(OURS, "LoadState"), "not-found");
    assert_eq!(machine.lab.queue().tally().lost, 0);
    for left in [
        "/etc/systemd/system/multi-user.target.wants/grit-wrapper.service",
        "/usr/bin/grit-wrapper",
        "/run/grit-wrapper",
    ] {
        assert!(fs::symlink_metadata(machine.system.path(left)).is_err(), "{left}");
    }
}

/// A state file with a newer format version, which the older release cannot read.
#[test]
fn downgrade_with_unreadable_state_keeps_runner() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("2.0.0");
    machine.run(&["systemctl", "start", OURS]);
    let held = machine.hold_jobs(2);
    let runner = machine.runner();
    let state = machine.system.path("/run/grit-wrapper/wrapper.sock.state");
    let ours = fs::read_to_string(&state).unwrap();
    fs::write(&state, ours.replacen("\"version\":\"1\"", "\"version\":\"2\"", 1)).unwrap();

    let said = machine.install("1.0.0");
    assert!(said.contains("does not run the new binary; its runner keeps running"), "{said}");
    let journal = machine.journal();
    assert!(journal.contains("Restart the newer grit-wrapper"), "{journal}");
    assert_eq!((machine.runner(), machine.starts(), machine.signals().len()), (runner, 1, 0));

    // As after the reinstallation of the newer release, which can read the file: the service kept restarting.
    fs::write(&state, ours).unwrap();
    machine.wait_property(OURS, "ActiveState", "active");
    assert_eq!((machine.runner(), machine.starts()), (runner, 1));
    machine.lab.queue().release(&held);
    machine.run(&["systemctl", "stop", OURS]);
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, machine.signals()), (held.len(), 0, vec!["SIGQUIT".to_owned()]));
}

#[test]
fn migration_from_plain_service_and_back_works() {
    let Some(machine) = machine(&[]) else { return };
    plain_service(&machine, PLAIN);
    let held = machine.hold_jobs(1);
    let plain = machine.runner();
    machine.install("1.0.0");
    assert_eq!(machine.runner(), plain, "an installation is no reason for anything");
    assert_eq!(machine.signals(), [""; 0]);

    // The last command waits for the drain that the migration needs.
    let commands = documented("From the plain service");
    std::thread::scope(|scope| {
        let switch = scope.spawn(|| follow(&machine, &commands));
        machine.wait_signals(1);
        assert_eq!(machine.runner(), plain);
        machine.lab.queue().release(&held);
        switch.join().unwrap();
    });
    poll::until("the wrapper", LIMIT, || match machine.starts() {
        2 => Ok(()),
        count => Err((count, machine.journal())),
    });
    machine.wait_property(THEIRS, "ActiveState", "active");
    assert!(runs_installed(&machine, THEIRS));
    assert_eq!(machine.signals(), ["SIGQUIT"]);
    assert_runner_has_own_cgroup(&machine, THEIRS);
    let shown = ["TimeoutStopUSec", "KillMode"].map(|name| machine.property(THEIRS, name));
    assert_eq!(shown, ["infinity", "process"]);

    // An upgrade of the wrapper also applies to this service, and a removal is refused.
    let held = machine.hold_jobs(1);
    let runner = machine.runner();
    let said = machine.install("2.0.0");
    assert!(said.contains("gitlab-runner.service now runs the new binary"), "{said}");
    assert_eq!(machine.runner(), runner);
    let refuses_removal = || {
        let refused = machine.system.run(&["dpkg", "--remove", "grit-wrapper"]).unwrap();
        let said = grit_tests::debian::both(&refused);
        assert!(!refused.status.success() && said.contains("still used by: gitlab-runner.service"), "{said}");
    };
    refuses_removal();
    assert_eq!(machine.runner(), runner);

    // GitLab's package stops the service, rewrites it, and starts it, at each upgrade. Now the stop is a drain.
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            machine.run(&["systemctl", "stop", THEIRS]);
            // At its next start it would need the binary.
            refuses_removal();
            machine.run(&["systemctl", "disable", THEIRS]);
            fs::remove_file(machine.system.path("/etc/systemd/system/gitlab-runner.service")).unwrap();
            plain_service(&machine, PLAIN);
        });
        machine.wait_signals(2);
        assert!(!upgrade.is_finished());
        machine.lab.queue().release(&held);
        upgrade.join().unwrap();
    });
    assert!(runs_installed(&machine, THEIRS), "the drop-in outlives the service that it is for");

    // Back, and to the wrapper once more in the same boot: it has no memory of the first drain.
    let to_plain = "From the wrapper to the plain service";
    for (section, signals) in [(to_plain, 3), ("From the plain service", 4), (to_plain, 5)] {
        let held = machine.hold_jobs(1);
        let commands = documented(section);
        std::thread::scope(|scope| {
            let switch = scope.spawn(|| follow(&machine, &commands));
            machine.wait_signals(signals);
            machine.lab.queue().release(&held);
            switch.join().unwrap();
        });
        // On the way to the wrapper, systemd restarts the service after the last command has returned.
        let wanted = section != to_plain;
        poll::until("the other program runs", LIMIT, || match runs_installed(&machine, THEIRS) {
            runs if runs == wanted => Ok(()),
            _ => Err(machine.journal()),
        });
        machine.wait_property(THEIRS, "ActiveState", "active");
    }
    assert_eq!(machine.hold_jobs(1).len(), 1);
    assert_eq!(machine.lab.queue().tally().lost, 0);
    assert!(machine.signals().iter().all(|signal| signal == "SIGQUIT"), "{:?}", machine.signals());
    machine.run(&["dpkg", "--purge", "grit-wrapper"]);
    assert_eq!(machine.property(THEIRS, "ActiveState"), "active");
}

/// Upstream's wrapper in the service, as GRIT's modules install it. It does not forward SIGQUIT, and keeps running after the runner
/// has exited.
#[test]
fn migration_from_upstream_wrapper_loses_no_job() {
    let Some(machine) = machine(&[]) else { return };
    let script = "#!/bin/sh\ntrap '' QUIT\n/usr/bin/gitlab-runner run &\nwait\nwhile :; do sleep 0.1; done\n";
    let program = machine.system.path("/usr/bin/upstream-wrapper");
    fs::write(&program, script).unwrap();
    machine.run(&["chmod", "755", "/usr/bin/upstream-wrapper"]);
    plain_service(&machine, "/usr/bin/upstream-wrapper");
    let held = machine.hold_jobs(1);
    machine.install("1.0.0");
    let commands = documented("From upstream's wrapper");
    std::thread::scope(|scope| {
        let switch = scope.spawn(|| follow(&machine, &commands));
        machine.wait_signals(1);
        machine.lab.queue().release(&held);
        switch.join().unwrap();
    });
    assert!(runs_installed(&machine, THEIRS));
    assert_eq!(machine.hold_jobs(1).len(), 1);
    assert_eq!((machine.starts(), machine.lab.queue().tally().lost), (2, 0));
    assert_eq!(machine.signals(), ["SIGQUIT"]);
}
