//! On a booted systemd, the wrapper attaches to the runner of GitLab's unit. Whatever happens to the wrapper does not affect the runner.

use std::{net::TcpListener, time::Duration};

use grit_testkit::rounds;
use grit_tests::{
    debian::machine::{ADDRESS, LIMIT, Machine, RUNNER_UNIT, WRAPPER_UNIT},
    poll,
};

use crate::systemd::{adjust, assert_clean, crash, leave_gaps, machine};

/// Asserts that the runner of the unit is still this process, and that it received no signal.
#[track_caller]
fn assert_untouched(machine: &Machine, runner: Option<u32>) {
    assert!(runner.is_some());
    assert_eq!((machine.runner(), machine.starts()), (runner, 1), "{}", machine.journal());
    assert_eq!(machine.signals(), [""; 0], "{}", machine.journal());
    assert_eq!(machine.property(RUNNER_UNIT, "ActiveState"), "active");
}

#[test]
fn installation_beside_running_jobs_stops_nothing() {
    let Some(machine) = machine(&[]) else { return };
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    let jobs = machine.hold_jobs(2);
    let runner = machine.runner();
    machine.install("1.0.0");
    assert_eq!(machine.property(WRAPPER_UNIT, "ActiveState"), "inactive");
    assert_eq!(machine.property(WRAPPER_UNIT, "UnitFileState"), "disabled");
    // The drop-in applies to the running runner, also without a wrapper.
    let shown =
        ["KillMode", "TimeoutStopUSec", "RestartUSec"].map(|name| machine.property(RUNNER_UNIT, name));
    assert_eq!(shown, ["mixed", "infinity", "5s"]);
    assert_eq!(machine.property(RUNNER_UNIT, "FragmentPath"), "/etc/systemd/system/gitlab-runner.service");
    assert_untouched(&machine, runner);

    machine.run(&["systemctl", "enable", "--now", WRAPPER_UNIT]);
    machine.wait_level("polling");
    let status = machine.ask(&["status"]);
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["pid"].to_string(), machine.property(RUNNER_UNIT, "MainPID"));
    assert_eq!(status["health"]["jobs"], 2, "{status}");
    // Without an address: the one that GRIT's modules use.
    assert!(machine.run(&["grit-wrapper", "status"]).contains("running"));
    let folder = "/run/grit-wrapper";
    let modes = [
        "stat",
        "--format=%A %U %G",
        folder,
        &format!("{folder}/{RUNNER_UNIT}.sock"),
        &format!("{folder}/{RUNNER_UNIT}.state"),
    ];
    assert_eq!(
        machine.run(&modes),
        "drwxr-xr-x root root\nsrw-rw---- root grit-wrapper\n-rw------- root root"
    );

    machine.lab.queue().release(&jobs);
    machine.lab.queue().submit(1, Duration::ZERO);
    machine.wait_level("working");
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (3, 0));
    assert_untouched(&machine, runner);
    assert_eq!(machine.property(WRAPPER_UNIT, "NRestarts"), "0");
}

/// As in an image: the wrapper runs before the runner's first start.
#[test]
fn wrapper_attaches_to_runner_that_starts_later() {
    let Some(machine) = machine(&["--boot-verify", "3s"]) else { return };
    machine.install("1.0.0");
    machine.run(&["systemctl", "enable", "--now", WRAPPER_UNIT]);
    let status = machine.ask(&["status"]);
    assert!(status["pid"].is_null(), "{status}");
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.wait_state("running");
    assert_ne!(machine.ask(&["status"])["health"]["level"], "polling");
    machine.wait_level("polling");
    assert_untouched(&machine, machine.runner());
}

#[test]
fn runner_survives_every_exit_of_wrapper() {
    let Some(machine) = machine(&[]) else { return };
    adjust(&machine, "WatchdogSec=4s");
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    let is_attached = || {
        machine.wait_level("polling");
        assert_untouched(&machine, runner);
    };
    // STOP: a wrapper that hangs. The others end it: it does not drain the runner.
    for signal in ["KILL", "STOP", "TERM", "INT", "QUIT"] {
        crash(&machine, signal);
        is_attached();
    }
    machine.run(&["systemctl", "stop", WRAPPER_UNIT]);
    assert_untouched(&machine, runner);
    machine.run(&["systemctl", "start", WRAPPER_UNIT]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "daemon-reexec"]);
    is_attached();
    assert_eq!(machine.property(RUNNER_UNIT, "NRestarts"), "0");

    machine.run(&["systemctl", "reload", WRAPPER_UNIT]);
    poll::until("the reload", LIMIT, || match machine.journal() {
        journal if journal.matches("Configuration loaded").count() == 2 => Ok(()),
        journal => Err(journal),
    });
    machine.lab.queue().release(&jobs);
    let tally = machine.lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0));
}

/// Drains of a client and of `systemctl stop` in turn. Each round kills wrappers at other moments: while the drain waits for a gap, at SIGQUIT,
/// while jobs finish, at the exit, and while the next wrapper starts.
#[test]
fn wrappers_killed_in_drains_lose_no_job_and_no_exit() {
    let Some(machine) = machine(&["--executor-shutdown", "300ms"]) else { return };
    leave_gaps(&machine);
    adjust(&machine, "RestartSec=100ms\nEnvironment=GRIT_WRAPPER_START_GRACE=500ms");
    machine.start_with_wrapper();
    let load = machine.lab.queue().load(2, Duration::from_secs(1));
    let kill = |after: u64| {
        std::thread::sleep(Duration::from_millis(after));
        // It fails while no wrapper runs.
        let words = ["systemctl", "kill", "--kill-who=main", "--signal=KILL", WRAPPER_UNIT];
        machine.system.run(&words).unwrap();
    };
    let count = rounds(10, 100);
    for round in 1..=count {
        machine.wait_state("running");
        let id = if round % 2 == 0 { format!("round-{round}") } else { "signal".to_owned() };
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| match id.as_str() {
                "signal" => drop(machine.run(&["systemctl", "stop", RUNNER_UNIT])),
                id => drop(machine.ask(&["drain", "--id", id])),
            });
            for kill_in_round in 0..2 + round % 2 {
                kill((round * 619 + kill_in_round * 277) % 1300);
            }
            drain.join().unwrap();
        });
        let status = machine.wait_state("stopped");
        let (drain, code) = (&status["drain"], &status["exit"]["how"]["code"]);
        assert_eq!((&drain["id"], code), (&id.as_str().into(), &0.into()), "{status}\n{}", machine.journal());
        // If the wrapper was killed near SIGQUIT, it is not known whether job requests were open.
        assert!(
            ["clean", "unknown"].iter().any(|outcome| drain["outcome"] == *outcome),
            "round {round}: {status}\n{}\n{}",
            machine.lab.events(),
            machine.journal()
        );
        assert_eq!((machine.runner(), machine.starts() as u64), (None, round), "{}", machine.journal());
        match id.as_str() {
            "signal" => machine.run(&["systemctl", "start", RUNNER_UNIT]),
            _ => machine.run(&["grit-wrapper", "start"]),
        };
    }
    drop(load);
    let tally = machine.lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!(tally.lost, 0, "{}", machine.journal());
    machine.assert_never_two_runners(0);
    assert!(machine.signals().iter().all(|signal| signal == "SIGQUIT"), "{:?}", machine.signals());
}

/// A drain that is requested before the wrapper has found the runner.
#[test]
fn drain_during_start_of_wrapper_drains_the_runner() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    machine.run(&["systemctl", "stop", WRAPPER_UNIT]);
    machine.run(&["rm", "-f", "/run/grit-wrapper/gitlab-runner.service.state"]);
    let drain = format!("until grit-wrapper drain --id early --address {ADDRESS} 2>/dev/null; do :; done");
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| machine.run(&["sh", "-c", &drain]));
        machine.run(&["systemctl", "start", WRAPPER_UNIT]);
        drained.join().unwrap();
    });
    machine.wait_signals(1);
    let status = machine.wait_state("draining");
    assert_eq!(status["drain"]["id"], "early", "{status}");
    machine.lab.queue().release(&jobs);
    assert_clean(&machine, &machine.wait_state("stopped"));
    machine.wait_property(RUNNER_UNIT, "ActiveState", "inactive");
    assert_eq!((machine.runner(), machine.starts()), (None, 1), "{}", machine.journal());
}

/// Another process takes the TCP address of a killed wrapper. The next wrappers exit, and the runner continues.
#[test]
fn wrapper_without_its_tcp_address_is_started_again() {
    let Some(machine) = machine(&[]) else { return };
    // The test has the port on another address, so that no other test uses it.
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("127.0.0.3:{}", reserved.local_addr().unwrap().port());
    adjust(&machine, &format!("Environment=GRIT_WRAPPER_GRPC_LISTEN=tcp://{tcp}"));
    machine.start_with_wrapper();
    machine.run(&["grit-wrapper", "status", "--address", &format!("tcp://{tcp}")]);
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal", "KILL", WRAPPER_UNIT]);
    let taken = poll::until("the address is free", LIMIT, || TcpListener::bind(&tcp));
    machine.wait_property(WRAPPER_UNIT, "NRestarts", "3");
    drop(taken);
    machine.wait_property(WRAPPER_UNIT, "ActiveState", "active");
    machine.run(&["grit-wrapper", "status", "--address", ADDRESS]);
    assert_untouched(&machine, runner);
    machine.lab.queue().release(&jobs);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
}

/// The sandbox of the wrapper's unit: what it needs works in the other tests.
#[test]
fn wrapper_can_write_only_its_own_directory() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let wrapper = machine.property(WRAPPER_UNIT, "MainPID");
    let writes = |file: &str| {
        let words = ["nsenter", "--mount", "--target", &wrapper, "touch", file];
        machine.system.run(&words).unwrap().status.success()
    };
    assert!(writes("/run/grit-wrapper/test"));
    for file in [
        "/etc/test",
        "/etc/gitlab-runner/test",
        "/run/test",
        "/usr/bin/test-file",
        "/var/lib/test",
        "/root/test",
    ] {
        assert!(!writes(file), "{file}");
    }
    let status = machine.run(&["cat", &format!("/proc/{wrapper}/status")]);
    // CAP_CHOWN, CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE
    let bounds = "CapBnd:\t0000000000080025";
    assert!(
        status.contains(bounds) && status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"),
        "{status}"
    );
}
