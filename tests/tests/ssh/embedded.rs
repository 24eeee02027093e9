//! Requests of a server that OpenSSH's server does not send, from the embedded one.

use crate::{fixture::soon, stub::Wrapper};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, HostPort, Secret},
};
use grit_tests::provider_client::{Connector, SshOptions, Target};
use grit_tests::ssh_server::{KeyPair, SshServer};

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
