//! A server that is stopped during a phase ends that phase at its limit, not at the limit of the whole connection.

use crate::guide::assert_message;
use crate::{
    fixture::{Fixture, soon},
    methods::{Method, Topology, for_each_method},
    scripted_server::{ScriptedServer, Then},
};
use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, HostPort, Peer, Phase},
};
use grit_tests::provider_client::{Connector, SshOptions, StrategyOptions, Target};
use grit_tests::sshd::{Builder, Sshd};
use std::{
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};
use tokio::net::TcpListener;

/// The whole limit: a third of it is for TCP and for a channel, a half for the handshake and for the login. The earlier phases
/// must also keep their limits on a busy machine.
const CONNECT: Duration = Duration::from_secs(18);
const THIRD: Duration = Duration::from_secs(6);
const HALF: Duration = Duration::from_secs(9);
/// The time for the earlier phases, measured by a timer with the same delays, see [`in_time`].
const SLACK: Duration = CONNECT;

fn options(fixture: &Fixture) -> SshOptions {
    SshOptions { connect_timeout: Some(CONNECT), ..fixture.options() }
}

/// Waits for a call that must time out: not before its limit, and before a sleep of this program that takes the limit and
/// [`SLACK`] together. On a busy machine both are late. The error has the limit that ended the call.
async fn in_time<T>(call: impl Future<Output = T>, limit: Duration) -> T {
    let start = Instant::now();
    let done = tokio::select! {
        biased;
        done = call => done,
        () = tokio::time::sleep(limit + SLACK) => panic!("not given up {SLACK:?} after its limit of {limit:?}"),
    };
    let took = start.elapsed();
    assert!(took >= limit, "{took:?} for a limit of {limit:?}");
    done
}

/// Calls once, and asserts that the phase timed out at its limit.
async fn given_up(connector: &Connector, target: Target, phase: Phase, limit: Duration) -> ClientError {
    let client = connector.client(target);
    let error = in_time(client.check_status(), limit).await.unwrap_err();
    assert!(error.retryable(), "{error:?}");
    let ClientError::Transport(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.phase, phase, "{error:?}");
    assert!(matches!(inner.cause, Cause::TimedOut { limit: was } if was == limit), "{error:?}");
    error
}

/// Stops a server and fills its accept queue: the kernel does not respond to further SYNs.
pub(crate) fn silence(sshd: &Sshd) -> Vec<TcpStream> {
    sshd.freeze();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&sshd.address(), Duration::from_millis(500)) {
        queue.push(stream);
        assert!(queue.len() < 10_000, "the queue of the listener has no end");
    }
    queue
}

#[tokio::test]
async fn tcp_connect_times_out() {
    let fixture = Fixture::new();
    let queue = silence(&fixture.sshd);
    let error = given_up(&Connector::new(options(&fixture)), fixture.target(), Phase::Tcp, THIRD).await;
    assert_message("tcp_timeout", fixture.message(&error));
    drop(queue);
    fixture.sshd.thaw();
}

/// A banner, and then no data, as from an sshd that was stopped in between.
#[tokio::test]
async fn key_exchange_times_out() {
    let fixture = Fixture::new();
    let fake = ScriptedServer::new(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Then::Hang).await;
    let address = fake.address.to_string().parse::<HostPort>().unwrap();
    let target = Target { address, ..fixture.target() };
    given_up(&Connector::new(options(&fixture)), target, Phase::Handshake, HALF).await;
}

/// Checks each key with a command that never ends.
fn thinking(builder: Builder) -> Builder {
    builder
        .config("AuthorizedKeysCommand /usr/bin/sleep 300")
        .config(format!("AuthorizedKeysCommandUser {}", grit_tests::sshd::username()))
        .config("AuthorizedKeysFile none")
}

async fn until_it_thinks(sshd: &Sshd) {
    while sshd.processes().len() < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn channel_open_times_out() {
    let fixture = Fixture::new();
    let connector = Connector::new(options(&fixture));
    // It holds the session that the next one shares.
    let first = connector.client(fixture.target());
    soon(first.check_status()).await.unwrap();
    fixture.sshd.freeze();
    let error = given_up(&connector, fixture.target(), Phase::Channel, THIRD).await;
    assert_message("channel_timeout", fixture.message(&error));
    fixture.sshd.thaw();
    soon(first.check_status()).await.unwrap();
}

/// The limit of the call, if a phase has no separate one.
const CALL: Duration = Duration::from_secs(5);

for_each_method!(
    in three ways:
    handshake_times_out,
    authentication_times_out,
    channel_of_open_session_times_out,
    call_times_out,
);

/// A connector with these limits, and the phase and limit that time out if the server stops in a phase. An `ssh_command` is one phase for
/// the provider, with the time of a whole connection.
fn limited(topology: &Topology, phase: Phase, limit: Duration) -> (Connector, Phase, Duration) {
    let connect = if topology.method.is_over_ssh() { CONNECT } else { THIRD };
    let options =
        SshOptions { connect_timeout: Some(connect), call_timeout: Some(CALL), ..topology.options() };
    let (phase, limit) =
        if topology.method.is_over_ssh() { (phase, limit) } else { (Phase::Command, connect) };
    (Connector::new(options), phase, limit)
}

/// The server of the manager, and each jump host.
async fn handshake_times_out(topology: Topology) {
    let bastions = topology.bastions.iter().map(|(sshd, _)| sshd);
    for sshd in std::iter::once(&topology.fixture.sshd).chain(bastions) {
        let (connector, phase, limit) = limited(&topology, Phase::Handshake, HALF);
        sshd.freeze();
        given_up(&connector, topology.target(), phase, limit).await;
        sshd.thaw();
    }
}

/// Stopped while it checks the key with a command.
async fn authentication_times_out(topology: Topology) {
    let topology = Topology::with(topology.method, thinking);
    let (connector, phase, limit) = limited(&topology, Phase::Auth, HALF);
    let sshd = &topology.fixture.sshd;
    let freeze = async {
        until_it_thinks(sshd).await;
        sshd.freeze();
        std::future::pending::<()>().await;
    };
    // If the call times out earlier, its assertion reports the reason.
    tokio::select! {
        biased;
        _error = given_up(&connector, topology.target(), phase, limit) => {}
        () = freeze => {}
    }
    sshd.thaw();
    sshd.kill_sessions();
}

/// On an open session.
async fn channel_of_open_session_times_out(topology: Topology) {
    let (connector, phase, limit) = limited(&topology, Phase::Channel, THIRD);
    let first = connector.client(topology.target());
    soon(first.check_status()).await.unwrap();
    topology.fixture.sshd.freeze();
    given_up(&connector, topology.target(), phase, limit).await;
    topology.fixture.sshd.thaw();
    soon(first.check_status()).await.unwrap();
}

async fn call_times_out(topology: Topology) {
    let (connector, ..) = limited(&topology, Phase::Call, CALL);
    let client = connector.client(topology.target());
    soon(client.check_status()).await.unwrap();
    topology.fixture.sshd.freeze();
    let error = in_time(client.check_status(), CALL).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { limit: was, .. } if was == CALL), "{error:?}");
    topology.fixture.sshd.thaw();
    soon(client.check_status()).await.unwrap();
}

/// Forwards each connection to a server, after a pause: a server that is slow for a part of the time.
async fn delayed(server: SocketAddr, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

/// Each hop keeps the limits of its phases. Together with the target, whose handshake could take [`HALF`], they exceed the whole limit.
#[tokio::test]
async fn slow_jump_hosts_share_one_connect_timeout() {
    const PAUSE: Duration = Duration::from_secs(6);
    let topology = Topology::new(Method::TwoJumps);
    let mut options = SshOptions { connect_timeout: Some(CONNECT), ..topology.options() };
    let StrategyOptions::ProxyJump(hops) = &mut options.strategy else { panic!("no jump hosts") };
    for (hop, (bastion, _)) in hops.iter_mut().zip(&topology.bastions) {
        hop.address = delayed(bastion.address(), PAUSE).await.to_string().parse().unwrap();
    }
    let silent = ScriptedServer::new(b"", Then::Hang).await;
    let target = Target { address: silent.address.to_string().parse().unwrap(), ..topology.target() };

    let client = Connector::new(options).client(target);
    let error = in_time(client.check_status(), CONNECT).await.unwrap_err();
    let ClientError::Transport(error) = error else { panic!("{error:?}") };
    assert_eq!((error.phase, error.route.hop), (Phase::Handshake, None), "{error:?}");
    // The time that the jump hosts left. With a deadline of its own, the target would have 9 s.
    assert!(matches!(error.cause, Cause::TimedOut { limit } if limit <= CONNECT - 2 * PAUSE), "{error:?}");
}

/// russh sends no keepalive messages before the login is complete, so the session ends by its limit for inactivity.
#[tokio::test]
async fn silence_during_login_ends_at_keepalive_limits() {
    let fixture = Fixture::with(thinking);
    // The login could take 30 s.
    let options = SshOptions {
        connect_timeout: Some(Duration::from_secs(60)),
        keepalive_interval: Some(Duration::from_secs(1)),
        ..fixture.options()
    };
    let client = Connector::new(options).client(fixture.target());
    let freeze = async {
        until_it_thinks(&fixture.sshd).await;
        fixture.sshd.freeze();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        biased;
        answer = soon(client.check_status()) => answer.unwrap_err(),
        () = freeze => unreachable!("it never ends"),
    };
    fixture.sshd.thaw();
    fixture.sshd.kill_sessions();
    let ClientError::Transport(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.phase, Phase::Auth, "{error:?}");
    // Three intervals, one more, and five seconds.
    let limit = Duration::from_secs(9);
    assert!(
        matches!(inner.cause, Cause::NoResponse { from: Peer::Server, limit: was } if was == limit),
        "{error:?}"
    );
    assert!(error.retryable(), "{error:?}");
    assert!(
        fixture.message(&error).contains("no data from HOST:PORT for 9s."),
        "{}",
        fixture.message(&error)
    );
}
