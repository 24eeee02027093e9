//! The programs of a release on Debian's releases: they run, and the package installs, starts, upgrades and stops under their systemd.
//!
//! These tests need a release build, because the debug build is linked with the libraries of this machine.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use grit_tests::{
    debian::{self, booted::System, distribution, succeeded},
    dist, poll,
};
use serde_json::Value as Json;

const RUNNER_UNIT: &str = "gitlab-runner.service";
const WRAPPER_UNIT: &str = "grit-wrapper.service";

const LIMIT: Duration = Duration::from_secs(60);

/// A runner without jobs. It is a script, because the runner of other tests needs the libraries of this machine.
const RUNNER: &str = "#!/bin/sh\ntrap 'echo QUIT >>/run/signals; exit 0' QUIT\ntrap 'echo TERM >>/run/signals; exit 1' TERM\n\
                      echo started >>/run/signals\nwhile :; do sleep 0.1; done\n";

fn write_program(path: &Path, text: &[u8]) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn release_runs_on(distribution: &str, version: &str) {
    let programs =
        dist::release_programs().expect("GRIT_TEST_RELEASE is set by `cargo xtask test --nightly`");
    let root = distribution::root(distribution).unwrap();
    let system = System::boot_from(&root).unwrap();
    let run = |words: &[&str]| system.succeeds(words).unwrap();
    assert!(run(&["cat", "/etc/debian_version"]).starts_with(version));

    let provider = "terraform-provider-grit";
    fs::copy(programs.join(provider), system.path("/usr/local/bin").join(provider)).unwrap();
    assert!(
        run(&[provider, "--version"])
            .starts_with(concat!("terraform-provider-grit ", env!("CARGO_PKG_VERSION")))
    );

    // The C library of the host has a plugin for host names, which a program with another C library cannot load.
    assert!(run(&["cat", "/etc/nsswitch.conf"]).contains("myhostname"));

    write_program(&system.path("/usr/bin/gitlab-runner"), RUNNER.as_bytes());
    let unit = include_str!("../../src/debian/gitlab-runner.service");
    fs::write(system.path("/etc/systemd/system/gitlab-runner.service"), unit).unwrap();
    run(&["systemctl", "daemon-reload"]);
    run(&["systemctl", "start", RUNNER_UNIT]);
    let packages = tempfile::tempdir().unwrap();
    let install = |version: &str| {
        let package = debian::package(version, packages.path()).unwrap();
        fs::copy(package, system.path("/tmp/wrapper.deb")).unwrap();
        run(&["dpkg", "--install", "/tmp/wrapper.deb"])
    };
    install("1.0.0");
    assert!(
        run(&["grit-wrapper", "--version"]).starts_with(concat!("grit-wrapper ", env!("CARGO_PKG_VERSION")))
    );
    let unknown = ["grit-wrapper", "status", "--address", "tcp://unknown.invalid:7777"];
    let refused = system.run(&unknown).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", debian::both(&refused));
    run(&["systemctl", "start", WRAPPER_UNIT]);
    let signals = || fs::read_to_string(system.path("/run/signals")).unwrap();
    let status = || -> Json { serde_json::from_str(&run(&["grit-wrapper", "status", "--json"])).unwrap() };
    let before = status();
    assert_eq!(before["state"], "running", "{before}");
    // Nothing of the sandbox is unknown to this systemd, and no health reason is about the drop-in.
    let verified = system.run(&["systemd-analyze", "verify", "--man=no", WRAPPER_UNIT, RUNNER_UNIT]).unwrap();
    assert!(!debian::both(&verified).contains("grit-wrapper"), "{}", debian::both(&verified));
    assert!(!before["health"]["reasons"].to_string().contains("the line"), "{before}");
    install("2.0.0");
    poll::until("the next wrapper has found the runner", LIMIT, || match status() {
        after if after["pid"] == before["pid"] && after["state"] == "running" => Ok(()),
        after => Err(after),
    });
    assert_eq!(signals(), "started\n");

    // Neither systemd nor a person starts a drained runner.
    run(&["grit-wrapper", "drain", "--id", "deploy-7", "--wait"]);
    assert_eq!(signals(), "started\nQUIT\n");
    run(&["systemctl", "start", RUNNER_UNIT]);
    // Longer than RestartSec=.
    std::thread::sleep(Duration::from_secs(7));
    let status = status();
    assert_eq!(
        (&status["state"], &status["drain"]["outcome"]),
        (&"stopped".into(), &"clean".into()),
        "{status}"
    );
    assert_eq!(signals(), "started\nQUIT\n");
    run(&["grit-wrapper", "start"]);
    run(&["systemctl", "stop", RUNNER_UNIT]);
    assert_eq!(signals(), "started\nQUIT\nstarted\nQUIT\n");
    run(&["dpkg", "--purge", "grit-wrapper"]);
    assert!(!system.path("/usr/bin/grit-wrapper").exists());
}

#[test]
#[ignore = "needs a release build: cargo xtask test --nightly"]
fn debian_11_runs_release() {
    release_runs_on("bullseye", "11.");
}

#[test]
#[ignore = "needs a release build: cargo xtask test --nightly"]
fn debian_12_runs_release() {
    release_runs_on("bookworm", "12.");
}

#[test]
#[ignore = "needs a release build: cargo xtask test --nightly"]
fn debian_13_runs_release() {
    release_runs_on("trixie", "13.");
}

/// Nothing of a host is needed: the programs run in a root directory that has only them.
#[test]
#[ignore = "needs a release build: cargo xtask test --nightly"]
fn release_is_static_and_small() {
    let programs =
        dist::release_programs().expect("GRIT_TEST_RELEASE is set by `cargo xtask test --nightly`");
    for (name, limit) in [("terraform-provider-grit", 13.0), ("grit-wrapper", 6.5)] {
        let program = programs.join(name);
        let linked = Command::new("ldd").arg(&program).output().unwrap();
        let text = debian::both(&linked);
        assert!(
            text.contains("statically linked") || text.contains("not a dynamic executable"),
            "{name}: {text}"
        );
        #[expect(clippy::cast_precision_loss, reason = "a size in megabytes")]
        let size = fs::metadata(&program).unwrap().len() as f64 / 1e6;
        assert!(size <= limit, "{name} has {size} MB");
        let empty = tempfile::tempdir().unwrap();
        fs::copy(&program, empty.path().join("program")).unwrap();
        succeeded(Command::new("chroot").arg(empty.path()).args(["/program", "--version"])).unwrap();
    }
}
