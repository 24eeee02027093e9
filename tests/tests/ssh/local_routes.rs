//! Routes of this machine: a packet that was never sent shows nothing about the host.

use std::process::Command;

use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, Confirmation, HostPort, Reachability},
};
use grit_tests::{
    link::Namespace,
    provider_client::{Connector, SshOptions, Target},
    ssh_server::KeyPair,
};

/// The error of a connection to this address.
fn failed(address: &str) -> ClientError {
    let key = KeyPair::generate().unwrap();
    let options = SshOptions { private_key: Some(key.private.into()), ..SshOptions::default() };
    let target = Target {
        manager: "mgr-1".to_owned(),
        instance_name: "mgr-1".to_owned(),
        instance_id: None,
        address: address.parse::<HostPort>().unwrap(),
        wrapper_address: "unix:///run/w.sock".parse().unwrap(),
        username: Some("deploy".to_owned()),
        private_key: None,
        host_key: Some(key.public),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Connector::new(options).client(target).check_status().await.unwrap_err() })
}

/// A VPN puts such routes in place while it is not connected.
#[test]
fn route_of_this_machine_shows_nothing_about_the_host() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => {
            return grit_testkit::not_covered("routes of this machine", &format!("{error:#}"));
        }
    };
    for (kind, words) in [
        (Some("unreachable"), "No route to host"),
        (Some("prohibit"), "Permission denied"),
        (Some("blackhole"), "Invalid argument"),
        (None, "Network is unreachable"),
    ] {
        let error = namespace.run(|| {
            let route = |verb: &str, kind: &str| {
                let done = Command::new("ip").args(["route", verb, kind, "192.0.2.0/24"]).status().unwrap();
                assert!(done.success(), "{verb} {kind}");
            };
            kind.inspect(|kind| route("add", kind));
            let error = failed("192.0.2.7:22");
            kind.inspect(|kind| route("delete", kind));
            error
        });
        let error = error.unwrap();
        let ClientError::Transport(transport) = &error else { panic!("{error:?}") };
        assert!(matches!(transport.cause, Cause::NotSent(_)), "{kind:?}: {error:?}");
        assert!(error.to_string().contains(words), "{kind:?}: {error}");
        let shown = (error.reachability(), error.confirmation());
        assert_eq!(shown, (Reachability::Unknown, Confirmation::Counts), "{kind:?}: {error}");
    }
    // The same error, some seconds later: no host of the network has this address.
    let error = namespace.run(|| {
        let cable = "ip -o -4 address show | awk '$2 != \"lo\" { print $2 }'";
        let add = format!("ip route add 192.0.2.0/24 dev \"$({cable})\"");
        assert!(Command::new("sh").args(["-c", &add]).status().unwrap().success());
        failed("192.0.2.7:22")
    });
    let error = error.unwrap();
    assert_eq!(
        (error.reachability(), error.confirmation()),
        (Reachability::Absent, Confirmation::Offered),
        "{error}"
    );
}
