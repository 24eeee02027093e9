//! A server that is stopped in a phase ends that phase at its limit, not at the limit of the whole, and never later.

use crate::{
    fake::{Fake, Then},
    world::{World, soon},
};
use grit_provider::{
    client::ClientError,
    transport::{Cause, Connector, HostPort, Phase, SshOptions, Target},
};
use grit_tests::sshd::Sshd;
use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

/// The whole; a third of it is for TCP and for a channel, a half for the handshake and for the login.
const CONNECT: Duration = Duration::from_secs(9);
const THIRD: Duration = Duration::from_secs(3);
const HALF: Duration = Duration::from_millis(4500);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(4);

fn options(world: &World) -> SshOptions {
    SshOptions { connect_timeout: Some(CONNECT), ..world.options() }
}

/// Calls once, and demands that the phase was given up at its limit.
async fn given_up(connector: &Connector, target: Target, phase: Phase, limit: Duration) -> ClientError {
    let client = connector.client(target);
    let start = Instant::now();
    let error = soon(client.check_status()).await.unwrap_err();
    let took = start.elapsed();
    assert!(error.retryable(), "{error:?}");
    let ClientError::Transport(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.phase, phase, "{error:?}");
    assert!(matches!(inner.cause, Cause::TimedOut { limit: was } if was == limit), "{error:?}");
    assert!(took >= limit && took < limit + SLACK, "{took:?} for a limit of {limit:?}");
    error
}

/// A stopped listener whose queue of connections is full: the kernel answers no further SYN.
#[tokio::test]
async fn tcp() {
    let world = World::new();
    world.sshd.freeze();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&world.sshd.address(), Duration::from_millis(500)) {
        queue.push(stream);
        assert!(queue.len() < 10_000, "the queue of the listener has no end");
    }
    let error = given_up(&Connector::new(options(&world)), world.target(), Phase::Tcp, THIRD).await;
    insta::assert_snapshot!("tcp_not_answered", world.words(&error));
    drop(queue);
    world.sshd.thaw();
}

/// The kernel accepts the connection, and no banner comes.
#[tokio::test]
async fn banner() {
    let world = World::new();
    world.sshd.freeze();
    given_up(&Connector::new(options(&world)), world.target(), Phase::Handshake, HALF).await;
    world.sshd.thaw();
    soon(world.connector().client(world.target()).check_status()).await.unwrap();
}

/// A banner, and then nothing: as sshd that was stopped between the two.
#[tokio::test]
async fn key_exchange() {
    let world = World::new();
    let fake = Fake::new(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Then::Hang).await;
    let address = HostPort::new(&fake.address.ip().to_string(), fake.address.port()).unwrap();
    let target = Target { address, ..world.target() };
    given_up(&Connector::new(options(&world)), target, Phase::Handshake, HALF).await;
}

/// Stopped while it asks a command of its own whether the key may in.
#[tokio::test]
async fn authentication() {
    let world = World::with(|builder| {
        builder
            .config("AuthorizedKeysCommand /usr/bin/sleep 300")
            .config(format!("AuthorizedKeysCommandUser {}", grit_tests::sshd::username()))
            .config("AuthorizedKeysFile none")
    });
    let connector = Connector::new(options(&world));
    tokio::join!(given_up(&connector, world.target(), Phase::Auth, HALF), async {
        while world.sshd.processes().len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.sshd.freeze();
    });
    world.sshd.thaw();
    world.sshd.kill_sessions();
}

#[tokio::test]
async fn channel() {
    let world = World::new();
    let connector = Connector::new(options(&world));
    // It keeps the session that the next one shares.
    let first = connector.client(world.target());
    soon(first.check_status()).await.unwrap();
    world.sshd.freeze();
    let error = given_up(&connector, world.target(), Phase::Channel, THIRD).await;
    insta::assert_snapshot!("channel_not_answered", world.words(&error));
    world.sshd.thaw();
    soon(first.check_status()).await.unwrap();
}

#[tokio::test]
async fn call() {
    let limit = Duration::from_secs(2);
    let world = World::new();
    let client =
        Connector::new(SshOptions { call_timeout: Some(limit), ..options(&world) }).client(world.target());
    soon(client.check_status()).await.unwrap();
    world.sshd.freeze();
    let start = Instant::now();
    let error = soon(client.check_status()).await.unwrap_err();
    let took = start.elapsed();
    assert!(matches!(error, ClientError::NoAnswer { limit: was, .. } if was == limit), "{error:?}");
    assert!(took >= limit && took < limit + SLACK, "{took:?}");
    world.sshd.thaw();
    soon(client.check_status()).await.unwrap();
}

/// A bastion that stops carries nobody on, and its own phase is the one that ends.
#[tokio::test]
async fn the_second_handshake_of_a_jump() {
    use crate::ways::{Journey, Way};
    let journey = Journey::new(Way::Jump);
    let connector = Connector::new(SshOptions { connect_timeout: Some(CONNECT), ..journey.options() });
    journey.world.sshd.freeze();
    given_up(&connector, journey.target(), Phase::Handshake, HALF).await;
    journey.world.sshd.thaw();
    let bastion: &Sshd = &journey.bastions[0].0;
    bastion.freeze();
    let again = Connector::new(SshOptions { connect_timeout: Some(CONNECT), ..journey.options() });
    given_up(&again, journey.target(), Phase::Handshake, HALF).await;
    bastion.thaw();
}
