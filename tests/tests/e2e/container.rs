//! The container recipe: its entry point as the first process of a PID namespace. Images cannot be built here, so the recipe's command runs on
//! a booted system that has the same programs at the same paths.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use grit_tests::{
    debian::{machine::LIMIT, succeeded},
    lab::host::procs,
    poll,
};

use crate::systemd::machine;

const RECIPE: &str = include_str!("../../../wrapper/packaging/container/Containerfile");

/// The rest of the recipe's lines that begin with this instruction.
fn instructions(name: &str) -> impl Iterator<Item = &str> {
    RECIPE.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// Does what the script of GitLab's image does, except for the bundle of certificates.
const ENTRY_POINT: &str = r#"#!/bin/bash
CA_CERTIFICATES_PATH=${CA_CERTIFICATES_PATH:-/etc/gitlab-runner/certs/ca.crt}
LOCAL_CA_PATH=/usr/local/share/ca-certificates/ca.crt
if [ -f "$CA_CERTIFICATES_PATH" ]; then
  cmp --silent "$CA_CERTIFICATES_PATH" "$LOCAL_CA_PATH" || cp "$CA_CERTIFICATES_PATH" "$LOCAL_CA_PATH"
fi
exec gitlab-runner "$@"
"#;

#[test]
fn container_ends_with_its_runner_and_drains_on_stop() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let folders = instructions("RUN").find_map(|line| line.split("mkdir -p ").nth(1)).unwrap();
    machine.run(&["mkdir", "-p", folders.split(' ').next().unwrap(), "/home/gitlab-runner"]);
    let entry_point = machine.system.path("/entrypoint");
    fs::write(&entry_point, ENTRY_POINT).unwrap();
    fs::set_permissions(&entry_point, fs::Permissions::from_mode(0o755)).unwrap();
    machine.run(&["mkdir", "-p", "/etc/gitlab-runner/certs", "/usr/local/share/ca-certificates"]);
    fs::write(machine.system.path("/etc/gitlab-runner/certs/ca.crt"), "a certificate").unwrap();
    let words_of = |name| serde_json::from_str::<Vec<String>>(instructions(name).next().unwrap()).unwrap();
    let command = [words_of("ENTRYPOINT"), words_of("CMD")].concat();
    let mut words = vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "env"];
    words.extend(instructions("ENV"));
    words.extend(command.iter().map(String::as_str));
    // The container, the PID of its wrapper, and the PID of its runner, which accepts jobs.
    let start = || {
        let container =
            machine.system.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let processes = || procs::descendants(container.id());
        let wrapper = poll::until("the wrapper runs", LIMIT, || {
            processes().into_iter().find(|process| process.program == "grit-wrapper").ok_or_else(processes)
        });
        let wrapper = wrapper.pid;
        let job = machine.lab.queue().submit(1, Duration::ZERO);
        machine.lab.queue().wait_all_ended(LIMIT).unwrap();
        drop(job);
        let children = fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children")).unwrap();
        (container, wrapper, children.trim().to_owned())
    };
    let (mut container, wrapper, first) = start();
    let arguments = fs::read_to_string(format!("/proc/{first}/cmdline")).unwrap().replace('\0', " ");
    let wanted = "run --user=gitlab-runner --working-directory=/home/gitlab-runner ";
    assert!(arguments.contains(wanted), "the arguments of GitLab's image: {arguments}");
    let installed = machine.system.path("/usr/local/share/ca-certificates/ca.crt");
    assert_eq!(fs::read_to_string(installed).unwrap(), "a certificate");
    // The wrapper finds the configuration of a runner that a script has executed.
    let address =
        instructions("ENV").find_map(|line| line.strip_prefix("GRIT_WRAPPER_GRPC_LISTEN=")).unwrap();
    poll::until("the level working", LIMIT, || {
        match machine.run(&["grit-wrapper", "status", "--json", "--address", address]) {
            status if status.contains(r#""level":"working""#) => Ok(()),
            status => Err(status),
        }
    });

    let held = machine.hold_jobs(2);
    let inside = format!("/proc/{wrapper}/status");
    let status = fs::read_to_string(inside).unwrap();
    let pids = status.lines().find(|line| line.starts_with("NSpid:")).unwrap();
    assert!(pids.ends_with("\t1"), "the wrapper is not process 1: {pids}");

    // An orphan in the container, which only process 1 can reap.
    let pid = wrapper.to_string();
    let orphan = [
        "--all",
        "--target",
        &pid,
        "sh",
        "-c",
        "setsid sh -c 'sleep 0.2 & exec sleep 0.1' >/dev/null 2>&1 &",
    ];
    succeeded(Command::new("nsenter").args(orphan)).unwrap();
    poll::until("only the runner is left", LIMIT, || {
        let children = fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children")).unwrap();
        if children.split_whitespace().count() == 1 { Ok(()) } else { Err(children) }
    });

    let signal = instructions("STOPSIGNAL").next().unwrap();
    succeeded(Command::new("kill").args(["-s", signal.trim_start_matches("SIG"), &pid])).unwrap();
    machine.wait_signals(1);
    machine.lab.queue().release(&held);
    assert_eq!(container.wait().unwrap().code(), Some(0));
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, machine.signals()), (3, 0, vec!["SIGQUIT".to_owned()]));

    // The engine sees the exit of the runner, and starts the container again.
    let (mut container, _, runner) = start();
    succeeded(Command::new("kill").args(["-s", "KILL", &runner])).unwrap();
    assert_eq!(container.wait().unwrap().code(), Some(137));
}
