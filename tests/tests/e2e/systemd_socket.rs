//! Socket activation on a booted systemd, with the unit of docs/wrapper/running.md: no client is rejected while a wrapper is replaced.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use grit_tests::debian::{
    both,
    machine::{ADDRESS, Machine},
};

use crate::systemd_stop::machine;

const UNIT: &str = "grit-wrapper.service";
const SOCKET: &str = "grit-wrapper.socket";
const DOCUMENT: &str = include_str!("../../../docs/wrapper/running.md");

/// The socket unit of the document.
fn socket_unit() -> String {
    let (_, below) = DOCUMENT.split_once("    # /etc/systemd/system/grit-wrapper.socket\n").unwrap();
    let lines = below.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// One call without a retry; returns whether it succeeded. It is cut off if its wrapper is killed, and never
/// rejected.
fn call(machine: &Machine) -> bool {
    let output = machine.system.run(&["grit-wrapper", "status", "--address", ADDRESS]).unwrap();
    let said = both(&output);
    for turned_away in ["Connection refused", "No such file"] {
        assert!(!said.contains(turned_away), "{said}");
    }
    output.status.success()
}

#[test]
fn clients_of_systemd_socket_wait_during_upgrade() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    machine.run(&["groupadd", "--system", "deploy"]);
    fs::write(machine.system.path("/etc/systemd/system/grit-wrapper.socket"), socket_unit()).unwrap();
    let folder = machine.system.path("/etc/systemd/system/grit-wrapper.service.d");
    fs::create_dir(&folder).unwrap();
    let settings = "[Service]\nEnvironment=GRIT_WRAPPER_GRPC_LISTEN=fd://\n";
    fs::write(folder.join("socket.conf"), settings).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", SOCKET]);
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    let socket = machine.run(&["stat", "--format=%A %U %G", "/run/grit-wrapper/wrapper.sock"]);
    assert_eq!(socket, "srw-rw---- root deploy");

    assert!(call(&machine));
    machine.wait_property(UNIT, "ActiveState", "active");
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    let replaced = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut calls = 0;
            while !replaced.load(Ordering::Relaxed) {
                calls += usize::from(call(&machine));
            }
            calls
        });
        let said = machine.install("2.0.0");
        machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT]);
        machine.wait_property(UNIT, "NRestarts", "1");
        machine.wait_property(UNIT, "ActiveState", "active");
        replaced.store(true, Ordering::Relaxed);
        assert!(said.contains("now runs the new binary"), "{said}");
        assert!(clients.join().unwrap() > 2);
    });
    assert_eq!(machine.runner(), runner);

    // Both are stopped; otherwise the next client would start it again.
    machine.run(&["systemctl", "stop", "--no-block", SOCKET, UNIT]);
    machine.wait_signals(1);
    machine.lab.queue().release(&jobs);
    machine.wait_property(UNIT, "ActiveState", "inactive");
    assert_eq!(machine.property(SOCKET, "ActiveState"), "inactive");
    assert_eq!((machine.starts(), machine.lab.queue().tally().lost), (1, 0));
}
