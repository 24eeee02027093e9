//! Jump chains, and the messages of their failures.

use crate::guide::assert_message;
use crate::{
    fixture::soon,
    methods::{Method, Topology},
};
use grit_provider::testing::transport::{HostPort, Secret};
use grit_tests::provider_client::{Connector, SshOptions, StrategyOptions, Target};
use grit_tests::sshd::Sshd;
use std::time::Duration;

/// The message of a call with changed jump hosts, with variable parts replaced.
async fn message(topology: &Topology, options: SshOptions, target: Target) -> String {
    let error = soon(Connector::new(options).client(target).check_status()).await.unwrap_err();
    let mut message = topology.fixture.message(&error);
    for (index, (bastion, key)) in topology.bastions.iter().enumerate() {
        let address = bastion.address();
        message = message
            .replace(&address.to_string(), &format!("HOP{index}:PORT"))
            .replace(&format!("[{}]:{}", address.ip(), address.port()), &format!("[HOP{index}]:PORT"))
            .replace(&key.fingerprint, &format!("SHA256:KEY{index}"));
    }
    message
}

fn change(
    mut options: SshOptions,
    hop: usize,
    change: impl FnOnce(&mut grit_tests::provider_client::JumpOptions),
) -> SshOptions {
    let StrategyOptions::ProxyJump(hops) = &mut options.strategy else { panic!("no hops") };
    change(&mut hops[hop]);
    options
}

#[tokio::test]
async fn jump_hosts_have_or_inherit_user_and_key() {
    let topology = Topology::new(Method::TwoJumps);
    let second = topology.bastions[1].1.private.clone();
    let wrong = change(topology.options(), 1, |hop| hop.private_key = None);
    assert_message("jump_host_refuses_login", message(&topology, wrong.clone(), topology.target()).await);
    // Without a separate key it uses the provider block's, which is right for the jump host here, and the manager rejects it.
    let inherited = SshOptions { private_key: Some(Secret::new(second)), ..wrong };
    let message = message(&topology, inherited, topology.target()).await;
    assert!(message.contains("HOST:PORT rejected the login"), "{message}");
}

#[tokio::test]
async fn unreachable_jump_host_is_an_error() {
    let topology = Topology::new(Method::Jump);
    let nobody = grit_tests::sshd::free_address().unwrap();
    let address = nobody.to_string().parse::<HostPort>().unwrap();
    let options = change(topology.options(), 0, |hop| hop.address = address);
    let message =
        message(&topology, options, topology.target()).await.replace(&nobody.to_string(), "NOBODY:PORT");
    assert_message("jump_host_down", message);
}

#[tokio::test]
async fn jump_host_with_unknown_key_is_an_error() {
    let topology = Topology::new(Method::Jump);
    let mut options = change(topology.options(), 0, |hop| hop.host_key = None);
    options.trust.known_hosts = Some(topology.fixture.sshd.known_hosts());
    let message = message(&topology, options, topology.target()).await;
    assert!(
        message.contains("HOP0:PORT (jump host 1 in `ssh.proxy_jump`) presented the ssh-ed25519 key"),
        "{message}"
    );
    assert!(message.contains("set `host_key` of jump host 1 in `ssh.proxy_jump`"), "{message}");
    assert!(message.contains("[HOP0]:PORT ssh-ed25519 AAAA"), "{message}");
}

/// A replaced jump host: the message names its attribute, not that of the manager.
#[tokio::test]
async fn jump_host_with_other_pinned_key_is_an_error() {
    let topology = Topology::new(Method::TwoJumps);
    let options =
        change(topology.options(), 1, |hop| hop.host_key = Some("SHA256:".to_owned() + &"A".repeat(43)));
    let message = message(&topology, options, topology.target()).await;
    assert!(
        message.contains("Host key has changed") && message.contains("jump host 2 in `ssh.proxy_jump`"),
        "{message}"
    );
    assert!(message.contains("set `ssh.proxy_jump[1].host_key` to the new key"), "{message}");
}

/// With one handshake at a time over all hosts, a chain does not deadlock.
#[tokio::test]
async fn chain_works_with_one_handshake_at_a_time() {
    let topology = Topology::new(Method::TwoJumps);
    let connector = Connector::new(SshOptions { max_handshakes: Some(1), ..topology.options() });
    let clients = [connector.client(topology.target()), connector.client(topology.target())];
    for answer in soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn manager_unreachable_from_jump_host_is_an_error() {
    let topology = Topology::new(Method::Jump);
    let nobody = grit_tests::sshd::free_address().unwrap();
    let address = nobody.to_string().parse::<HostPort>().unwrap();
    let target = Target { address, ..topology.target() };
    let message =
        message(&topology, topology.options(), target).await.replace(&nobody.to_string(), "NOBODY:PORT");
    assert_message("jump_host_unreachable_target", message);
}

/// A host that is treated as terminated loses its jobs. What a jump host reports about it depends on the program of the jump host.
#[tokio::test]
async fn manager_behind_jump_host_is_never_absent() {
    let topology = Topology::new(Method::Jump);
    let connector = Connector::new(topology.options());
    for address in
        [grit_tests::sshd::free_address().unwrap().to_string(), "no-such-host.invalid:22".to_owned()]
    {
        let target = Target { address: address.parse().unwrap(), ..topology.target() };
        let error = soon(connector.client(target).check_status()).await.unwrap_err();
        assert!(!error.is_absent(), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn manager_name_unknown_to_jump_host_is_an_error() {
    let topology = Topology::new(Method::Jump);
    let target = Target { address: "no-such-host.invalid:22".parse().unwrap(), ..topology.target() };
    let message = message(&topology, topology.options(), target).await;
    assert_message("jump_host_unknown_target", crate::faults::resolved_alike(&message));
}

#[tokio::test]
async fn jump_host_forbidding_forwarding_is_an_error() {
    let mut topology = Topology::new(Method::Jump);
    let key = topology.bastions[0].1.clone();
    let strict = Sshd::builder().authorize(&key).config("AllowTcpForwarding no").start().unwrap();
    topology.bastions[0] = (strict, key);
    assert_message(
        "jump_host_forbids_forwarding",
        message(&topology, topology.options(), topology.target()).await,
    );
}

#[tokio::test]
async fn frozen_jump_host_is_an_error() {
    let topology = Topology::new(Method::Jump);
    let mut options = topology.options();
    options.keepalive_interval = Some(Duration::from_secs(1));
    options.call_timeout = Some(Duration::from_secs(50));
    let client = Connector::new(options).client(topology.target());
    soon(client.check_status()).await.unwrap();
    topology.bastions[0].0.freeze();
    let error = soon(client.check_status()).await.unwrap_err();
    assert!(error.retryable(), "{error:?}");
    topology.bastions[0].0.thaw();
    soon(async {
        while client.check_status().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// The kernel of a jump host delays its acknowledgements by 40 ms, except when it has data to send: see `Handler::prompt_acknowledgement`.
#[tokio::test]
async fn only_relayed_session_prompts_acknowledgements() {
    for (method, prompts) in [(Method::Direct, false), (Method::Jump, true), (Method::ProxyCommand, true)] {
        let topology = Topology::with(method, |builder| builder.config("LogLevel DEBUG1"));
        soon(topology.connector().client(topology.target()).check_status()).await.unwrap();
        let log = topology.fixture.sshd.log();
        let request = "rtype keepalive@openssh.com want_reply 0";
        assert_eq!(log.contains(request), prompts, "{method:?}: {log}");
        assert!(
            topology.bastions.iter().all(|(bastion, _)| !bastion.log().contains("keepalive")),
            "{method:?}"
        );
    }
}
