//! Time from start to the first response of a wrapper far away, in round trips, beside OpenSSH's client.
//!
//! A relay before the server delays each direction, and the setup of the connection. A kernel's own emulation of distance (netem) is not
//! on every machine. The number of round trips comes from the difference of two distances, so that the work of both computers cancels out.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use grit_provider::testing::client::RunnerStatus;
use tokio::runtime::Runtime;

use super::{
    Row, Settings,
    connect::CURVE25519,
    median,
    site::{self, Site},
    timed,
};
use crate::{
    link::Relay,
    provider_client::{Connector, SshOptions, StrategyOptions},
    sshd::Sshd,
};

const BENCH: &str = "distance";

/// Round-trip times, in milliseconds.
const ROUND_TRIPS: [u32; 2] = [20, 50];

/// TCP's connection, the key exchange's parameters, the key exchange, the login, the channel, the call.
const FLOOR: f64 = 6.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Ssh,
    /// The jump host is far away, the target is near the jump host.
    Jump,
    SshJump,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Direct, "direct, unix socket"),
    (Way::Ssh, "ssh -W curve25519"),
    (Way::Jump, "proxy_jump"),
    (Way::SshJump, "ssh -J curve25519"),
];

struct Bench {
    site: Site,
    bastion: Sshd,
    runtime: Runtime,
}

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(&[])?;
    let bastion = Sshd::builder().authorize(&site.key).start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench = Bench { site, bastion, runtime };
    let mut medians = [[0.0; ROUND_TRIPS.len()]; WAYS.len()];
    for (at, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
        let round_trip = Duration::from_millis(round_trip.into());
        let relays =
            [&bench.site.sshd, &bench.bastion].map(|it| Relay::with_round_trip(it.address(), round_trip));
        let [target, bastion] = relays;
        let relays = [target?, bastion?];
        let mut samples = WAYS.map(|_| Vec::new());
        for _ in 0..settings.samples(5) {
            for ((way, name), samples) in WAYS.iter().zip(&mut samples) {
                samples.push(bench.sample(*way, &relays).with_context(|| (*name).to_owned())?);
            }
        }
        for (way, samples) in samples.iter().enumerate() {
            medians[way][at] = median(samples);
        }
    }
    Ok(rows(&medians))
}

fn rows(medians: &[[f64; ROUND_TRIPS.len()]; WAYS.len()]) -> Vec<Row> {
    let of = |way: Way| medians[WAYS.iter().position(|(it, _)| *it == way).unwrap_or_default()];
    let peer = |way| match way {
        Way::Direct => Some(("ssh -W curve25519", Way::Ssh)),
        Way::Jump => Some(("ssh -J curve25519", Way::SshJump)),
        Way::Ssh | Way::SshJump => None,
    };
    let times = ROUND_TRIPS.iter().enumerate().flat_map(|(at, round_trip)| {
        WAYS.map(|(way, name)| {
            let row = Row::new(BENCH, format!("{round_trip} ms: {name}"), of(way)[at], "ms");
            match peer(way) {
                Some((name, peer)) => row.against(format!("{name}, {:.0} ms", of(peer)[at]), of(peer)[at]),
                None => row,
            }
        })
    });
    let counts = WAYS.map(|(way, name)| {
        let [near, far] = of(way);
        let count = (far - near) / f64::from(ROUND_TRIPS[1] - ROUND_TRIPS[0]);
        let row = Row::new(BENCH, format!("round trips: {name}"), count, "");
        // A round trip less or more is a different protocol; less than half of one is noise.
        if way == Way::Direct { row.budget(FLOOR + 0.5) } else { row }
    });
    times.chain(counts).collect()
}

impl Bench {
    /// Milliseconds from start to first response.
    fn sample(&self, way: Way, [target, bastion]: &[Relay; 2]) -> anyhow::Result<f64> {
        let _entered = self.runtime.enter();
        let site = &self.site;
        let onward = [&CURVE25519[..], &["-W", "{{wrapper_host}}:{{wrapper_port}}"]].concat();
        let (unix, tcp) = (site.wrapper.unix_address(), site.wrapper.tcp_address());
        let (strategy, wrapper, address) = match way {
            Way::Direct => (StrategyOptions::Direct, unix, target.address()),
            Way::Ssh => {
                let command = site.ssh_through(&site.sshd, target.address(), &onward)?;
                (StrategyOptions::SshCommand(command), tcp, site.sshd.address())
            }
            Way::Jump => {
                let hop = site.hop(&self.bastion)?;
                let hop = crate::provider_client::JumpOptions {
                    address: bastion.address().to_string().parse()?,
                    ..hop
                };
                (StrategyOptions::ProxyJump(vec![hop]), unix, site.sshd.address())
            }
            Way::SshJump => {
                let first = site.ssh_through(
                    &self.bastion,
                    bastion.address(),
                    &[&CURVE25519[..], &["-W", "%h:%p"]].concat(),
                )?;
                let through = super::connect::through(&first);
                let options = [&["-o", through.as_str()][..], &onward].concat();
                (StrategyOptions::SshCommand(site.ssh(&site.sshd, &options)?), tcp, site.sshd.address())
            }
        };
        let mut manager = site.target(0, &wrapper)?;
        manager.address = address.to_string().parse()?;
        let connector = Connector::new(SshOptions { strategy, ..site.options() });
        let (client, wall) = timed(|| {
            let client = connector.client(manager);
            let asked = client.clone();
            let report =
                self.runtime.block_on(self.runtime.spawn(async move { asked.check_status().await }))??;
            ensure!(report.status == RunnerStatus::Running, "the wrapper reports {}", report.status);
            Ok(client)
        })?;
        drop(client);
        drop(connector);
        site::settle(&site.sshd)?;
        site::settle(&self.bastion)?;
        Ok(wall)
    }
}
