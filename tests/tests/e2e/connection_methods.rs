//! A rollout with each connection method. Bastions are real servers, and OpenSSH's client is the command.

use grit_tests::{
    rollout::{PATIENCE, Rollout},
    sshd::{ClientKey, Sshd},
    terraform::built,
};
use serde_json::{Value as Json, json};

/// A jump host that accepts one key.
struct Bastion {
    sshd: Sshd,
    key: ClientKey,
}

impl Bastion {
    fn start(rollout: &Rollout, name: &str) -> Self {
        let key = ClientKey::generate(rollout.lab.folder(), name, "ed25519", "").unwrap();
        Self { sshd: Sshd::builder().authorize(&key).start().unwrap(), key }
    }

    fn hop(&self) -> Json {
        json!({
            "address": self.sshd.address().to_string(),
            "username": self.sshd.username(),
            "private_key_path": self.key.path,
            "host_key": self.sshd.host_keys()[0],
        })
    }

    /// `ssh` to this server, with further arguments.
    fn ssh(&self, rollout: &Rollout, rest: &[&str]) -> Vec<String> {
        let known = rollout.lab.folder().join("bastion_known_hosts");
        std::fs::write(&known, self.sshd.known_hosts()).unwrap();
        let known = format!("UserKnownHostsFile={}", known.display());
        let (key, port) = (self.key.path.display().to_string(), self.sshd.address().port().to_string());
        let to = format!("{}@{}", self.sshd.username(), self.sshd.address().ip());
        let own = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", &known, "-i", &key, "-p", &port];
        own.iter().chain(rest).map(|it| (*it).to_owned()).chain([to]).collect()
    }

    /// The number of logins.
    fn logins(&self) -> usize {
        self.sshd.log().matches("Accepted publickey").count()
    }
}

/// Deploys version 1, rolls to version 2 with a running job, and destroys, with these `ssh` settings.
fn rolls(mut rollout: Rollout, ssh: &Json) {
    rollout.set("ssh", ssh.clone()).unwrap();
    rollout.deploy(&["m1-v1"]);
    let jobs = rollout.hold_jobs(1);
    rollout.managers(&["m1-v2"]).unwrap();
    let roll = rollout.apply_while(|| {
        rollout.wait_for_drain("m1-v1");
        rollout.lab.queue().release(&jobs);
    });
    roll.unwrap().succeeded();
    assert_eq!(rollout.hosts(), ["m1-v2"]);
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
    rollout.workspace.destroy().unwrap().succeeded();
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.open()), (1, 0, 0));
    rollout.workspace.providers().assert_none_left(PATIENCE);
}

#[test]
fn rollout_works_through_two_bastions() {
    let rollout = Rollout::start().unwrap();
    let hops = [Bastion::start(&rollout, "hop1"), Bastion::start(&rollout, "hop2")];
    let ssh = json!({
        "private_key_path": rollout.lab.client_key().path,
        "proxy_jump": [hops[0].hop(), hops[1].hop()],
    });
    rolls(rollout, &ssh);
    assert!(hops.iter().all(|hop| hop.logins() > 0), "a hop was left out");
}

#[test]
fn rollout_works_through_proxy_command() {
    let rollout = Rollout::start().unwrap();
    let bastion = Bastion::start(&rollout, "bastion");
    let ssh = json!({
        "private_key_path": rollout.lab.client_key().path,
        "proxy_command": bastion.ssh(&rollout, &["-W", "{{host}}:{{port}}"]),
    });
    rolls(rollout, &ssh);
    assert!(bastion.logins() > 0, "the bastion was left out");
}

/// The command logs in to a server on the same machine, where `dial-stdio` connects to the wrapper. The provider block has neither a
/// key nor a host key.
#[test]
fn rollout_works_through_ssh_command() {
    let rollout = Rollout::start().unwrap();
    let bastion = Bastion::start(&rollout, "bastion");
    let program = built("grit-wrapper").unwrap();
    let mut command = bastion.ssh(&rollout, &["-T"]);
    command.push(format!("{} dial-stdio --address {{{{wrapper_address}}}}", program.display()));
    rolls(rollout, &json!({ "ssh_command": command }));
    assert!(bastion.logins() > 0, "the server was left out");
}
