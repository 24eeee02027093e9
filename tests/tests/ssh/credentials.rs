//! Credentials, and their order of precedence.

use crate::guide::assert_message;
use crate::{
    fixture::{Fixture, soon},
    stub::Wrapper,
};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, Secret},
};
use grit_tests::provider_client::{AgentOptions, Connector, SshOptions, Target};
use grit_tests::sshd::{Agent, ClientKey};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A fixture whose sshd also accepts these keys.
fn letting_in(kinds: &[&str]) -> (Fixture, Vec<ClientKey>) {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<ClientKey> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| ClientKey::generate(dir.path(), &format!("key{index}"), kind, "").unwrap())
        .collect();
    let fixture = Fixture::with(|builder| keys.iter().fold(builder, |builder, key| builder.authorize(key)));
    // The files are read by name later.
    let keys = keys
        .into_iter()
        .map(|key| {
            for extension in ["", ".pub"] {
                let name = format!("{}{extension}", key.path.file_name().unwrap().to_str().unwrap());
                std::fs::copy(dir.path().join(&name), fixture.dir.path().join(&name)).unwrap();
            }
            ClientKey { path: fixture.dir.path().join(key.path.file_name().unwrap()), ..key }
        })
        .collect();
    (fixture, keys)
}

async fn works(options: SshOptions, target: Target) {
    soon(Connector::new(options).client(target).check_status()).await.unwrap();
}

fn with_agent(fixture: &Fixture, agent: &Agent, identity: Option<&str>) -> SshOptions {
    let agent =
        AgentOptions { socket: Some(agent.socket().to_owned()), identity: identity.map(str::to_owned) };
    SshOptions { private_key: None, agent: Some(agent), ..fixture.options() }
}

#[tokio::test]
async fn every_key_type_logs_in() {
    let (fixture, keys) = letting_in(&["ed25519", "ecdsa", "rsa"]);
    for key in keys {
        works(
            SshOptions { private_key: Some(Secret::new(key.private)), ..fixture.options() },
            fixture.target(),
        )
        .await;
        let file = SshOptions { private_key: None, private_key_path: Some(key.path), ..fixture.options() };
        works(file, fixture.target()).await;
    }
}

#[tokio::test]
async fn key_path_expands_tilde() {
    let fixture = Fixture::new();
    let options = SshOptions {
        private_key: None,
        private_key_path: Some("~/client".into()),
        home: Some(fixture.dir.path().to_owned()),
        ..fixture.options()
    };
    works(options, fixture.target()).await;
}

#[tokio::test]
async fn provider_block_overrides_entry_and_environment() {
    let fixture = Fixture::new();
    let right = || Some(Secret::new(fixture.key.private.clone()));
    let user = fixture.sshd.username();
    let wrong_entry = || Target {
        username: Some("nobody-here".to_owned()),
        private_key: Some(Secret::new("no key at all")),
        ..fixture.target()
    };
    works(fixture.options(), wrong_entry()).await;
    let silent = || SshOptions { username: None, private_key: None, ..fixture.options() };
    works(silent(), Target { username: Some(user.clone()), private_key: right(), ..fixture.target() }).await;
    let variables = [
        ("GRIT_SSH_USERNAME".to_owned(), user.clone()),
        ("GRIT_SSH_PRIVATE_KEY".to_owned(), fixture.key.private.clone()),
    ];
    works(SshOptions { environment: variables.into(), ..silent() }, wrong_entry()).await;
}

#[tokio::test]
async fn agent_keys_are_offered_and_selectable() {
    let (fixture, keys) = letting_in(&["rsa"]);
    let agent = Agent::start(fixture.dir.path()).unwrap();
    let other = ClientKey::generate(fixture.dir.path(), "other", "ed25519", "").unwrap();
    for key in [&other, &keys[0]] {
        agent.add(key).unwrap();
    }
    works(with_agent(&fixture, &agent, None), fixture.target()).await;
    for name in [&keys[0].public, &keys[0].fingerprint] {
        works(with_agent(&fixture, &agent, Some(name)), fixture.target()).await;
    }
    let wrong =
        Connector::new(with_agent(&fixture, &agent, Some(&other.fingerprint))).client(fixture.target());
    let error = soon(wrong.check_status()).await.unwrap_err();
    let ClientError::Transport(error) = error else { panic!("{error:?}") };
    let Cause::AuthRefused { offered, .. } = &error.cause else { panic!("{error:?}") };
    assert_eq!(offered.as_slice(), [format!("ssh-ed25519 {}", other.fingerprint)]);
}

#[tokio::test]
async fn key_that_agent_does_not_use_is_skipped() {
    let (fixture, keys) = letting_in(&["ed25519"]);
    let agent = Agent::start(fixture.dir.path()).unwrap();
    agent.add_unconfirmed(&fixture.key).unwrap();
    let client = || Connector::new(with_agent(&fixture, &agent, None)).client(fixture.target());
    let ClientError::Transport(error) = soon(client().check_status()).await.unwrap_err() else { panic!() };
    assert!(error.to_string().contains("signing failed"), "{error}");
    agent.add(&keys[0]).unwrap();
    works(with_agent(&fixture, &agent, None), fixture.target()).await;
}

#[tokio::test]
async fn at_most_five_agent_keys_are_offered() {
    let fixture = Fixture::new();
    let agent = Agent::start(fixture.dir.path()).unwrap();
    for index in 0..8 {
        let name = format!("k{index}");
        agent.add(&ClientKey::generate(fixture.dir.path(), &name, "ed25519", "").unwrap()).unwrap();
    }
    let refused = async |options: SshOptions| {
        let error = soon(Connector::new(options).client(fixture.target()).check_status()).await.unwrap_err();
        let message = fixture.message(&error);
        let ClientError::Transport(error) = error else { panic!("{error:?}") };
        let Cause::AuthRefused { offered, .. } = error.cause else { panic!("{error:?}") };
        (offered.len(), message)
    };
    let other = ClientKey::generate(fixture.dir.path(), "other", "ed25519", "").unwrap();
    let of_agent = with_agent(&fixture, &agent, None);
    let with_key = SshOptions { private_key: Some(Secret::new(other.private)), ..of_agent.clone() };
    for (options, not_offered) in [(of_agent, 3), (with_key, 4)] {
        let (offered, message) = refused(options).await;
        assert_eq!(offered, 5, "{message}");
        let words = format!("{not_offered} more keys of the agent were not offered.");
        assert!(message.contains(&words) && message.contains("`ssh.agent.identity`"), "{message}");
    }
}

#[tokio::test]
async fn unusable_agents_have_distinct_errors() {
    let fixture = Fixture::new();
    let agent = Agent::start(fixture.dir.path()).unwrap();
    let message = async |options: SshOptions| {
        let error = soon(Connector::new(options).client(fixture.target()).check_status()).await.unwrap_err();
        fixture.message(&error)
    };
    assert_message("agent_empty", message(with_agent(&fixture, &agent, None)).await);
    agent.add(&fixture.key).unwrap();
    assert_message("agent_without_the_key", message(with_agent(&fixture, &agent, Some("SHA256:x"))).await);
    for (identity, words) in [
        (format!("{}.pub", fixture.key.path.display()), "`file(\"KEY.pub\")`"),
        ("~/.ssh/id_ed25519".to_owned(), "`file(\"KEY.pub\")`"),
        ("MD5:16:27:ac:a5".to_owned(), "MD5 fingerprints are not supported"),
    ] {
        let message = message(with_agent(&fixture, &agent, Some(&identity))).await;
        assert!(message.contains(words) && !message.contains("Start ssh-agent"), "{identity}: {message}");
    }
    // The output of `ssh-add -l`.
    let line = format!("256 {} deploy@ci (ED25519)", fixture.key.fingerprint);
    works(with_agent(&fixture, &agent, Some(&line)), fixture.target()).await;
    let missing = AgentOptions { socket: Some("/nonexistent/agent".into()), identity: None };
    let options = SshOptions { private_key: None, agent: Some(missing), ..fixture.options() };
    assert_message("agent_missing", message(options).await);
    let unset = SshOptions { private_key: None, agent: Some(AgentOptions::default()), ..fixture.options() };
    assert_message("agent_unset", message(unset).await);
}

/// A hanging agent is reported as such: before it lists its keys, and when it has to sign.
#[tokio::test]
async fn hanging_agent_is_named() {
    let fixture = Fixture::new();
    let agent = Agent::start(fixture.dir.path()).unwrap();
    agent.add(&fixture.key).unwrap();
    let short =
        |options: SshOptions| SshOptions { connect_timeout: Some(Duration::from_secs(12)), ..options };
    let message = async |options: SshOptions| {
        let error = soon(Connector::new(options).client(fixture.target()).check_status()).await.unwrap_err();
        assert!(error.retryable(), "the login was not rejected: {error:?}");
        fixture.message(&error)
    };
    // Its socket accepts the connection, and no process reads from it.
    let silent = fixture.dir.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let options = SshOptions {
        agent: Some(AgentOptions { socket: Some(silent), identity: None }),
        ..with_agent(&fixture, &agent, None)
    };
    assert_message("agent_silent", message(short(options)).await);
    // It lists its keys, and waits for a confirmation before it signs.
    let relay = fixture.dir.path().join("waiting.sock");
    let waiting = tokio::spawn(lists_and_never_signs(
        tokio::net::UnixListener::bind(&relay).unwrap(),
        agent.socket().to_owned(),
    ));
    let options = SshOptions {
        agent: Some(AgentOptions { socket: Some(relay), identity: None }),
        ..with_agent(&fixture, &agent, None)
    };
    assert_message("agent_hanging", message(short(options)).await);
    waiting.abort();
}

/// A proxy between a client and an agent that forwards the first request and its response.
async fn lists_and_never_signs(listener: tokio::net::UnixListener, agent: std::path::PathBuf) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut agent = tokio::net::UnixStream::connect(agent).await.unwrap();
    for to_agent in [true, false] {
        let (from, to) = if to_agent { (&mut client, &mut agent) } else { (&mut agent, &mut client) };
        let length = from.read_u32().await.unwrap();
        let mut message = vec![0; length as usize];
        from.read_exact(&mut message).await.unwrap();
        to.write_u32(length).await.unwrap();
        to.write_all(&message).await.unwrap();
    }
    std::future::pending::<()>().await;
}

/// What a certificate shows about a refused login or channel.
#[tokio::test]
async fn error_names_problems_of_user_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str, kind: &str| ClientKey::generate(dir.path(), name, kind, "").unwrap();
    let (authority, rsa, other) = (key("ca", "ed25519"), key("rsa", "rsa"), key("other", "ed25519"));
    let trusted = dir.path().join("trusted");
    std::fs::write(&trusted, format!("{}\n{}\n", authority.public, rsa.public)).unwrap();
    let mut fixture = Fixture::with(|builder| {
        builder.config(format!("TrustedUserCAKeys {}", trusted.display())).config("MaxAuthTries 10")
    });
    let (own, user) = (key("certified", "ed25519"), fixture.sshd.username());
    let message = async |fixture: &Fixture, options: SshOptions| {
        let error = soon(Connector::new(options).client(fixture.target()).check_status()).await.unwrap_err();
        fixture.message(&error)
    };
    let certified = |fixture: &Fixture, authority: &ClientKey, options: &[&str]| {
        let certificate = own.sign(authority, &[&["-I", "id"], options].concat()).unwrap();
        let private_key = Some(Secret::new(own.private.clone()));
        SshOptions { certificate_path: Some(certificate), private_key, ..fixture.options() }
    };
    let signed_by = |it: &ClientKey| format!("The certificate \"id\" was signed by {}.", it.fingerprint);
    for (signer, options, problem) in [
        (
            &authority,
            &["-n", &user, "-V", "20200101Z:20210101Z"][..],
            "This certificate expired at 2021-01-01T00:00:00Z.",
        ),
        (
            &authority,
            &["-n", &user, "-V", "20990101Z:21000101Z"],
            "This certificate is not valid before 2099-01-01T00:00:00Z.",
        ),
        (&authority, &[], "This certificate has no principals."),
        (
            &authority,
            &["-n", "web,db"],
            "This certificate does not have the principal \"USER\", but [\"web\", \"db\"]: ",
        ),
        (&authority, &["-n", &user, "-h"], "This certificate is a host certificate."),
        (
            &authority,
            &["-n", &user, "-O", "source-address=192.0.2.0/24"],
            "This certificate has the critical option source-address=\"192.0.2.0/24\"",
        ),
        (&authority, &["-n", &user, "-O", "critical:x@y=z"], "This certificate has the critical option x@y="),
        (&rsa, &["-n", &user, "-t", "ssh-rsa"], "This certificate has a signature with ssh-rsa"),
        (&other, &["-n", &user], ""),
    ] {
        let options = certified(&fixture, signer, options);
        let agent_dir = tempfile::tempdir().unwrap();
        let agent = Agent::start(agent_dir.path()).unwrap();
        agent.add(&own).unwrap();
        for options in [options, with_agent(&fixture, &agent, None)] {
            let message = message(&fixture, options).await;
            let expected = format!("{} {problem}", signed_by(signer));
            assert!(message.contains(expected.trim_end()), "{expected}: {message}");
            assert!(message.contains("`TrustedUserCAKeys`"), "{message}");
        }
    }
    let without = |fixture: &Fixture| certified(fixture, &authority, &["-n", &user, "-O", "clear"]);
    for _ in ["unix", "tcp"] {
        let message = message(&fixture, without(&fixture)).await;
        let words =
            "The certificate \"id\" of the login does not have the extension `permit-port-forwarding`";
        assert!(message.starts_with("Forwarding is forbidden") && message.contains(words), "{message}");
        fixture.wrapper = Wrapper::tcp();
    }
}

#[tokio::test]
async fn user_certificate_logs_in_from_file_and_agent() {
    let dir = tempfile::tempdir().unwrap();
    let authority = ClientKey::generate(dir.path(), "ca", "ed25519", "").unwrap();
    let ca = format!("{}.pub", authority.path.display());
    let mut fixture = Fixture::with(|builder| builder.config(format!("TrustedUserCAKeys {ca}")));
    let mut certificates = Vec::new();
    // RSA: OpenSSH 8.8 and later reject signatures with SHA-1.
    for kind in ["rsa", "ecdsa"] {
        // The key alone is rejected.
        let key = ClientKey::generate(dir.path(), kind, kind, "").unwrap();
        fixture.key = key.clone();
        let certificate = key.sign(&authority, &["-I", "deploy", "-n", &fixture.sshd.username()]).unwrap();
        let certified = SshOptions { certificate_path: Some(certificate.clone()), ..fixture.options() };
        works(certified, fixture.target()).await;
        // `ssh` uses the certificate beside the file of the key.
        let file =
            SshOptions { private_key: None, private_key_path: Some(key.path.clone()), ..fixture.options() };
        let error = soon(Connector::new(file).client(fixture.target()).check_status()).await.unwrap_err();
        let (message, path) = (fixture.message(&error), certificate.display());
        assert!(message.contains(&format!("set `certificate_path` to \"{path}\"")), "{message}");
        assert_eq!(message.contains("`RequiredRSASize`"), kind == "rsa", "{message}");
        let home = tempfile::tempdir().unwrap();
        let agent = Agent::start(home.path()).unwrap();
        agent.add(&key).unwrap();
        works(with_agent(&fixture, &agent, None), fixture.target()).await;
        certificates.push(certificate);
    }
    let certificate = certificates.pop().unwrap();

    let other = ClientKey::generate(dir.path(), "other", "ed25519", "").unwrap();
    let mixed = SshOptions {
        certificate_path: Some(certificate),
        private_key: Some(Secret::new(other.private.clone())),
        ..fixture.options()
    };
    let error = soon(Connector::new(mixed).client(fixture.target()).check_status()).await.unwrap_err();
    let message = fixture.message(&error).replace(&other.fingerprint, "SHA256:OTHER");
    assert_message("certificate_of_another_key", message.replace(&dir.path().display().to_string(), "CERTS"));
}
