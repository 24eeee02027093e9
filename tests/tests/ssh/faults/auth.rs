//! Faults: login and credentials.

use super::*;
use grit_tests::{
    provider_client::AgentOptions,
    sshd::{Agent, Builder},
};

#[tokio::test]
async fn unknown_user_is_reported() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.username = Some("nobody-here".to_owned());
    let error = check_message!("auth_unknown_user", fixture, options, fixture.target());
    assert!(!error.retryable());
}

#[tokio::test]
async fn wrong_key_is_reported() {
    let fixture = Fixture::new();
    let other = ClientKey::generate(fixture.dir.path(), "other", "ecdsa", "").unwrap();
    let mut options = fixture.options();
    options.private_key = Some(Secret::new(other.private.clone()));
    let error = failure(&options, fixture.target()).await;
    assert!(!error.retryable());
    assert_message("auth_wrong_key", fixture.message(&error).replace(&other.fingerprint, "SHA256:OTHER"));
}

#[tokio::test]
async fn user_not_allowed_is_reported() {
    let fixture = Fixture::with(|builder| builder.config("AllowUsers somebody-else"));
    check_message!("auth_user_not_allowed", fixture, fixture.options(), fixture.target());
}

#[tokio::test]
async fn too_many_failures_are_reported() {
    let fixture = Fixture::with(|builder| builder.config("MaxAuthTries 1"));
    let mut options = fixture.options();
    options.username = Some("nobody-here".to_owned());
    let error = check_message!("auth_too_many_failures", fixture, options, fixture.target());
    assert!(!error.retryable());
}

#[tokio::test]
async fn server_without_publickey_is_reported() {
    let fixture = Fixture::with(|builder| {
        builder.config("PubkeyAuthentication no").config("PasswordAuthentication yes")
    });
    check_message!("auth_without_publickey", fixture, fixture.options(), fixture.target());
}

#[tokio::test]
async fn second_factor_required_is_reported() {
    let fixture = Fixture::with(|builder| {
        builder.config("PasswordAuthentication yes").config("AuthenticationMethods publickey,password")
    });
    check_message!("auth_second_factor", fixture, fixture.options(), fixture.target());
}

/// A server that never completes the check of a key.
fn thinking() -> Fixture {
    let fixture = Fixture::with(|builder| {
        builder
            .config("AuthorizedKeysCommand /usr/bin/sleep 300")
            .config(format!("AuthorizedKeysCommandUser {}", grit_tests::sshd::username()))
            .config("AuthorizedKeysFile none")
    });
    assert!(std::path::Path::new("/usr/bin/sleep").exists());
    fixture
}

#[tokio::test]
async fn hanging_login_is_reported() {
    let fixture = thinking();
    let mut options = fixture.options();
    options.connect_timeout = Some(Duration::from_secs(12));
    check_message!("auth_hang", fixture, options, fixture.target());
}

#[tokio::test]
async fn connection_lost_during_login_is_reported() {
    let fixture = thinking();
    let error = killed_during_login(&fixture, &fixture.options(), 4).await;
    assert!(error.retryable(), "a lost connection is no refusal: {error:?}");
    assert_message("auth_connection_lost", fixture.message(&error));
}

/// The error after sshd's sessions are killed while it has at least this number of processes.
async fn killed_during_login(fixture: &Fixture, options: &SshOptions, processes: usize) -> ClientError {
    let (error, ()) = tokio::join!(failure(options, fixture.target()), async {
        soon(async {
            while fixture.sshd.processes().len() < processes {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        fixture.sshd.kill_sessions();
    });
    error
}

/// A host that boots sends its reason as a banner, and then ends the login. A banner can also be long, and have control characters.
#[tokio::test]
async fn login_error_contains_text_of_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("banner");
    std::fs::write(&path, format!("System is booting up.\n\tTry \u{1b}[31mlater. {}\n", "x ".repeat(2000)))
        .unwrap();
    let banner = |builder: Builder| builder.config(format!("Banner {}", path.display()));
    let with = |lines: &[&str]| {
        Fixture::with(|builder| lines.iter().fold(banner(builder), |builder, line| builder.config(*line)))
    };
    let wrong_user =
        |fixture: &Fixture| SshOptions { username: Some("nobody-here".to_owned()), ..fixture.options() };
    let mut messages = Vec::new();
    for (title, lines) in [
        ("Login refused", &[][..]),
        ("Login refused", &["MaxAuthTries 1"]),
        ("Login refused", &["PubkeyAuthentication no"]),
        ("Login refused", &["PasswordAuthentication yes", "AuthenticationMethods publickey,password"]),
    ] {
        let fixture = with(lines);
        let right_user = lines.len() > 1;
        let options = if right_user { fixture.options() } else { wrong_user(&fixture) };
        messages.push((title, fixture.message(&failure(&options, fixture.target()).await)));
    }
    // sshd rejects the first key, which sends the banner, and never completes the check of the second one.
    let command = "AuthorizedKeysCommand /bin/sh -c \"case %t in ssh-rsa) sleep 300;; esac\"";
    let user = format!("AuthorizedKeysCommandUser {}", grit_tests::sshd::username());
    let fixture = with(&["AuthorizedKeysFile none", command, &user]);
    let agent = Agent::start(fixture.dir.path()).unwrap();
    agent.add(&ClientKey::generate(fixture.dir.path(), "second", "rsa", "").unwrap()).unwrap();
    let socket = Some(agent.socket().to_owned());
    let options = SshOptions { agent: Some(AgentOptions { socket, identity: None }), ..fixture.options() };
    let lost = killed_during_login(&fixture, &options, 5).await;
    messages.push(("SSH connection lost", fixture.message(&lost)));
    let options = SshOptions { connect_timeout: Some(Duration::from_secs(4)), ..options };
    messages
        .push(("SSH server does not respond", fixture.message(&failure(&options, fixture.target()).await)));
    for (title, message) in messages {
        assert!(message.starts_with(title), "{message}");
        let said = "Message of the server: \"System is booting up. Try \\u{1b}[31mlater. x x";
        assert!(message.contains(said) && message.len() < 1500, "{title}: {message}");
        assert!(!message.contains("network"), "{message}");
    }
}

#[tokio::test]
async fn missing_user_or_key_is_reported() {
    let fixture = Fixture::new();
    let no_user = SshOptions { username: None, ..fixture.options() };
    check_message!("setup_no_username", fixture, no_user, fixture.target());
    let no_key = SshOptions { private_key: None, ..fixture.options() };
    check_message!("setup_no_key", fixture, no_key, fixture.target());
}

#[tokio::test]
async fn unusable_keys_are_reported() {
    let fixture = Fixture::new();
    let encrypted = ClientKey::generate(fixture.dir.path(), "encrypted", "ed25519", "geheim").unwrap();
    let key = |text: &str| SshOptions { private_key: Some(Secret::new(text)), ..fixture.options() };
    check_message!("setup_no_passphrase", fixture, key(&encrypted.private), fixture.target());
    let wrong = SshOptions { passphrase: Some(Secret::new("falsch")), ..key(&encrypted.private) };
    check_message!("setup_wrong_passphrase", fixture, wrong, fixture.target());
    check_message!("setup_public_key", fixture, key(&encrypted.public), fixture.target());
    let missing = SshOptions {
        private_key: None,
        private_key_path: Some("/nonexistent/key".into()),
        ..fixture.options()
    };
    check_message!("setup_missing_key_file", fixture, missing, fixture.target());
    let entry = Target { private_key: Some(Secret::new("hello")), ..fixture.target() };
    check_message!(
        "setup_bad_entry_key",
        fixture,
        SshOptions { private_key: None, ..fixture.options() },
        entry
    );
}
