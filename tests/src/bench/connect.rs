//! Time from start to the first response of one wrapper, for each connection method.
//!
//! The provider's client runs in this process, with the provider's runtime settings and a new connector for each sample. So a sample includes
//! key, known_hosts and session, but no process start. OpenSSH's client is measured as `ssh_command` runs it, process start
//! included. It uses the wrapper's TCP port, because OpenSSH before 9.4 does not support `-W` with sockets.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::provider_client::{Connector, SshOptions, StrategyOptions, Target};
use anyhow::{Context, bail, ensure};
use grit_provider::testing::client::{RunnerStatus, WrapperClient};
use tokio::runtime::Runtime;

use super::{
    Row, Settings, machine, median, milliseconds,
    site::{self, Site},
};
use crate::{sshd::Sshd, terraform};

const BENCH: &str = "connect";
const LIMIT: Duration = Duration::from_secs(60);

/// OpenSSH's fastest key exchange, which the provider also uses with this server version.
pub(super) const CURVE25519: [&str; 2] = ["-o", "KexAlgorithms=curve25519-sha256"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    NoSsh,
    DirectUnix,
    DirectTcp,
    Jump,
    JumpShared,
    JumpTwo,
    ProxyCommand,
    ProxyCommandSsh,
    SshDefault,
    SshCurve25519,
    SshJump,
    SshJumpTwo,
    SshForward,
}

const WAYS: [(Way, &str); 13] = [
    (Way::NoSsh, "no SSH: unix socket"),
    (Way::DirectUnix, "direct, unix socket"),
    (Way::DirectTcp, "direct, TCP"),
    (Way::Jump, "proxy_jump, own bastion session"),
    (Way::JumpShared, "proxy_jump, shared bastion session"),
    (Way::JumpTwo, "proxy_jump, two bastions"),
    (Way::ProxyCommand, "proxy_command, as nc"),
    (Way::ProxyCommandSsh, "proxy_command, ssh -W bastion"),
    (Way::SshCurve25519, "ssh_command, ssh -W, curve25519"),
    (Way::SshJump, "ssh_command, ssh -J -W, curve25519"),
    (Way::SshJumpTwo, "ssh_command, ssh -J, two bastions"),
    (Way::SshDefault, "ssh_command, ssh -W, default KEX"),
    (Way::SshForward, "ssh -L and connect, default KEX"),
];

/// Wall time and CPU time of this process and of OpenSSH's clients, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    wall: f64,
    cpu: f64,
}

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(&[])?;
    let bastions =
        [Sshd::builder().authorize(&site.key).start()?, Sshd::builder().authorize(&site.key).start()?];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench = Bench { site, bastions, runtime };

    let mut samples = WAYS.map(|_| Vec::new());
    // The first round warms the caches.
    for round in 0..=settings.samples(15) {
        for ((way, name), samples) in WAYS.iter().zip(&mut samples) {
            let sample = bench.sample(*way).with_context(|| (*name).to_owned())?;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    Ok(rows(&samples))
}

fn rows(samples: &[Vec<Sample>; WAYS.len()]) -> Vec<Row> {
    let of = |way: Way, value: fn(&Sample) -> f64| {
        let index = WAYS.iter().position(|(it, _)| *it == way).unwrap_or_default();
        median(&samples[index].iter().map(value).collect::<Vec<_>>())
    };
    let (wall, cpu) = (of(Way::SshCurve25519, |it| it.wall), of(Way::SshCurve25519, |it| it.cpu));
    let judged = [Way::DirectUnix, Way::DirectTcp];
    let first = WAYS.iter().map(|(way, name)| {
        let row = Row::new(BENCH, format!("first answer: {name}"), of(*way, |it| it.wall), "ms");
        let through_ssh = |peer, name: &str| {
            let wall = of(peer, |it| it.wall);
            row.clone().against(format!("{name}, {wall:.0} ms"), wall).budget_ratio(0.35)
        };
        match way {
            Way::Jump => through_ssh(Way::SshJump, "ssh -J curve25519"),
            Way::JumpTwo => through_ssh(Way::SshJumpTwo, "ssh -J two bastions"),
            _ => {
                let row = row.against(format!("ssh -W curve25519, {wall:.0} ms"), wall);
                if judged.contains(way) { row.budget_ratio(0.30) } else { row }
            }
        }
    });
    let used = WAYS.iter().map(|(way, name)| {
        let row = Row::new(BENCH, format!("client CPU: {name}"), of(*way, |it| it.cpu), "ms")
            .against(format!("ssh -W curve25519, {cpu:.1} ms"), cpu);
        if judged.contains(way) { row.budget_ratio(0.10) } else { row }
    });
    first.chain(used).collect()
}

struct Bench {
    site: Site,
    bastions: [Sshd; 2],
    runtime: Runtime,
}

impl Bench {
    fn sample(&self, way: Way) -> anyhow::Result<Sample> {
        let sample = match way {
            Way::NoSsh => measure(|| self.runtime.block_on(site::first_answer(&self.site.wrapper.socket))),
            Way::SshForward => self.forward(),
            _ => self.connector(way),
        }?;
        site::settle(&self.site.sshd)?;
        self.bastions.iter().try_for_each(site::settle)?;
        Ok(sample)
    }

    fn connector(&self, way: Way) -> anyhow::Result<Sample> {
        // Sessions disconnect on the runtime.
        let _entered = self.runtime.enter();
        let (options, wrapper) = self.options(way)?;
        let target = |number| self.site.target(number, &wrapper);
        if way == Way::JumpShared {
            let connector = Connector::new(options);
            // Held so that the bastion's session stays open. The different number prevents sharing of the last session.
            let _first = self.ask(&connector, target(1)?)?;
            let second = target(2)?;
            return measure(|| self.ask(&connector, second));
        }
        let target = target(0)?;
        measure(|| self.ask(&Connector::new(options), target))
    }

    fn ask(&self, connector: &Connector, target: Target) -> anyhow::Result<WrapperClient> {
        let client = connector.client(target);
        // In a task, as for Terraform's calls: outside the runtime, each step of a connection would wake another thread.
        let asked = client.clone();
        let report =
            self.runtime.block_on(self.runtime.spawn(async move { asked.check_status().await }))??;
        ensure!(report.status == RunnerStatus::Running, "the wrapper says {}", report.status);
        Ok(client)
    }

    /// The provider block of a connection method, and the wrapper's address.
    fn options(&self, way: Way) -> anyhow::Result<(SshOptions, String)> {
        let (site, [first, second]) = (&self.site, &self.bastions);
        let (unix, tcp) = (site.wrapper.unix_address(), site.wrapper.tcp_address());
        let (strategy, wrapper) = match way {
            Way::NoSsh | Way::SshForward => bail!("this way has no connector"),
            Way::DirectUnix => (StrategyOptions::Direct, unix),
            Way::DirectTcp => (StrategyOptions::Direct, tcp),
            Way::Jump | Way::JumpShared => (StrategyOptions::ProxyJump(vec![site.hop(first)?]), unix),
            Way::JumpTwo => (StrategyOptions::ProxyJump(vec![site.hop(first)?, site.hop(second)?]), unix),
            Way::ProxyCommand => {
                let carry = terraform::built("carry")?.display().to_string();
                let command = [carry.as_str(), "tcp", "{{host}}", "{{port}}"].map(str::to_owned);
                (StrategyOptions::ProxyCommand(command.to_vec()), unix)
            }
            Way::ProxyCommandSsh => {
                let command = site.ssh(first, &["-W", "{{host}}:{{port}}"])?;
                (StrategyOptions::ProxyCommand(command), unix)
            }
            Way::SshDefault | Way::SshCurve25519 => {
                let to = ["-W", "{{wrapper_host}}:{{wrapper_port}}"];
                let kex: &[&str] = if way == Way::SshCurve25519 { &CURVE25519 } else { &[] };
                let command = site.ssh(&site.sshd, &[kex, &to].concat())?;
                (StrategyOptions::SshCommand(command), tcp)
            }
            // What `ssh -J` does: each jump host is the ProxyCommand of the next host.
            Way::SshJump | Way::SshJumpTwo => {
                let onward = [&CURVE25519[..], &["-W", "%h:%p"]].concat();
                let mut through = through(&site.ssh(first, &onward)?);
                if way == Way::SshJumpTwo {
                    through = self::through(&site.ssh(second, &[&onward, &["-o", &through][..]].concat())?);
                }
                let to = ["-o", &through, "-W", "{{wrapper_host}}:{{wrapper_port}}"];
                let command = site.ssh(&site.sshd, &[&CURVE25519[..], &to].concat())?;
                (StrategyOptions::SshCommand(command), tcp)
            }
        };
        Ok((SshOptions { strategy, ..site.options() }, wrapper))
    }

    /// The manual method: a forwarded socket, polled until it responds.
    fn forward(&self) -> anyhow::Result<Sample> {
        let local = self.site.dir.path().join("forwarded.sock");
        let forward = format!("{}:{}", local.display(), self.site.wrapper.tcp);
        let command =
            self.site.ssh(&self.site.sshd, &["-N", "-o", "ExitOnForwardFailure=yes", "-L", &forward])?;
        let mut running = None;
        let sample = measure(|| {
            let (program, arguments) = command.split_first().context("no command")?;
            let child =
                Command::new(program).args(arguments).stdin(Stdio::null()).spawn().context("start ssh")?;
            running = Some(Killed(child));
            let start = Instant::now();
            while let Err(error) = self.runtime.block_on(site::first_answer(&local)) {
                if start.elapsed() > LIMIT {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        drop(running);
        match std::fs::remove_file(&local) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => sample,
        }
    }
}

/// An option that connects with a command. Its arguments are quoted for the shell. An inner ssh, not the outer one, expands its `%h:%p`.
pub(super) fn through(command: &[String]) -> String {
    let quoted = command.iter().map(|argument| {
        let inner = argument.starts_with("ProxyCommand=");
        let argument = if inner { argument.replace('%', "%%") } else { argument.clone() };
        format!("'{}'", argument.replace('\'', r"'\''"))
    });
    format!("ProxyCommand={}", quoted.collect::<Vec<_>>().join(" "))
}

/// Runs one measurement. OpenSSH's clients must still be running when it returns.
fn measure<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Sample> {
    let (cpu, start) = (machine::own_cpu(), Instant::now());
    let held = work()?;
    let (wall, own) = (start.elapsed(), machine::own_cpu() - cpu);
    let theirs: Duration = machine::ssh_clients().into_iter().map(machine::cpu).sum();
    drop(held);
    Ok(Sample { wall: milliseconds(wall), cpu: milliseconds(own + theirs) })
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
