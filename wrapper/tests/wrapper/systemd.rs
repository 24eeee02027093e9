//! Messages to systemd, and the packaged units.

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use tokio::net::UnixDatagram;

use crate::support::{Start, eventually};

/// Collects messages until one contains `wanted`.
async fn wait_for_message(manager: &UnixDatagram, all: &mut String, wanted: &str) {
    let mut message = [0; 4096];
    while !all.contains(wanted) {
        let read = tokio::time::timeout(crate::support::LIMIT, manager.recv(&mut message)).await;
        let read = read.unwrap_or_else(|_| panic!("{wanted} was not received: {all}")).unwrap();
        *all += std::str::from_utf8(&message[..read]).unwrap();
    }
}

#[tokio::test]
async fn sd_notify_sends_ready_watchdog_and_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut wrapper = Start::again(folder)
        .flags(&["--start-grace=0s", "--probe-interval=100ms"])
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("WATCHDOG_USEC", "200000")
        .child(&["--jobs-take", "300"]);
    let mut all = String::new();
    wait_for_message(&manager, &mut all, "READY=1").await;
    wait_for_message(&manager, &mut all, "STATUS=The runner is running, health level none").await;
    all.clear();
    wait_for_message(&manager, &mut all, "WATCHDOG=1").await;
    wrapper.child_ready().await;
    let environment = fs::read(format!("/proc/{}/environ", wrapper.child_pid())).unwrap();
    assert!(
        !String::from_utf8_lossy(&environment).contains("NOTIFY_SOCKET"),
        "the runner could speak for us"
    );
    wrapper.signal(Signal::TERM);
    wait_for_message(&manager, &mut all, "STOPPING=1").await;
    wait_for_message(&manager, &mut all, "STATUS=The runner is stopped").await;
    assert_eq!(wrapper.ended().await.code(), Some(0));
}

#[tokio::test]
async fn ready_is_resent_after_notify_socket_was_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let other = std::os::unix::net::UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    // Until the queue of the service manager is full.
    while other.send_to(b"X", &path).is_ok() {}
    let wrapper = Start::again(folder)
        .flags(&["--probe-interval=100ms"])
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .child(&[]);
    wrapper.logged("cannot send sd_notify message").await;
    wrapper.logged("\"to\":\"process\"").await;
    wait_for_message(&manager, &mut String::new(), "READY=1").await;
}

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd");

fn packaged(file: &str) -> String {
    fs::read_to_string(Path::new(PACKAGING).join(file)).unwrap()
}

/// `systemd-analyze verify` requires that the programs exist, so the paths of this machine replace those of the units.
#[tokio::test]
async fn shipped_systemd_units_are_valid() {
    if let Err(why) = Command::new("systemd-analyze").arg("--version").output() {
        return grit_testkit::not_covered("the units", &format!("systemd-analyze cannot be started: {why}"));
    }
    let here = |text: String| {
        text.replace("/usr/bin/grit-wrapper", env!("CARGO_BIN_EXE_grit-wrapper"))
            .replace("/usr/bin/gitlab-runner", "/bin/true")
    };
    let folder = tempfile::tempdir().unwrap();
    let install = |file: &str, to: &str| {
        let path = folder.path().join(to);
        fs::write(&path, here(packaged(file))).unwrap();
        path
    };
    // The instance is of a runner without a unit file.
    let units = [
        install("gitlab-runner.service", "gitlab-runner.service"),
        install("grit-wrapper.service", "grit-wrapper.service"),
        install("grit-wrapper@.service", "grit-wrapper@other.service"),
    ];
    fs::create_dir(folder.path().join("gitlab-runner.service.d")).unwrap();
    let drop_in = "gitlab-runner.service.d/10-grit-wrapper.conf";
    install(drop_in, drop_in);
    eventually("verify", async || {
        let output =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // Its messages about other units of the machine are ignored.
        let wrapper_lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("grit-wrapper") || line.contains("gitlab-runner"))
            .collect();
        assert!(wrapper_lines.is_empty(), "{wrapper_lines:#?}");
        if output.status.success() { Ok(()) } else { Err(text) }
    })
    .await;
}

#[test]
fn unit_of_further_runners_has_settings_of_packaged_unit() {
    let settings = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let link = "ExecStartPre=+/bin/ln -sfn /run/grit-wrapper/gitlab-runner.service.sock /run/gitlab-runner-wrapper.sock";
    let file = "EnvironmentFile=-/etc/default/grit-wrapper@gitlab-runner";
    let mut unit = settings(&packaged("grit-wrapper.service"));
    let mut template = settings(&packaged("grit-wrapper@.service").replace("%i", "gitlab-runner"));
    for (lines, only) in [(&mut unit, link), (&mut template, file)] {
        let before = lines.len();
        lines.retain(|line| line != only);
        assert_eq!(lines.len() + 1, before, "{only}");
    }
    assert_eq!(template, unit);
}
