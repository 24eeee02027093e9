//! SSH sessions are shared, bounded, and ended.

use crate::{
    fixture::{Fixture, soon},
    methods::{Method, Topology},
    stub::Wrapper,
};
use grit_tests::provider_client::{Connector, SshOptions, Target};
use std::time::Duration;

fn logins(fixture: &Fixture) -> usize {
    fixture.sshd.log().matches("Accepted publickey").count()
}

/// 200 handshakes take seconds of CPU time, and longer beside other tests.
async fn in_the_end<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), future).await.expect("not within ten minutes")
}

#[tokio::test]
async fn many_managers_share_one_sshd_with_default_limits() {
    let fixture = Fixture::new();
    // Eight logins at a time: on a busy machine the last ones wait for a long time, which counts.
    let patient = SshOptions { connect_timeout: Some(Duration::from_secs(120)), ..fixture.options() };
    let connector = Connector::new(patient);
    // Each entry has a different host key text, so that no session is shared.
    let clients: Vec<_> = (0..200)
        .map(|index| {
            let mut target = fixture.target();
            target.host_key = Some(format!("{} number-{index}", fixture.sshd.host_keys()[0]));
            connector.client(target)
        })
        .collect();
    let answers =
        in_the_end(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await;
    for answer in answers {
        answer.unwrap();
    }
    assert_eq!(fixture.sshd.log().matches("Accepted publickey").count(), 200);
    // Clients of the same manager share a session.
    let clients: Vec<_> = (0..200).map(|_| connector.client(fixture.target())).collect();
    let answers =
        in_the_end(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await;
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(fixture.sshd.log().matches("Accepted publickey").count(), 201);
}

/// A busy server rejects connections at random; they are retried without an error.
#[tokio::test]
async fn rejected_connections_are_retried() {
    let fixture = Fixture::with(|builder| builder.config("MaxStartups 1:100:1"));
    let other = tokio::net::TcpStream::connect(fixture.sshd.address()).await.unwrap();
    let client = fixture.connector().client(fixture.target());
    let asked = tokio::spawn(async move { client.check_status().await });
    soon(async {
        while !fixture.sshd.log().contains("MaxStartups") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(other);
    soon(asked).await.unwrap().unwrap();
}

#[tokio::test]
async fn session_disconnects_with_last_client() {
    let fixture = Fixture::new();
    let client = fixture.connector().client(fixture.target());
    soon(client.check_status()).await.unwrap();
    drop(client);
    soon(async {
        while !fixture.sshd.log().contains("Received disconnect from") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn one_bastion_login_serves_all_managers() {
    let topology = Topology::new(Method::Jump);
    let connector = topology.connector();
    let clients: Vec<_> = (0..20)
        .map(|index| {
            let host_key = format!("{} number-{index}", topology.fixture.sshd.host_keys()[0]);
            connector.client(Target { host_key: Some(host_key), ..topology.target() })
        })
        .collect();
    for answer in soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await {
        answer.unwrap();
    }
    assert_eq!(topology.bastions[0].0.log().matches("Accepted publickey").count(), 1);
    assert_eq!(topology.fixture.sshd.log().matches("Accepted publickey").count(), 20);
}

/// sshd opens a socket with the groups that the user had at login. On a host that boots, the user is added to the group of the socket later.
#[tokio::test]
async fn refused_socket_is_retried_with_a_new_login() {
    let mut fixture = Fixture::new();
    let working = Wrapper::unix(&fixture.dir.path().join("working.sock"));
    let connector = fixture.connector();
    let other =
        connector.client(Target { wrapper_address: working.address.parse().unwrap(), ..fixture.target() });
    soon(other.check_status()).await.unwrap();
    fixture.wrapper.stop().await;
    fixture.wrapper.remove_socket();
    let client = connector.client(fixture.target());
    soon(async {
        while logins(&fixture) < 3 {
            assert!(soon(client.check_status()).await.unwrap_err().retryable());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    // The tunnels of the earlier sessions stay open.
    soon(other.check_status()).await.unwrap();
    assert_eq!(logins(&fixture), 3);
    fixture.wrapper.start();
    soon(client.check_status()).await.unwrap();
}

/// Fifty waiters share one failed attempt: fifty rejections would block the client's address.
#[tokio::test]
async fn refused_login_fails_all_waiters_immediately() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.username = Some("nobody-here".to_owned());
    let connector = Connector::new(options);
    let clients: Vec<_> = (0..50).map(|_| connector.client(fixture.target())).collect();
    let answers = soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await;
    assert!(answers.into_iter().all(|answer| answer.is_err_and(|error| !error.retryable())));
    let refused = fixture.sshd.log().matches("Invalid user nobody-here").count();
    assert!((1..=2).contains(&refused), "{}", fixture.sshd.log());
}
