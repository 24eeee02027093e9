//! Host keys with real servers: negotiation, verification, and comparison with OpenSSH's client.

use crate::guide::assert_message;
use crate::{
    fixture::{Fixture, soon},
    scripted_server::{ScriptedServer, Then},
};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, HostKeyVerdict},
};
use grit_tests::provider_client::{Connector, SshOptions, Target, TrustOptions};
use grit_tests::sshd::ClientKey;
use std::process::{Command, Stdio};

async fn verdict(fixture: &Fixture, trust: TrustOptions, target: Target) -> Result<(), HostKeyVerdict> {
    let client = Connector::new(SshOptions { trust, ..fixture.options() }).client(target);
    match soon(client.check_status()).await {
        Ok(_) => Ok(()),
        Err(ClientError::Transport(error)) => match error.cause {
            Cause::HostKey(refusal) => Err(refusal.verdict),
            cause => panic!("{cause:?}"),
        },
        Err(error) => panic!("{error:?}"),
    }
}

/// Why the host certificate is refused, and the message.
async fn refusal(fixture: &Fixture, trust: TrustOptions) -> (Option<String>, String) {
    let client = Connector::new(SshOptions { trust, ..fixture.options() }).client(fixture.target());
    let error = soon(client.check_status()).await.unwrap_err();
    let ClientError::Transport(inner) = &error else { panic!("{error:?}") };
    let Cause::HostKey(refusal) = &inner.cause else { panic!("{error:?}") };
    let message = fixture.message(&error).replace(&refusal.fingerprint, "SHA256:HOST");
    (refusal.problem.clone(), message)
}

/// Whether OpenSSH's client accepts the host key with this known_hosts file. `echo`: a server that sends `hello`.
fn openssh_accepts(fixture: &Fixture, text: &str, (host, port): (&str, u16), echo: &ScriptedServer) -> bool {
    let file = fixture.dir.path().join("known_hosts_of_openssh");
    std::fs::write(&file, text).unwrap();
    let run = || {
        Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
            .args(["-o", "IdentitiesOnly=yes", "-o", "GlobalKnownHostsFile=/dev/null", "-i"])
            .arg(&fixture.key.path)
            .args(["-o", &format!("UserKnownHostsFile={}", file.display())])
            .args(["-p", &port.to_string(), "-W", &echo.address.to_string()])
            .arg(format!("{}@{host}", fixture.sshd.username()))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = tokio::task::block_in_place(run);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let accepted = output.stdout == b"hello\n";
    assert!(accepted || stderr.contains("Host key verification failed"), "{text}: {stderr}");
    accepted
}

fn known(text: String) -> TrustOptions {
    TrustOptions { known_hosts: Some(text), ..TrustOptions::default() }
}

fn fingerprint(line: &str, dir: &std::path::Path) -> String {
    let path = dir.join("one.pub");
    std::fs::write(&path, line).unwrap();
    let output = Command::new("ssh-keygen").arg("-lf").arg(&path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split_whitespace().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn known_key_type_is_negotiated_and_any_key_can_be_pinned() {
    let fixture = Fixture::with(|builder| builder.host_keys(&["ed25519", "ecdsa", "rsa"]));
    let address = fixture.sshd.address();
    let name = format!("[{}]:{}", address.ip(), address.port());
    for key in fixture.sshd.host_keys() {
        assert_eq!(
            verdict(&fixture, known(format!("{name} {key}\n")), fixture.target()).await,
            Ok(()),
            "{key}"
        );
        let pinned = TrustOptions { host_keys: vec![key.clone()], ..TrustOptions::default() };
        assert_eq!(verdict(&fixture, pinned, fixture.target()).await, Ok(()), "{key}");
        // A fingerprint has no type: each type is tried.
        let print = fingerprint(&key, fixture.dir.path());
        let target = Target { host_key: Some(print), ..fixture.target() };
        assert_eq!(verdict(&fixture, TrustOptions::default(), target).await, Ok(()), "{key}");
    }
    let target = Target { host_key: Some(fixture.key.fingerprint.clone()), ..fixture.target() };
    assert_eq!(verdict(&fixture, TrustOptions::default(), target).await, Err(HostKeyVerdict::Changed));
}

#[tokio::test]
async fn insecure_ignore_host_key_accepts_any_key() {
    let fixture = Fixture::new();
    let trust = TrustOptions { insecure_ignore_host_key: true, ..TrustOptions::default() };
    assert_eq!(verdict(&fixture, trust, fixture.target()).await, Ok(()));
}

#[tokio::test]
async fn insecure_ignore_host_key_keeps_host_key_of_manager() {
    let fixture = Fixture::new();
    let trust = || TrustOptions { insecure_ignore_host_key: true, ..TrustOptions::default() };
    let pinned = |key: &str| Target { host_key: Some(key.to_owned()), ..fixture.target() };
    assert_eq!(verdict(&fixture, trust(), pinned(&fixture.sshd.host_keys()[0])).await, Ok(()));
    let other = pinned(&fixture.key.fingerprint);
    assert_eq!(verdict(&fixture, trust(), other).await, Err(HostKeyVerdict::Changed));
}

#[tokio::test]
async fn host_certificates_are_verified() {
    let fixture = Fixture::new();
    let authority = ClientKey::generate(fixture.dir.path(), "ca", "ed25519", "").unwrap();
    let foreign = ClientKey::generate(fixture.dir.path(), "foreign", "ed25519", "").unwrap();
    let host = fixture.sshd.address().ip().to_string();
    fixture.sshd.certify(&authority, &["-n", &format!("other,{host}"), "-V", "+1h"]).unwrap();
    let of = |key: &ClientKey| TrustOptions { host_ca: vec![key.public.clone()], ..TrustOptions::default() };
    let line = |pattern: &str, key: &ClientKey| known(format!("@cert-authority {pattern} {}\n", key.public));
    let judge = async |trust| verdict(&fixture, trust, fixture.target()).await;

    assert_eq!(judge(of(&authority)).await, Ok(()));
    assert_eq!(judge(line("*", &authority)).await, Ok(()));
    assert_eq!(judge(line("[127.*]:*", &authority)).await, Ok(()));
    assert_eq!(judge(line("elsewhere", &authority)).await, Err(HostKeyVerdict::Unknown));
    assert_eq!(judge(of(&foreign)).await, Err(HostKeyVerdict::Unknown));
    let revoked = format!("@cert-authority * {0}\n@revoked * {0}\n", authority.public);
    assert_eq!(judge(known(revoked.clone())).await, Err(HostKeyVerdict::RevokedAuthority));
    let (_, message) = refusal(&fixture, known(revoked)).await;
    assert_message(
        "host_certificate_of_revoked_authority",
        message.replace(&authority.fingerprint, "SHA256:CA"),
    );
    // The plain key is known, and the server presents a certificate of an authority for other hosts.
    let both = TrustOptions { known_hosts: Some(fixture.sshd.known_hosts()), ..of(&foreign) };
    assert_eq!(judge(both).await, Ok(()));

    fixture.sshd.certify(&authority, &["-n", "other", "-V", "+1h"]).unwrap();
    assert_eq!(judge(of(&authority)).await, Err(HostKeyVerdict::BadCertificate));
    let many = vec!["x".repeat(100); 200].join(",");
    fixture.sshd.certify(&authority, &["-n", &many, "-V", "+1h"]).unwrap();
    let (_, message) = refusal(&fixture, of(&authority)).await;
    assert!(message.len() < 2000, "{message}");
    fixture.sshd.certify(&authority, &["-n", &host, "-V", "20200101:20210101"]).unwrap();
    assert_eq!(judge(of(&authority)).await, Err(HostKeyVerdict::BadCertificate));
    let (problem, message) = refusal(&fixture, of(&authority)).await;
    assert_eq!(problem.as_deref(), Some("it has expired"));
    assert_message("host_certificate_expired", message.replace(&authority.fingerprint, "SHA256:CA"));
}

/// OpenSSH's client also refuses the first certificate: "disallowed algorithm".
#[tokio::test(flavor = "multi_thread")]
async fn host_certificate_with_sha1_signature_is_refused() {
    let fixture = Fixture::new();
    let address = fixture.sshd.address();
    let host = address.ip().to_string();
    let echo = ScriptedServer::new(b"hello\n", Then::Close).await;
    for (kind, signature, accepted) in [
        ("rsa", "ssh-rsa", false),
        ("rsa", "rsa-sha2-256", true),
        ("rsa", "rsa-sha2-512", true),
        ("ed25519", "", true),
        ("ecdsa", "", true),
    ] {
        let name = format!("ca-{kind}-{signature}");
        let authority = ClientKey::generate(fixture.dir.path(), &name, kind, "").unwrap();
        let mut options = vec!["-n", host.as_str(), "-V", "+1h"];
        if !signature.is_empty() {
            options.extend(["-t", signature]);
        }
        fixture.sshd.certify(&authority, &options).unwrap();
        let line = format!("@cert-authority * {}\n", authority.public);
        let theirs = openssh_accepts(&fixture, &line, (&host, address.port()), &echo);
        let ours = verdict(&fixture, known(line), fixture.target()).await;
        let expected = if accepted { Ok(()) } else { Err(HostKeyVerdict::BadCertificate) };
        assert_eq!((ours, theirs), (expected, accepted), "{name}");
        if !accepted {
            let trust = TrustOptions { host_ca: vec![authority.public.clone()], ..TrustOptions::default() };
            let (problem, _) = refusal(&fixture, trust).await;
            assert_eq!(
                problem.as_deref(),
                Some("its signature has the algorithm ssh-rsa, which is not secure")
            );
        }
    }
}

#[tokio::test]
async fn host_key_signature_with_sha1_is_not_offered() {
    let fixture = Fixture::with(|builder| builder.host_keys(&["rsa"]).config("HostKeyAlgorithms ssh-rsa"));
    let client = fixture.connector().client(fixture.target());
    let error = soon(client.check_status()).await.unwrap_err();
    let ClientError::Transport(error) = error else { panic!("{error:?}") };
    let Cause::NoCommonAlgorithm { kind, theirs, .. } = &error.cause else { panic!("{error:?}") };
    assert_eq!((kind.as_str(), theirs.as_slice()), ("host key", ["ssh-rsa".to_owned()].as_slice()));
}

/// For each known_hosts text, OpenSSH's client and the provider's have the same verdict.
#[tokio::test(flavor = "multi_thread")]
async fn verdicts_match_openssh_client() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fixture = Fixture::with(|builder| {
        builder.host_keys(&["ed25519", "ecdsa"]).config(format!("ListenAddress 127.0.0.1:{port}"))
    });
    let (key, ecdsa, other) =
        (&fixture.sshd.host_keys()[0], &fixture.sshd.host_keys()[1], &fixture.key.public);
    let name = format!("[localhost]:{port}");
    let file = fixture.dir.path().join("table");
    let hashed = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let done = Command::new("ssh-keygen").args(["-H", "-f"]).arg(&file).output().unwrap();
        assert!(done.status.success());
        std::fs::read_to_string(&file).unwrap()
    };
    let echo = ScriptedServer::new(b"hello\n", Then::Close).await;
    let (mut accepted, mut refused) = (0, 0);
    for (host, text) in [
        ("localhost", format!("{name} {key}\n")),
        ("localhost", format!("{name} {other}\n")),
        ("localhost", String::new()),
        ("localhost", format!("localhost {key}\n")),
        ("localhost", format!("localhost {other}\n")),
        ("localhost", format!("{name} {other}\nlocalhost {key}\n")),
        ("localhost", format!("{name} {ecdsa}\n")),
        ("localhost", hashed(&format!("{name} {key}\n"))),
        ("LOCALHOST", hashed(&format!("{name} {key}\n"))),
        ("LOCALHOST", format!("{name} {key}\n")),
        ("localhost", format!("[LocalHost]:{port} {key}\n")),
        ("localhost", format!("[local*]:{port} {key}\n")),
        ("localhost", format!("*,!{name} {key}\n")),
        ("localhost", format!("a,{name},b {key} a comment\r\n")),
        ("localhost", format!("  {name}\t{}\n", key.replace(' ', "\t"))),
        ("localhost", format!("{name} {other}\n{name} {key}\n")),
        ("localhost", format!("{name} {key}\n@revoked * {key}\n")),
        ("localhost", format!("@revoked {name} {key}\n{name} {ecdsa}\n")),
        ("localhost", format!("{name} ssh-ed25519 AAAA\n{name} {key}\n")),
        ("localhost", format!("{name} ssh-future AAAA\n{name} {key}\n")),
        ("localhost", format!("@cert-authority {name} {key}\n")),
        ("localhost", format!("# {name} {key}\n")),
    ] {
        let theirs = openssh_accepts(&fixture, &text, (host, port), &echo);
        let target = Target { address: format!("{host}:{port}").parse().unwrap(), ..fixture.target() };
        let ours = verdict(&fixture, known(text.clone()), target).await;
        assert_eq!(ours.is_ok(), theirs, "{host} with {text}: {ours:?}");
        if theirs { accepted += 1 } else { refused += 1 }
    }
    assert!(accepted > 5 && refused > 5, "{accepted} {refused}");
}
