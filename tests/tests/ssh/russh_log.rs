//! russh's own log. It uses the `log` crate, which tracing-subscriber forwards to the provider's log.
//!
//! The provider passes only russh's warnings (`plugin::logging`), tested in `e2e::russh_log`. This is the test of the
//! unfiltered log: it has no key and no passphrase.

use crate::fixture::{Fixture, soon};
use grit_provider::testing::transport::Secret;
use grit_tests::provider_client::{AgentOptions, Connector, SshOptions};
use grit_tests::sshd::{Agent, ClientKey};
use std::process::Command;

const PASSPHRASE: &str = "marker-of-the-passphrase";

/// The bridge is global, so the test runs in a separate process.
#[test]
fn unfiltered_russh_log_has_no_secret() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "russh_log::helper_logs_in_with_russh_log_at_trace", "--ignored", "--nocapture"])
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout} {}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("1 passed"), "{stdout}");
    let bodies: Vec<_> = stdout.lines().filter_map(|line| line.strip_prefix("KEY-BODY ")).collect();
    assert_eq!(bodies.len(), 4, "{stdout}");

    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        log.contains("DEBUG russh::"),
        "russh's records do not come through, and nothing was tested: {log}"
    );
    assert!(log.contains("sign_request"), "the agent was not asked: {log}");
    assert!(!log.contains(PASSPHRASE), "{log}");
    for body in bodies {
        assert!(!log.contains(body), "{log}");
    }
}

#[tokio::test]
#[ignore = "the test above runs it"]
async fn helper_logs_in_with_russh_log_at_trace() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let dir = tempfile::tempdir().unwrap();
    let make = |name, passphrase| ClientKey::generate(dir.path(), name, "ed25519", passphrase).unwrap();
    let (encrypted, plain) = (make("encrypted", PASSPHRASE), make("plain", ""));
    let fixture = Fixture::with(|builder| builder.authorize(&encrypted).authorize(&plain));
    for key in [&encrypted, &plain] {
        let lines: Vec<_> = key.private.lines().collect();
        println!("KEY-BODY {}\nKEY-BODY {}", lines[2], lines[3]);
    }

    let options = SshOptions {
        private_key: Some(Secret::new(encrypted.private.clone())),
        passphrase: Some(Secret::new(PASSPHRASE)),
        ..fixture.options()
    };
    let login = async |options| soon(Connector::new(options).client(fixture.target()).check_status()).await;
    login(options.clone()).await.unwrap();
    login(SshOptions { passphrase: Some(Secret::new(format!("not-{PASSPHRASE}"))), ..options.clone() })
        .await
        .unwrap_err();
    login(SshOptions { username: Some("nobody-here".to_owned()), ..options.clone() }).await.unwrap_err();
    let agent = Agent::start(dir.path()).unwrap();
    agent.add(&plain).unwrap();
    let agent = AgentOptions { socket: Some(agent.socket().to_owned()), ..AgentOptions::default() };
    login(SshOptions { private_key: None, passphrase: None, agent: Some(agent), ..options }).await.unwrap();
}
