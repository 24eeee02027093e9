//! Recovery: a frozen server does not block a call beyond its limits, and connections are restored.

use crate::{
    fixture::{Fixture, soon},
    methods::{Method, Topology, for_each_method},
};
use grit_provider::testing::{
    client::{ClientError, DrainRequest, Wrapper as _, WrapperClient},
    transport::{Cause, Peer, Phase},
};
use grit_tests::link::Relay;
use grit_tests::provider_client::{Connector, SshOptions, StrategyOptions};
use std::time::{Duration, Instant};

#[tokio::test]
async fn channel_open_on_frozen_session_times_out() {
    let fixture = Fixture::new();
    let options = SshOptions { connect_timeout: Some(Duration::from_secs(18)), ..fixture.options() };
    let connector = Connector::new(options);
    let first = connector.client(fixture.target());
    soon(first.check_status()).await.unwrap();
    fixture.sshd.freeze();
    // Another client of the same manager requests a channel of the same session.
    let error = soon(connector.client(fixture.target()).check_status()).await.unwrap_err();
    let ClientError::Transport(error) = error else { panic!("{error:?}") };
    assert!(matches!(error.cause, Cause::TimedOut { .. }) && error.phase == Phase::Channel, "{error:?}");
    assert!(error.retryable());
    fixture.sshd.thaw();
    soon(connector.client(fixture.target()).check_status()).await.unwrap();
}

/// russh blocks a writer forever if its session ends, so a large call would never return.
#[tokio::test]
async fn blocked_write_fails_when_session_ends() {
    for method in [Method::Direct, Method::Jump] {
        let topology = Topology::new(method);
        let mut options = topology.options();
        options.keepalive_interval = Some(Duration::from_secs(1));
        options.call_timeout = Some(Duration::from_secs(50));
        let client = Connector::new(options).client(topology.target());
        soon(client.check_status()).await.unwrap();
        topology.fixture.sshd.freeze();
        let request = DrainRequest { reason: "x".repeat(16 << 20), ..DrainRequest::default() };
        let start = Instant::now();
        let error = soon(client.drain(&request)).await.unwrap_err();
        let ClientError::Transport(error) = error else { panic!("{error:?}") };
        assert!(matches!(error.cause, Cause::NoResponse { from: Peer::Server, .. }), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
        topology.fixture.sshd.thaw();
    }
}

#[tokio::test]
async fn connection_recovers_after_server_restart() {
    let mut fixture = Fixture::new();
    let client = fixture.connector().client(fixture.target());
    soon(client.check_status()).await.unwrap();
    fixture.sshd.kill();
    for _ in 0..3 {
        let error = soon(client.check_status()).await.unwrap_err();
        assert!(error.retryable(), "{error:?}");
    }
    fixture.sshd.restart().unwrap();
    soon(async {
        while let Err(error) = client.check_status().await {
            assert!(error.retryable(), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn hundred_managers_behind_bastion_fit_default_limits() {
    let topology = Topology::new(Method::Jump);
    let connector = topology.connector();
    let clients: Vec<_> = (0..100).map(|_| connector.client(topology.target())).collect();
    for answer in soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await {
        answer.unwrap();
    }
}

for_each_method!(silent_link_is_detected_and_recovered);

/// A network without data and without closed connections, which is restored later: every method detects it within its limits, and reconnects.
async fn silent_link_is_detected_and_recovered(method: Method) {
    let topology = Topology::new(method);
    // The first server of the path is behind the link.
    let first = topology.bastions.first().map_or(&topology.fixture.sshd, |(sshd, _)| sshd);
    let to = first.address();
    let relay = tokio::task::spawn_blocking(move || Relay::start(to)).await.unwrap().unwrap();
    let (here, there) = (relay.address(), to);
    let moved = |text: &str| {
        let known = text.replace(
            &format!("[{}]:{}", there.ip(), there.port()),
            &format!("[{}]:{}", here.ip(), here.port()),
        );
        known
            .replace(&there.to_string(), &here.to_string())
            .replace(&format!("@{}", there.ip()), &format!("@{}", here.ip()))
    };
    let mut options = SshOptions {
        keepalive_interval: Some(Duration::from_secs(1)),
        connect_timeout: Some(Duration::from_secs(10)),
        call_timeout: Some(Duration::from_secs(4)),
        ..topology.options()
    };
    options.trust.known_hosts = options.trust.known_hosts.as_deref().map(moved);
    let mut target = topology.target();
    match &mut options.strategy {
        StrategyOptions::ProxyJump(hops) => hops[0].address = here.to_string().parse().unwrap(),
        StrategyOptions::ProxyCommand(arguments) | StrategyOptions::SshCommand(arguments)
            if arguments[0] == "ssh" =>
        {
            let known = topology.fixture.dir.path().join("ssh_known_hosts");
            std::fs::write(&known, moved(&std::fs::read_to_string(&known).unwrap())).unwrap();
            let port = arguments.iter().position(|it| it == "-p").unwrap() + 1;
            arguments[port] = here.port().to_string();
            let last = arguments.last_mut().unwrap();
            *last = moved(last);
        }
        _ => target.address = here.to_string().parse().unwrap(),
    }
    let connector = Connector::new(options);
    let client = connector.client(target);
    answers(&client).await;
    relay.cut();
    for _ in 0..3 {
        let start = Instant::now();
        let error = soon(client.check_status()).await.unwrap_err();
        assert!(error.retryable(), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
    relay.restore();
    answers(&client).await;
}

/// Repeats a call until it has an answer: on a busy machine an attempt can exceed the limit of a phase.
async fn answers(client: &WrapperClient) {
    soon(async {
        while let Err(error) = client.check_status().await {
            assert!(error.retryable(), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
