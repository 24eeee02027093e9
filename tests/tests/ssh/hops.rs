//! Jump chains, and the words for what breaks in them.

use crate::{
    ways::{Journey, Way},
    world::soon,
};
use grit_provider::transport::{Connector, HostPort, Secret, SshOptions, StrategyOptions, Target};
use grit_tests::sshd::Sshd;
use std::time::Duration;

/// The words for a call with changed hops, with what differs from run to run replaced.
async fn words(journey: &Journey, options: SshOptions, target: Target) -> String {
    let error = soon(Connector::new(options).client(target).check_status()).await.unwrap_err();
    let mut words = journey.world.words(&error);
    for (index, (bastion, key)) in journey.bastions.iter().enumerate() {
        let address = bastion.address();
        words = words
            .replace(&address.to_string(), &format!("HOP{index}:PORT"))
            .replace(&format!("[{}]:{}", address.ip(), address.port()), &format!("[HOP{index}]:PORT"))
            .replace(&key.fingerprint, &format!("SHA256:KEY{index}"));
    }
    words
}

fn change(
    mut options: SshOptions,
    hop: usize,
    change: impl FnOnce(&mut grit_provider::transport::JumpOptions),
) -> SshOptions {
    let StrategyOptions::ProxyJump(hops) = &mut options.strategy else { panic!("no hops") };
    change(&mut hops[hop]);
    options
}

#[tokio::test]
async fn jump_hosts_have_or_inherit_user_and_key() {
    let journey = Journey::new(Way::TwoJumps);
    let second = journey.bastions[1].1.private.clone();
    let wrong = change(journey.options(), 1, |hop| hop.private_key = None);
    insta::assert_snapshot!("hop_refuses", words(&journey, wrong.clone(), journey.target()).await);
    // Without a key of its own it gets the block's: here the right one for the hop, and the manager refuses it.
    let inherited = SshOptions { private_key: Some(Secret::new(second)), ..wrong };
    let words = words(&journey, inherited, journey.target()).await;
    assert!(words.contains("HOST:PORT refused to let"), "{words}");
}

#[tokio::test]
async fn unreachable_jump_host_is_an_error() {
    let journey = Journey::new(Way::Jump);
    let nobody = grit_tests::sshd::free_address().unwrap();
    let address = HostPort::new(&nobody.ip().to_string(), nobody.port()).unwrap();
    let options = change(journey.options(), 0, |hop| hop.address = address);
    let words = words(&journey, options, journey.target()).await.replace(&nobody.to_string(), "NOBODY:PORT");
    insta::assert_snapshot!("hop_down", words);
}

#[tokio::test]
async fn jump_host_with_unknown_key_is_an_error() {
    let journey = Journey::new(Way::Jump);
    let mut options = change(journey.options(), 0, |hop| hop.host_key = None);
    options.trust.known_hosts = Some(journey.world.sshd.known_hosts());
    let words = words(&journey, options, journey.target()).await;
    assert!(words.contains("HOP0:PORT (hop 1 of `proxy_jump`) shows the ssh-ed25519 key"), "{words}");
    assert!(words.contains("set `host_key` of hop 1 in `ssh.proxy_jump`"), "{words}");
    assert!(words.contains("[HOP0]:PORT ssh-ed25519 AAAA"), "{words}");
}

/// A hop that was replaced: the words name its own attribute, not that of the manager.
#[tokio::test]
async fn jump_host_with_other_pinned_key_is_an_error() {
    let journey = Journey::new(Way::TwoJumps);
    let options =
        change(journey.options(), 1, |hop| hop.host_key = Some("SHA256:".to_owned() + &"A".repeat(43)));
    let words = words(&journey, options, journey.target()).await;
    assert!(words.contains("Host key has changed") && words.contains("hop 2 of `proxy_jump`"), "{words}");
    assert!(words.contains("set `ssh.proxy_jump[1].host_key` to its new key"), "{words}");
}

/// With one handshake at a time over all hosts, a chain does not wait for itself.
#[tokio::test]
async fn chain_works_with_one_handshake_at_a_time() {
    let journey = Journey::new(Way::TwoJumps);
    let connector = Connector::new(SshOptions { max_handshakes: Some(1), ..journey.options() });
    let clients = [connector.client(journey.target()), connector.client(journey.target())];
    for answer in soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn manager_unreachable_from_jump_host_is_an_error() {
    let journey = Journey::new(Way::Jump);
    let nobody = grit_tests::sshd::free_address().unwrap();
    let address = HostPort::new(&nobody.ip().to_string(), nobody.port()).unwrap();
    let target = Target { address, ..journey.target() };
    let words = words(&journey, journey.options(), target).await.replace(&nobody.to_string(), "NOBODY:PORT");
    insta::assert_snapshot!("hop_does_not_reach", words);
}

#[tokio::test]
async fn manager_name_unknown_to_jump_host_is_an_error() {
    let journey = Journey::new(Way::Jump);
    let target = Target { address: "no-such-host.invalid:22".parse().unwrap(), ..journey.target() };
    let words = words(&journey, journey.options(), target).await;
    insta::assert_snapshot!("hop_does_not_know", crate::faults::resolved_alike(&words));
}

#[tokio::test]
async fn jump_host_forbidding_forwarding_is_an_error() {
    let mut journey = Journey::new(Way::Jump);
    let key = journey.bastions[0].1.clone();
    let strict = Sshd::builder().authorize(&key).config("AllowTcpForwarding no").start().unwrap();
    journey.bastions[0] = (strict, key);
    insta::assert_snapshot!("hop_forbids", words(&journey, journey.options(), journey.target()).await);
}

#[tokio::test]
async fn frozen_jump_host_is_an_error() {
    let journey = Journey::new(Way::Jump);
    let mut options = journey.options();
    options.keepalive_interval = Some(Duration::from_secs(1));
    options.call_timeout = Some(Duration::from_secs(50));
    let client = Connector::new(options).client(journey.target());
    soon(client.check_status()).await.unwrap();
    journey.bastions[0].0.freeze();
    let error = soon(client.check_status()).await.unwrap_err();
    assert!(error.retryable(), "{error:?}");
    journey.bastions[0].0.thaw();
    soon(async {
        while client.check_status().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
