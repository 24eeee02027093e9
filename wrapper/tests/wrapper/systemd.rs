//! Messages to systemd, and the packaged units.

use std::{fs, path::Path, process::Command, time::Duration};

use rustix::process::Signal;
use tokio::net::UnixDatagram;

use crate::{
    health_levels::{CONFIG, Runner, VERSION, polls},
    support::{Start, eventually},
};

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
    wait_for_message(&manager, &mut all, "STATUS=The runner is running, health level none").await;
    assert!(!all.contains("READY=1"), "notified before its level: {all}");
    wait_for_message(&manager, &mut all, "READY=1").await;
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
async fn ready_is_not_sent_below_ready_when_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let wrapper = Start::again(folder)
        .flags(&["--ready-when=polling", "--probe-interval=100ms"])
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .child(&[]);
    let mut all = String::new();
    wait_for_message(&manager, &mut all, "STATUS=The runner is running, health level process").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut message = [0; 4096];
    while let Ok(read) = manager.try_recv(&mut message) {
        all += std::str::from_utf8(&message[..read]).unwrap();
    }
    assert!(!all.contains("READY"), "{all}");
    drop(wrapper);
}

/// At the start timeout systemd would end the wrapper, and so drain the section that works, and start both again.
#[tokio::test]
async fn start_timeout_is_extended_until_all_sections_poll() {
    let runner = Runner::new().await;
    let page = |of_b| VERSION.to_owned() + &polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", of_b, 1);
    runner.says("/metrics", 200, &page(403));
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("notify"), folder.path().join("config.toml"));
    fs::write(&config, CONFIG).unwrap();
    let manager = UnixDatagram::bind(&path).unwrap();
    let _wrapper = Start::again(folder)
        .flags(&["--ready-when=polling", "--probe-interval=100ms"])
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("CONFIG_FILE", config.to_str().unwrap())
        .runner(&runner)
        .child(&[]);
    let mut all = String::new();
    let line = "STATUS=The runner is running, health level ready; systemd waits for the level polling: ";
    wait_for_message(&manager, &mut all, line).await;
    wait_for_message(&manager, &mut all, "EXTEND_TIMEOUT_USEC=").await;
    assert!(!all.contains("READY=1"), "{all}");
    runner.says("/metrics", 200, &page(204));
    wait_for_message(&manager, &mut all, "READY=1").await;
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

/// Otherwise systemd would wait for a level that cannot be verified, time out, drain the runner and start another one, indefinitely.
#[tokio::test]
async fn ready_is_sent_at_level_process_without_http_server() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("notify"), folder.path().join("config.toml"));
    fs::write(&config, "[[runners]]\ntoken = \"glrt-aaaaaaaaaaaa\"\n").unwrap();
    let manager = UnixDatagram::bind(&path).unwrap();
    let wrapper = Start::again(folder)
        .flags(&["--ready-when=polling", "--probe-interval=100ms"])
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("CONFIG_FILE", config.to_str().unwrap())
        .child(&[]);
    let mut all = String::new();
    wait_for_message(&manager, &mut all, "READY=1").await;
    let before = all.split("READY=1").next().unwrap();
    assert!(
        before.contains("STATUS=The runner is running, health level none"),
        "notified before its level: {all}"
    );
    wrapper.logged("sending READY=1 at a level below --ready-when").await;
    let log = wrapper.read("log");
    assert_eq!(log.matches("sending READY=1 at a level below --ready-when").count(), 1, "{log}");
}

/// `systemd-analyze verify` requires that the programs exist, so the paths of this machine replace those of the units.
#[tokio::test]
async fn shipped_systemd_units_are_valid() {
    if let Err(why) = Command::new("systemd-analyze").arg("--version").output() {
        return grit_testkit::not_covered("the units", &format!("systemd-analyze cannot be started: {why}"));
    }
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let here = |text: String| {
        text.replace("/usr/bin/grit-wrapper", env!("CARGO_BIN_EXE_grit-wrapper"))
            .replace("/usr/bin/gitlab-runner", "/bin/true")
    };
    let read = |name: &str| here(fs::read_to_string(packaging.join(name)).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("grit-wrapper.service");
    fs::write(&unit, read("grit-wrapper.service")).unwrap();
    let packaged = folder.path().join("gitlab-runner.service");
    fs::write(
        &packaged,
        "[Unit]\nDescription=GitLab Runner\n[Service]\nExecStart=/bin/true\nRestart=always\n",
    )
    .unwrap();
    fs::create_dir(folder.path().join("gitlab-runner.service.d")).unwrap();
    fs::write(
        folder.path().join("gitlab-runner.service.d/grit-wrapper.conf"),
        read("gitlab-runner.service.d/grit-wrapper.conf"),
    )
    .unwrap();
    eventually("verify", async || {
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .args([&unit, &packaged])
            .output()
            .unwrap();
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
