//! docs/guides/hosts.md on a booted system: its blocks set up a host whose deploy user connects to the wrapper over a real sshd.

use std::{fs, process::Stdio};

use grit_provider::testing::{
    client::ClientError,
    explain::explain,
    transport::{HostPort, Secret},
};
use grit_tests::provider_client::{Connector, SshOptions, Target, TrustOptions};
use grit_tests::{
    debian::machine::{ADDRESS, LIMIT, Machine},
    poll,
    ssh_server::KeyPair,
    sshd::free_address,
};

use crate::{
    systemd_stop::machine,
    systemd_upgrade::{PLAIN, plain_unit},
};

const GUIDE: &str = include_str!("../../../docs/guides/hosts.md");

/// The blocks of shell code.
fn blocks() -> Vec<&'static str> {
    GUIDE.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

fn follow(machine: &Machine, script: &str) {
    fs::write(machine.system.path("/tmp/script"), script).unwrap();
    machine.run(&["sh", "-e", "/tmp/script"]);
}

/// Starts an sshd in the machine, and returns its host key. It ends with the machine.
fn start_sshd(machine: &Machine, address: std::net::SocketAddr) -> String {
    let host = KeyPair::generate().unwrap();
    fs::write(machine.system.path("/etc/ssh/test_host_key"), &host.private).unwrap();
    let config = format!(
        "Include /etc/ssh/sshd_config.d/*.conf\nListenAddress {address}\nHostKey /etc/ssh/test_host_key\nPidFile none\nUsePAM no\n\
         PasswordAuthentication no\n"
    );
    fs::write(machine.system.path("/etc/ssh/test_config"), config).unwrap();
    machine.run(&["chmod", "600", "/etc/ssh/test_host_key"]);
    machine.run(&["mkdir", "-p", "/run/sshd"]);
    let unit = "[Service]\nExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/test_config\n";
    fs::write(machine.system.path("/etc/systemd/system/ssh.service"), unit).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "ssh.service"]);
    host.public
}

#[test]
fn host_set_up_per_guide_accepts_deploy_user() {
    let Some(machine) = machine(&[]) else { return };
    plain_unit(&machine, PLAIN);
    machine.install("1.0.0");
    let [image, first_boot] = blocks()[..] else { panic!("the guide has other blocks") };
    follow(&machine, image);
    assert_eq!(machine.runner(), None);
    let key = KeyPair::generate().unwrap();
    let public = key.public.trim();
    assert!(first_boot.contains("ssh-ed25519 AAAA… deploy"));
    follow(&machine, &first_boot.replace("ssh-ed25519 AAAA… deploy", public));
    assert_eq!(machine.property("gitlab-runner.service", "ActiveState"), "active");
    assert_eq!(machine.ask(&["status"])["health"]["level"], "polling");

    let address = free_address().unwrap();
    let host_key = start_sshd(&machine, address);
    let target = |username: &str| Target {
        manager: "m1".to_owned(),
        instance_name: "m1".to_owned(),
        instance_id: None,
        address: address.to_string().parse::<HostPort>().unwrap(),
        wrapper_address: ADDRESS.parse().unwrap(),
        username: Some(username.to_owned()),
        private_key: None,
        host_key: None,
    };
    let known_hosts = format!("[{}]:{} {host_key}\n", address.ip(), address.port());
    let connector = Connector::new(SshOptions {
        private_key: Some(Secret::new(key.private.clone())),
        trust: TrustOptions { known_hosts: Some(known_hosts), ..TrustOptions::default() },
        ..SshOptions::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = |username: &str| -> Result<_, ClientError> {
        runtime.block_on(connector.client(target(username)).check_status())
    };
    poll::until("the deploy user is answered", LIMIT, || {
        call("deploy").map_err(|error| (format!("{error:?}"), machine.journal()))
    });

    // Another user with the same key can log in, but has no permission for the socket.
    let copy = "useradd --create-home --shell /bin/sh --password '*' other\ncp -r /home/deploy/.ssh /home/other/\n\
                chown -R other: /home/other/.ssh\n";
    follow(&machine, copy);
    let refused = explain("m1", &call("other").unwrap_err());
    assert!(refused.detail().contains("the server could not open"), "{}", refused.detail());
    let asked = machine
        .system
        .command(&["setpriv", "--reuid=other", "--regid=other", "--clear-groups", "grit-wrapper", "status"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert_eq!(asked.unwrap().code(), Some(2));
}
