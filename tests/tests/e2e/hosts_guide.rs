//! docs/guides/hosts.md on a booted system: its blocks set up a host whose deploy user connects to the wrapper over a real sshd.
//! Also the unit of docs/guides/host-keys.md.

use std::{cell::RefCell, fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, process::Stdio};

use grit_provider::testing::{
    client::ClientError,
    explain::explain,
    transport::{Cause, HostPort, Secret},
};
use grit_testkit::page;
use grit_tests::provider_client::{Connector, SshOptions, Target, TrustOptions};
use grit_tests::{
    debian::machine::{ADDRESS, LIMIT, Machine},
    poll,
    ssh_server::KeyPair,
    sshd::free_address,
};

use crate::{cloud_init::first_boot, systemd::machine};

const GUIDE: &str = include_str!("../../../docs/guides/hosts.md");
const HOST_KEYS: &str = include_str!("../../../docs/guides/host-keys.md");

fn follow(machine: &Machine, script: &str) {
    fs::write(machine.system.path("/tmp/script"), script).unwrap();
    machine.run(&["sh", "-e", "/tmp/script"]);
}

/// Installs an sshd in the machine, and returns its host key. It ends with the machine.
fn install_sshd(machine: &Machine, address: SocketAddr) -> String {
    let host = KeyPair::generate().unwrap();
    fs::write(machine.system.path("/etc/ssh/ssh_host_ed25519_key"), &host.private).unwrap();
    let config = format!(
        "Include /etc/ssh/sshd_config.d/*.conf\nListenAddress {address}\nHostKey /etc/ssh/ssh_host_ed25519_key\nPidFile none\nUsePAM no\n\
         PasswordAuthentication no\n"
    );
    fs::write(machine.system.path("/etc/ssh/test_config"), config).unwrap();
    machine.run(&["chmod", "600", "/etc/ssh/ssh_host_ed25519_key"]);
    machine.run(&["mkdir", "-p", "/run/sshd"]);
    let unit = "[Service]\nExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/test_config\n";
    fs::write(machine.system.path("/etc/systemd/system/ssh.service"), unit).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    host.public
}

fn target(username: &str, address: SocketAddr) -> Target {
    Target {
        manager: "m1".to_owned(),
        instance_name: "m1".to_owned(),
        instance_id: None,
        address: address.to_string().parse::<HostPort>().unwrap(),
        wrapper_address: ADDRESS.parse().unwrap(),
        username: Some(username.to_owned()),
        private_key: None,
        host_key: None,
    }
}

#[test]
fn host_set_up_per_guide_accepts_deploy_user() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    follow(&machine, page::block(GUIDE, "sh"));
    assert_eq!(machine.runner(), None);
    let key = KeyPair::generate().unwrap();
    let address = free_address().unwrap();
    let host_key = RefCell::new(String::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = |username: &str| -> Result<_, ClientError> {
        let known_hosts = format!("[{}]:{} {}\n", address.ip(), address.port(), host_key.borrow());
        let connector = Connector::new(SshOptions {
            private_key: Some(Secret::new(key.private.clone())),
            trust: TrustOptions { known_hosts: Some(known_hosts), ..TrustOptions::default() },
            ..SshOptions::default()
        });
        runtime.block_on(connector.client(target(username, address)).check_status())
    };
    let user_data = page::block(GUIDE, "yaml");
    assert!(user_data.contains("ssh-ed25519 AAAA… deploy"));
    let user_data = user_data.replace("ssh-ed25519 AAAA… deploy", key.public.trim());
    first_boot(&machine, &user_data, || {
        *host_key.borrow_mut() = install_sshd(&machine, address);
        machine.run(&["systemctl", "start", "ssh.service"]);
        // The login must succeed from the start of sshd on, although the wrapper does not run yet.
        poll::until("sshd accepts connections", LIMIT, || match call("deploy") {
            Ok(_) => panic!("the wrapper runs"),
            Err(error) => match explain("m1", &error) {
                refused if refused.detail().contains("the server could not open") => Ok(()),
                early if early.detail().contains("Code: connect_failed") => Err(format!("{error:?}")),
                other => panic!("{}", other.detail()),
            },
        });
    });
    assert_eq!(machine.property("gitlab-runner.service", "ActiveState"), "active");
    machine.wait_level("polling");

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

/// Without the certificate, the provider refuses the host key: sshd must not listen before.
#[test]
fn sshd_starts_after_the_host_key_is_signed() {
    let Some(machine) = machine(&[]) else { return };
    let unit = page::blocks(HOST_KEYS, "ini")[0];
    let address = free_address().unwrap();
    let host_key = install_sshd(&machine, address);
    let write = |path: &str, mode: u32, text: &str| {
        let path = machine.system.path(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let authority = KeyPair::generate().unwrap();
    write("/etc/ssh/ssh_host_ed25519_key.pub", 0o644, &host_key);
    write("/root/authority", 0o600, &authority.private);
    // tests/tests/ssh/host_keys_guide.rs runs the script of the guide.
    let sign = format!(
        "#!/bin/sh\nset -eu\ntest -e /run/may-sign\nsleep 1\ncd /etc/ssh\n\
         ssh-keygen -q -s /root/authority -h -I host -n {} ssh_host_ed25519_key.pub\n\
         echo 'HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub' >sshd_config.d/host-certificate.conf\n",
        address.ip()
    );
    fs::create_dir_all(machine.system.path("/usr/local/sbin")).unwrap();
    fs::create_dir_all(machine.system.path("/etc/ssh/sshd_config.d")).unwrap();
    write("/usr/local/sbin/sign-host-key", 0o755, &sign);
    write("/etc/systemd/system/sign-host-key.service", 0o644, unit);
    machine.run(&["systemctl", "enable", "sign-host-key.service"]);

    let start = machine.system.run(&["systemctl", "start", "ssh.service"]).unwrap();
    assert!(!start.status.success(), "sshd started without a certificate");
    assert_eq!(machine.property("ssh.service", "ActiveState"), "inactive");

    fs::write(machine.system.path("/run/may-sign"), "").unwrap();
    machine.run(&["systemctl", "start", "--no-block", "ssh.service"]);
    let client = KeyPair::generate().unwrap();
    let connector = Connector::new(SshOptions {
        private_key: Some(Secret::new(client.private)),
        trust: TrustOptions { host_ca: vec![authority.public], ..TrustOptions::default() },
        ..SshOptions::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    poll::until("sshd accepts connections", LIMIT, || {
        let client = connector.client(target("root", address));
        match runtime.block_on(client.check_status()) {
            Ok(_) => panic!("no wrapper runs"),
            Err(ClientError::Transport(error)) => match error.cause {
                // The host key is trusted: the server has answered the login.
                Cause::AuthRefused { .. } => Ok(()),
                Cause::HostKey(refusal) => panic!("{refusal:?}"),
                cause => Err(format!("{cause:?}\n{}", machine.journal())),
            },
            Err(error) => panic!("{error:?}"),
        }
    });
    // The next boot does not sign again.
    machine.run(&["systemctl", "stop", "ssh.service", "sign-host-key.service"]);
    fs::remove_file(machine.system.path("/run/may-sign")).unwrap();
    machine.run(&["systemctl", "start", "ssh.service"]);
}
