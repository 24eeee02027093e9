//! Connection commands, and their failures.

use crate::guide::assert_message;
use crate::{
    fixture::{Fixture, soon},
    methods::{CARRY, command},
    stub::Wrapper,
};
use grit_tests::provider_client::{Connector, SshOptions, StrategyOptions, Target, TrustOptions};
use rustix::process::Pid;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Proxy,
    Ssh,
}

/// The options for a command with these arguments before its normal ones.
fn options(fixture: &Fixture, kind: Kind, misbehaviour: &[&str]) -> SshOptions {
    let arguments = match kind {
        Kind::Proxy => [&[CARRY], misbehaviour, &["tcp", "{{host}}", "{{port}}"]].concat(),
        Kind::Ssh => [&[CARRY], misbehaviour, &["unix", "{{wrapper_path}}"]].concat(),
    };
    let strategy = match kind {
        Kind::Proxy => command(StrategyOptions::ProxyCommand, &arguments),
        Kind::Ssh => command(StrategyOptions::SshCommand, &arguments),
    };
    SshOptions { strategy, ..fixture.options() }
}

async fn works(options: SshOptions, target: Target) {
    soon(Connector::new(options).client(target).check_status()).await.unwrap();
}

async fn message(fixture: &Fixture, options: SshOptions) -> String {
    let error = soon(Connector::new(options).client(fixture.target()).check_status()).await.unwrap_err();
    fixture.message(&error)
}

/// As `gcloud compute start-iap-tunnel` without permission.
const GCLOUD: &str =
    "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4033: 'not authorized'].\n";

#[tokio::test]
async fn stderr_output_of_command_is_harmless() {
    let fixture = Fixture::new();
    for kind in [Kind::Proxy, Kind::Ssh] {
        // As IAP, which warns about NumPy at every start.
        works(
            options(&fixture, kind, &["--stderr", "WARNING: consider installing NumPy\n"]),
            fixture.target(),
        )
        .await;
        works(options(&fixture, kind, &["--flood", "1000000"]), fixture.target()).await;
        works(options(&fixture, kind, &["--sleep", "1"]), fixture.target()).await;
    }
}

#[tokio::test]
async fn ssh_command_needs_no_credentials() {
    let mut fixture = Fixture::new();
    let bare = |fixture: &Fixture, arguments: &[&str]| SshOptions {
        strategy: command(StrategyOptions::SshCommand, arguments),
        username: None,
        private_key: None,
        trust: TrustOptions::default(),
        ..fixture.options()
    };
    works(bare(&fixture, &[CARRY, "unix", "{{wrapper_path}}"]), fixture.target()).await;
    fixture.wrapper = Wrapper::tcp();
    works(bare(&fixture, &[CARRY, "tcp", "{{wrapper_host}}", "{{wrapper_port}}"]), fixture.target()).await;
}

#[tokio::test]
async fn missing_command_is_an_error() {
    let fixture = Fixture::new();
    let missing = command(StrategyOptions::ProxyCommand, &["/nonexistent/program", "{{host}}"]);
    assert_message(
        "command_missing",
        message(&fixture, SshOptions { strategy: missing, ..fixture.options() }).await,
    );
}

#[tokio::test]
async fn failing_command_is_an_error() {
    let fixture = Fixture::new();
    let failing = ["--stderr", GCLOUD, "--exit", "1"];
    assert_message(
        "proxy_command_failing",
        message(&fixture, options(&fixture, Kind::Proxy, &failing)).await,
    );
    assert_message("ssh_command_failing", message(&fixture, options(&fixture, Kind::Ssh, &failing)).await);
    let printing = ["--stdout", "Please log in first.\n", "--exit", "3"];
    assert_message(
        "proxy_command_printing",
        message(&fixture, options(&fixture, Kind::Proxy, &printing)).await,
    );
}

#[tokio::test]
async fn command_printing_motd_fails_for_ssh_command_only() {
    let fixture = Fixture::new();
    let motd = ["--stdout", "Welcome to runner-manager-1!\n"];
    assert_message("ssh_command_motd", message(&fixture, options(&fixture, Kind::Ssh, &motd)).await);
    // Lines before the banner are allowed in SSH.
    works(options(&fixture, Kind::Proxy, &motd), fixture.target()).await;
}

#[tokio::test]
async fn hanging_command_times_out() {
    let fixture = Fixture::new();
    let short = |kind| SshOptions {
        connect_timeout: Some(Duration::from_secs(12)),
        call_timeout: Some(Duration::from_secs(1)),
        ..options(&fixture, kind, &["--stderr", "Waiting for approval...\n", "--sleep", "600"])
    };
    assert_message("proxy_command_hanging", message(&fixture, short(Kind::Proxy)).await);
    assert_message("ssh_command_hanging", message(&fixture, short(Kind::Ssh)).await);
}

#[tokio::test]
async fn command_closing_its_output_is_an_error() {
    let fixture = Fixture::new();
    let strategy = command(StrategyOptions::SshCommand, &["sh", "-c", "exec <&- >&-; sleep 600"]);
    assert_message(
        "ssh_command_closing",
        message(&fixture, SshOptions { strategy, ..fixture.options() }).await,
    );
}

#[tokio::test]
async fn command_killed_during_call_is_an_error() {
    let fixture = Fixture::new();
    for kind in [Kind::Proxy, Kind::Ssh] {
        let file = fixture.dir.path().join("helper");
        let arguments =
            options(&fixture, kind, &["--helper", file.to_str().unwrap(), "--stderr", "tunnel up\n"]);
        let client = Connector::new(arguments).client(fixture.target());
        soon(client.check_status()).await.unwrap();
        fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
        let (error, ()) = tokio::join!(soon(client.check_status()), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let parent = parent_of(pid_in(&file));
            rustix::process::kill_process(parent, rustix::process::Signal::KILL).unwrap();
        });
        let message = fixture.message(&error.unwrap_err());
        let name = if kind == Kind::Proxy { "proxy_command_killed" } else { "ssh_command_killed" };
        assert_message(name, message);
        fixture.wrapper.set(|script| script.delay = Duration::ZERO);
        soon(client.check_status()).await.unwrap();
    }
}

#[tokio::test]
async fn command_process_group_ends_with_connection() {
    let fixture = Fixture::new();
    for kind in [Kind::Proxy, Kind::Ssh] {
        let file = fixture.dir.path().join("helper");
        let client = Connector::new(options(&fixture, kind, &["--helper", file.to_str().unwrap()]))
            .client(fixture.target());
        soon(client.check_status()).await.unwrap();
        let helper = pid_in(&file);
        assert!(is_alive(helper));
        drop(client);
        soon(async {
            while is_alive(helper) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn invalid_templates_are_errors() {
    let fixture = Fixture::new();
    let template = |arguments: &[&str]| SshOptions {
        strategy: command(StrategyOptions::ProxyCommand, arguments),
        ..fixture.options()
    };
    assert_message("template_unknown_name", message(&fixture, template(&["nc", "{{hots}}"])).await);
    assert_message("template_no_value", message(&fixture, template(&["nc", "{{wrapper_port}}"])).await);
    let found = template(&["nc", "{{hots}}"]).check();
    assert_eq!(found[0].attribute, "ssh.proxy_command[1]");
    let option = Target { instance_name: "-oProxyCommand=id".to_owned(), ..fixture.target() };
    let client = Connector::new(template(&["nc", "{{instance_name}}"])).client(option);
    let error = soon(client.check_status()).await.unwrap_err();
    assert_message("template_option", fixture.message(&error));
}

fn pid_in(file: &std::path::Path) -> Pid {
    Pid::from_raw(std::fs::read_to_string(file).unwrap().parse().unwrap()).unwrap()
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // A zombie counts as exited.
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

fn parent_of(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let parent = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap();
    Pid::from_raw(parent.parse().unwrap()).unwrap()
}
