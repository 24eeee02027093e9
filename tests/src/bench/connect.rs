//! Time from start to the first response of one wrapper, directly and through a jump host.
//!
//! The provider's client runs in this process, with the provider's runtime settings and a new connector for each sample. So a sample includes
//! key, known_hosts and session, but no process start. OpenSSH's client is measured as `ssh_command` runs it, process start
//! included. It uses the wrapper's TCP port, because OpenSSH before 9.4 does not support `-W` with sockets.

use anyhow::{Context, ensure};
use grit_provider::testing::client::RunnerStatus;
use tokio::runtime::Runtime;

use super::{
    Row, Settings, median,
    site::{self, Site},
    timed,
};
use crate::{
    provider_client::{Connector, SshOptions, StrategyOptions},
    sshd::Sshd,
};

const BENCH: &str = "connect";

/// OpenSSH's fastest key exchange, which the provider also uses with this server version.
const CURVE25519: [&str; 2] = ["-o", "KexAlgorithms=curve25519-sha256"];

#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Jump,
    Ssh,
    SshJump,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Direct, "direct, unix socket"),
    (Way::Jump, "proxy_jump"),
    (Way::Ssh, "ssh -W, curve25519"),
    (Way::SshJump, "ssh -J, curve25519"),
];

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(&[])?;
    let bastion = Sshd::builder().authorize(&site.key).start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench = Bench { site, bastion, runtime };

    let mut samples = WAYS.map(|_| Vec::new());
    // The first round warms the caches.
    for round in 0..=settings.samples(15) {
        for ((way, name), samples) in WAYS.iter().zip(&mut samples) {
            let wall = bench.sample(*way).with_context(|| (*name).to_owned())?;
            if round > 0 {
                samples.push(wall);
            }
        }
    }
    let [direct, jump, ssh, ssh_jump] = samples.map(|samples| median(&samples));
    let row = |way: usize, wall| Row::new(BENCH, format!("first answer: {}", WAYS[way].1), wall, "ms");
    Ok(vec![
        row(0, direct).against(WAYS[2].1, ssh).budget_ratio(0.30),
        row(1, jump).against(WAYS[3].1, ssh_jump).budget_ratio(0.35),
        row(2, ssh),
        row(3, ssh_jump),
    ])
}

struct Bench {
    site: Site,
    bastion: Sshd,
    runtime: Runtime,
}

impl Bench {
    /// Milliseconds from start to first response.
    fn sample(&self, way: Way) -> anyhow::Result<f64> {
        // Sessions disconnect on the runtime.
        let _entered = self.runtime.enter();
        let (site, bastion) = (&self.site, &self.bastion);
        let (unix, tcp) = (site.wrapper.unix_address(), site.wrapper.tcp_address());
        let to = [&CURVE25519[..], &["-W", "{{wrapper_host}}:{{wrapper_port}}"]].concat();
        let (strategy, wrapper) = match way {
            Way::Direct => (StrategyOptions::Direct, unix),
            Way::Jump => (StrategyOptions::ProxyJump(vec![site.hop(bastion)?]), unix),
            Way::Ssh => (StrategyOptions::SshCommand(site.ssh(&site.sshd, &to)?), tcp),
            // What `ssh -J` does: the jump host is the ProxyCommand of the next host.
            Way::SshJump => {
                let through = through(&site.ssh(bastion, &[&CURVE25519[..], &["-W", "%h:%p"]].concat())?);
                let options = [&["-o", through.as_str()][..], &to].concat();
                (StrategyOptions::SshCommand(site.ssh(&site.sshd, &options)?), tcp)
            }
        };
        let target = site.target(0, &wrapper)?;
        let connector = Connector::new(SshOptions { strategy, ..site.options() });
        let (client, wall) = timed(|| {
            let client = connector.client(target);
            // In a task, as for Terraform's calls: outside the runtime, each step of a connection would wake another thread.
            let asked = client.clone();
            let report =
                self.runtime.block_on(self.runtime.spawn(async move { asked.check_status().await }))??;
            ensure!(report.status == RunnerStatus::Running, "the wrapper says {}", report.status);
            Ok(client)
        })?;
        drop(client);
        drop(connector);
        site::settle(&site.sshd)?;
        site::settle(bastion)?;
        Ok(wall)
    }
}

/// An option that connects with a command, whose arguments are quoted for the shell.
fn through(command: &[String]) -> String {
    let quoted = command.iter().map(|argument| format!("'{}'", argument.replace('\'', r"'\''")));
    format!("ProxyCommand={}", quoted.collect::<Vec<_>>().join(" "))
}
