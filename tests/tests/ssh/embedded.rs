//! The embedded server works with the provider's client and with OpenSSH's.

use crate::{fixture::soon, stub::Wrapper};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, HostPort, Secret},
};
use grit_tests::provider_client::{Connector, SshOptions, Target};
use grit_tests::ssh_server::{KeyPair, SshServer};
use std::{
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    process::{Command, Stdio},
};

fn target(server: &SshServer, wrapper: &str) -> Target {
    let address = server.address();
    Target {
        manager: "mgr-1".to_owned(),
        instance_name: "mgr-1".to_owned(),
        instance_id: None,
        address: address.to_string().parse::<HostPort>().unwrap(),
        wrapper_address: wrapper.parse().unwrap(),
        username: Some("anybody".to_owned()),
        private_key: None,
        host_key: Some(server.host_key().to_owned()),
    }
}

fn connector(key: &KeyPair) -> Connector {
    Connector::new(SshOptions {
        private_key: Some(Secret::new(key.private.clone())),
        ..SshOptions::default()
    })
}

#[tokio::test]
async fn embedded_server_forwards_to_sockets_and_ports() {
    let dir = tempfile::tempdir().unwrap();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let server = SshServer::start(&[&key.public]).unwrap();
    for wrapper in [Wrapper::unix(&dir.path().join("w.sock")), Wrapper::tcp()] {
        soon(connector(&key).client(target(&server, &wrapper.address)).check_status()).await.unwrap();
    }
    let missing = target(&server, "unix:///nonexistent/socket");
    let error = soon(connector(&key).client(missing).check_status()).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport(it) if matches!(it.cause, Cause::ChannelRefused { .. })));
    let error =
        soon(connector(&other).client(target(&server, "tcp://h:1")).check_status()).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport(it) if matches!(it.cause, Cause::AuthRefused { .. })));
}

/// PAM can send a request without a prompt, only to check the account: `ssh` answers it.
#[tokio::test]
async fn keyboard_interactive_without_prompts_is_answered() {
    let key = KeyPair::generate().unwrap();
    let wrapper = Wrapper::tcp();
    let login = async |prompts: &[&'static str]| {
        let server = SshServer::start_asking(&[&key.public], prompts).unwrap();
        soon(connector(&key).client(target(&server, &wrapper.address)).check_status()).await
    };
    login(&[]).await.unwrap();
    let error = login(&["Verification code: "]).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Transport(it) if matches!(it.cause, Cause::MoreFactors { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn openssh_client_uses_embedded_server() {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let server = SshServer::start(&[&key.public]).unwrap();
    let identity = dir.path().join("key");
    let mut file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(&identity).unwrap();
    file.write_all(key.private.as_bytes()).unwrap();
    let known = dir.path().join("known_hosts");
    std::fs::write(&known, server.known_hosts()).unwrap();
    let echo = crate::scripted_server::ScriptedServer::new(
        b"hello from behind\n",
        crate::scripted_server::Then::Close,
    )
    .await;
    let command = || {
        Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i"])
            .arg(&identity)
            .args(["-o", &format!("UserKnownHostsFile={}", known.display()), "-W", &echo.address.to_string()])
            .args(["-p", &server.address().port().to_string(), "anybody@127.0.0.1"])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = tokio::task::block_in_place(command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello from behind\n", "{stderr}");
}
