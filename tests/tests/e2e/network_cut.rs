//! A network failure during a drain: the drain continues on the host, the client waits and reconnects, and no job is lost.
//!
//! A ten-minute outage is tested in `fleet::drain` with a paused clock. This test has the real Terraform and sshd, and takes seconds.

use std::{net::SocketAddr, path::PathBuf};

use grit_tests::{
    lab::{Lab, cloud::Instance},
    link::{Namespace, Relay},
    poll,
    rollout::{PATIENCE, is_signal},
    sshd::{self, Sshd},
    terraform::Workspace,
};
use serde_json::json;

/// A drain of one manager at this address, and the file of the provider's log.
fn drain(lab: &Lab, instance: &Instance, address: SocketAddr, host_key: &str) -> (Workspace, PathBuf) {
    let mut workspace = Workspace::new(&["grit"]).unwrap();
    let log = workspace.tmp().join("provider.log");
    workspace.set_env("TF_LOG_PROVIDER", "DEBUG");
    workspace.set_env("TF_LOG_PATH", &log);
    let manager =
        Instance { address: address.to_string(), host_key: host_key.to_owned(), ..instance.clone() }
            .runner_manager();
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": {
            "private_key_path": lab.client_key().path,
            // A session ends after three seconds without data; a connect takes at most six.
            "keepalive_interval": "1s",
            "connect_timeout": "6s",
        } } },
        "resource": { "grit_runner_drain": { "m1": {
            "instance_id": instance.id,
            "runner_manager": manager,
            // Neither applies after the shutdown request.
            "retry": { "attempts": 2 },
            "on_unreachable": "assume_terminated",
            "timeouts": { "delete": "180s" },
        } } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace.apply().unwrap().succeeded();
    (workspace, log)
}

/// Cuts the link during a drain until the provider has failed to reconnect, and restores it.
fn a_cut_in_a_drain(lab: &Lab, workspace: &Workspace, log: &PathBuf, cut: impl Fn(), restore: impl Fn()) {
    let noticed =
        || std::fs::read_to_string(log).unwrap_or_default().matches("wrapper unreachable: ").count();
    let jobs = lab.queue().submit_held(2);
    poll::until("both jobs run", PATIENCE, || {
        let tally = lab.queue().tally();
        if tally.running == 2 { Ok(()) } else { Err(tally) }
    });

    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap());
        lab.events().wait_for("m1 drains", PATIENCE, |event| is_signal(event, "SIGQUIT"));
        assert_eq!(noticed(), 0, "the way to the host is good until now");
        cut();
        // Once for the silent session, and more because no new one can be opened. More often than `attempts`, which apply only to
        // hosts without a shutdown request.
        // Each attempt has separate limits, with delays between them.
        poll::until("the provider notices, and tries again", 3 * PATIENCE, || {
            if noticed() > 3 { Ok(()) } else { Err(noticed()) }
        });
        assert!(!destroy.is_finished(), "a host that cannot be seen is not one that ended");

        // The host is not affected: one job ends, the other continues, and no new one starts.
        lab.queue().submit_held(1);
        lab.queue().release(&jobs[..1]);
        poll::until("a job finishes behind the cut", PATIENCE, || {
            let tally = lab.queue().tally();
            if (tally.finished, tally.running, tally.queued) == (1, 1, 1) { Ok(()) } else { Err(tally) }
        });

        restore();
        let seen = std::fs::read_to_string(log).unwrap_or_default().len();
        poll::until("the provider finds the host again", PATIENCE, || {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let fresh = text.get(seen..).unwrap_or_default();
            if fresh.contains("SSH session established") { Ok(()) } else { Err(fresh.to_owned()) }
        });
        assert!(!destroy.is_finished(), "a job still runs");
        lab.queue().release(&jobs[1..]);
        destroy.join().unwrap().succeeded();
    });

    let tally = lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.queued), (2, 0, 1));
    assert_eq!(lab.events().signals(None), ["SIGQUIT"], "asked once, and joined after the cut");
}

#[test]
fn drain_survives_silent_link() {
    let lab = Lab::start().unwrap();
    let (instance, host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let relay = Relay::start(host.address().parse().unwrap()).unwrap();
    let (workspace, log) = drain(&lab, &instance, relay.address(), host.host_key());
    a_cut_in_a_drain(&lab, &workspace, &log, || relay.cut(), || relay.restore());
}

#[test]
fn drain_survives_link_down() {
    let namespace = match Namespace::new() {
        Ok(namespace) if sshd::is_installed() => namespace,
        other => {
            let why = other.err().map_or_else(|| "there is no sshd".to_owned(), |error| format!("{error:#}"));
            return grit_testkit::not_covered("a drain over a cut network cable", &why);
        }
    };
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let address = SocketAddr::from((namespace.address(), 22));
    let server = namespace.run(|| {
        Sshd::builder()
            .authorized_line(&lab.client_key().public)
            .config(format!("ListenAddress {address}"))
            .start()
            .unwrap()
    });
    let server = server.unwrap();
    let (workspace, log) = drain(&lab, &instance, address, &server.host_keys()[0]);
    a_cut_in_a_drain(&lab, &workspace, &log, || namespace.cut().unwrap(), || namespace.restore().unwrap());
    drop(server);
}
