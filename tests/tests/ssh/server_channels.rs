//! An SSH server that opens channels to the provider.

use crate::guide::assert_message;
use crate::{
    fixture::{Fixture, soon},
    stub::Wrapper,
};
use grit_provider::testing::{
    client::{ClientError, WrapperClient},
    transport::Cause,
};
use grit_tests::{
    provider_client::{Connector, SshOptions, Target, TrustOptions},
    ssh_server::{ChannelKind, Opens, SshServer},
};
use std::time::Duration;

/// The number of channels that ends a session.
const LIMIT: usize = 8;

fn client(fixture: &Fixture, server: &SshServer) -> WrapperClient {
    let trust = TrustOptions { known_hosts: Some(server.known_hosts()), ..TrustOptions::default() };
    let target = Target { address: server.address().to_string().parse().unwrap(), ..fixture.target() };
    Connector::new(SshOptions { trust, ..fixture.options() }).client(target)
}

#[tokio::test]
async fn channels_of_each_type_are_refused() {
    let fixture = Fixture::new();
    for kind in ChannelKind::ALL {
        let opens = Opens::new(kind, LIMIT - 1);
        let server = SshServer::start_opening(&[&fixture.key.public], &opens).unwrap();
        let client = client(&fixture, &server);
        soon(async {
            while opens.refused() < LIMIT - 1 {
                client.check_status().await.unwrap();
                assert_eq!(opens.accepted(), 0, "{kind:?}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn session_ends_after_a_few_channels() {
    for kind in ChannelKind::ALL {
        let fixture = Fixture::new();
        fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
        let message = failure(&fixture, kind).await;
        assert_message("server_channels_call", message);
    }
    // Before the tunnel is open.
    let fixture = Fixture { wrapper: Wrapper::tcp(), ..Fixture::new() };
    assert_message("server_channels_channel", failure(&fixture, ChannelKind::Session).await);
}

/// Makes a call through a server that opens any number of channels.
async fn failure(fixture: &Fixture, kind: ChannelKind) -> String {
    let opens = Opens::new(kind, usize::MAX);
    let server = SshServer::start_opening(&[&fixture.key.public], &opens).unwrap();
    let error = soon(client(fixture, &server).check_status()).await.unwrap_err();
    let ClientError::Transport(inner) = &error else { panic!("{error:?}") };
    assert!(matches!(inner.cause, Cause::ServerOpensChannels(LIMIT)), "{error:?}");
    assert!(!error.retryable());
    assert_eq!(opens.accepted(), 0, "{kind:?}");
    fixture.message(&error).replace(&server.address().to_string(), "HOST:PORT")
}
