//! Faults: host keys.

use super::*;

#[tokio::test]
async fn unknown_host_key_is_reported() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.trust.known_hosts = Some("# nothing\n".to_owned());
    options.trust.known_hosts_path = Some("/nonexistent/known_hosts".into());
    let error = failure(&options, fixture.target()).await;
    assert!(!error.retryable());
    assert_message("host_key_unknown", without_fingerprints(&fixture.message(&error)));
}

#[tokio::test]
async fn changed_host_key_is_reported() {
    let fixture = Fixture::new();
    let known = fixture.sshd.known_hosts().replace(&fixture.sshd.host_keys()[0], &fixture.key.public);
    let path = fixture.dir.path().join("known_hosts");
    std::fs::write(&path, format!("# first\n{known}")).unwrap();
    let mut options = fixture.options();
    options.trust.known_hosts = None;
    options.trust.known_hosts_path = Some(path);
    let error = failure(&options, fixture.target()).await;
    assert_message("host_key_changed", without_fingerprints(&fixture.message(&error)));
}

#[tokio::test]
async fn revoked_host_key_is_reported() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    let revoked = format!("@revoked * {}\n", fixture.sshd.host_keys()[0]);
    options.trust.known_hosts = Some(fixture.sshd.known_hosts() + &revoked);
    let error = failure(&options, fixture.target()).await;
    assert_message("host_key_revoked", without_fingerprints(&fixture.message(&error)));
}

/// OpenSSH ignores the line, and the key stays trusted.
#[tokio::test]
async fn unknown_marker_is_reported() {
    let fixture = Fixture::new();
    let path = fixture.dir.path().join("known_hosts");
    let revoked = format!("@REVOKED * {}\n", fixture.sshd.host_keys()[0]);
    std::fs::write(&path, fixture.sshd.known_hosts() + &revoked).unwrap();
    let mut options = fixture.options();
    options.trust.known_hosts = None;
    options.trust.known_hosts_path = Some(path);
    let error = failure(&options, fixture.target()).await;
    assert!(!error.retryable());
    assert_message("host_key_unknown_marker", fixture.message(&error));
}

#[tokio::test]
async fn other_pinned_host_key_is_reported() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.trust.known_hosts = None;
    let target = Target { host_key: Some(fixture.key.fingerprint.clone()), ..fixture.target() };
    let error = failure(&options, target).await;
    assert_message("host_key_another_pin", without_fingerprints(&fixture.message(&error)));
}

fn without_fingerprints(message: &str) -> String {
    let parts: Vec<String> = message
        .split("SHA256:")
        .enumerate()
        .map(|(index, part)| match part {
            part if index == 0 || part.starts_with("CLIENT") => part.to_owned(),
            part => format!("HOST{}", part.get(43..).unwrap_or_default()),
        })
        .collect();
    parts.join("SHA256:")
}
