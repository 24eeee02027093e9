//! Secrets are in no readable text: not in logs at the most verbose level, not in errors or diagnostics, and not in `Debug` output.
//! `e2e::no_secrets` looks at the command lines and environments of commands.

use crate::fixture::{Fixture, soon};
use grit_provider::testing::{explain::explain, transport::Secret};
use grit_tests::provider_client::{AgentOptions, Connector, SshOptions, Target, TrustOptions};
use grit_tests::sshd::ClientKey;
use std::{
    io::{self, Write},
    process::Command,
    sync::{Arc, Mutex},
};
use tracing_subscriber::fmt::MakeWriter;

const PASSPHRASE: &str = "marker-of-the-passphrase";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The test is [`helper_logs_at_trace_level`], in a separate process, because the log level of a call site is cached for the whole process: a parallel test without a log
/// would disable it.
#[test]
fn secrets_are_not_in_logs_errors_or_debug_output() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "secrets::helper_logs_at_trace_level", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout} {}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[tokio::test]
#[ignore = "the test above runs it"]
async fn helper_logs_at_trace_level() {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let key = ClientKey::generate(dir.path(), "encrypted", "ed25519", PASSPHRASE).unwrap();
    let mut fixture = Fixture::with(|builder| builder.authorize(&key));
    let body = key.private.lines().nth(2).unwrap().to_owned();
    fixture.key = key.clone();

    let mut seen = Vec::new();
    let block = SshOptions { passphrase: Some(Secret::new(PASSPHRASE)), ..fixture.options() };
    let wrong =
        SshOptions { passphrase: Some(Secret::new(format!("not-{PASSPHRASE}"))), ..fixture.options() };
    let damaged =
        SshOptions { private_key: Some(Secret::new(key.private.replace("AA", "A"))), ..block.clone() };
    soon(Connector::new(block.clone()).client(fixture.target()).check_status()).await.unwrap();
    let unknown = SshOptions { username: Some("nobody-here".to_owned()), ..block.clone() };
    for options in [unknown, wrong, damaged] {
        let target = Target { private_key: Some(Secret::new(key.private.clone())), ..fixture.target() };
        let connector = Connector::new(options.clone());
        let client = connector.client(target.clone());
        let error = soon(client.check_status()).await.unwrap_err();
        let explained = explain("mgr-1", &error);
        seen.push(format!("{options:?} {target:?} {connector:?} {client:?} {error:?} {error} {explained:?}"));
        seen.push(explained.detail());
        seen.push(format!("{:?}", options.check()));
    }
    // The text of a key instead of a path.
    let path = Some(std::path::PathBuf::from(&key.private));
    for misplaced in [
        SshOptions { private_key: None, private_key_path: path.clone(), ..block.clone() },
        SshOptions { certificate_path: path.clone(), ..block.clone() },
        SshOptions {
            private_key: None,
            agent: Some(AgentOptions { socket: path.clone(), identity: None }),
            ..block.clone()
        },
        SshOptions {
            trust: TrustOptions { known_hosts_path: path.clone(), ..TrustOptions::default() },
            ..block.clone()
        },
    ] {
        let client = Connector::new(misplaced.clone()).client(fixture.target());
        let error = soon(client.check_status()).await.unwrap_err();
        seen.push(format!("{error:?} {error} {:?} {:?}", explain("mgr-1", &error), misplaced.check()));
    }
    let known = SshOptions { passphrase: None, private_key: None, ..block };
    let entry = Target { private_key: Some(Secret::new(key.private.clone())), ..fixture.target() };
    let error = soon(Connector::new(known).client(entry).check_status()).await.unwrap_err();
    seen.push(format!("{error:?} {:?}", explain("mgr-1", &error)));
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("TRACE") || logged.contains("DEBUG"), "nothing was logged: {logged}");
    seen.push(logged);
    for text in seen {
        assert!(!text.contains(PASSPHRASE) && !text.contains(&body), "{text}");
    }
}
