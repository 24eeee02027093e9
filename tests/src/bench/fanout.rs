//! 200 managers at once, behind one sshd.
//!
//! The lower bound is the server's own CPU time: sshd and its sessions, divided by the cores. If other processes run on
//! the machine, only the remaining part of the cores counts (idle time and the benchmark's), so that a busy machine does not
//! look like a slow client. sshd's CPU time is known after its sessions have ended, and includes their short end.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};

use super::{
    Row, Settings,
    crowd::{Report, Spec},
    machine, median, milliseconds,
    site::{self, Site, Wrapper},
};
use crate::terraform;

const BENCH: &str = "fanout";

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let count = if settings.quick { 10 } else { 200 };
    let site = Site::for_a_crowd(&["MaxStartups 1000"])?;
    let spec = spec(&site, count)?;
    // The first sample warms the caches.
    sample(&site, &spec)?;
    let samples: Vec<Sample> =
        (0..settings.samples(3)).map(|_| sample(&site, &spec)).collect::<anyhow::Result<_>>()?;
    let of = |value: &dyn Fn(&Sample) -> f64| median(&samples.iter().map(value).collect::<Vec<_>>());
    let floor = of(&|it| it.floor);
    let row = |what: &str, median, unit| Row::new(BENCH, format!("{count}: {what}"), median, unit);
    let wall = row("wall", of(&|it| it.report.wall), "ms")
        .against(format!("the server's own CPU time, {floor:.0} ms"), floor);
    let memory = row("client memory per connection", of(&|it| it.report.memory / count as f64), "KB");
    // With few managers, the start of the client counts.
    Ok(if settings.quick { vec![wall, memory] } else { vec![wall.budget_ratio(1.1), memory.budget(200.0)] })
}

/// The values of one sample.
#[derive(Debug)]
struct Sample {
    report: Report,
    /// The lower bound for the server alone, in milliseconds.
    floor: f64,
}

fn spec(site: &Site, managers: usize) -> anyhow::Result<Spec> {
    Ok(Spec {
        managers,
        address: site.sshd.address().to_string(),
        wrapper_addresses: site.wrappers().map(Wrapper::unix_address).collect(),
        username: site.sshd.username(),
        private_key: site.key.private.clone(),
        known_hosts: site.sshd.known_hosts(),
        host_key: site.sshd.host_keys().into_iter().next().context("sshd has no host key")?,
    })
}

/// Runs the client process; fails if a manager's call failed.
fn sample(site: &Site, spec: &Spec) -> anyhow::Result<Sample> {
    let listener = site.sshd.listener();
    let served = machine::cpu(listener) + machine::reaped_cpu(listener);
    let wrappers = wrappers_cpu(site);

    let mut client = Command::new(terraform::built("bench")?)
        .arg("--crowd")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start bench --crowd")?;
    let mut input = client.stdin.take().context("no stdin")?;
    let output = client.stdout.take().context("no stdout")?;
    let asked = writeln!(input, "{}", serde_json::to_string(spec)?);
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    drop(input);
    let status = client.wait()?;
    asked.and(read.map(drop)).context("talk to bench --crowd")?;
    ensure!(status.success(), "bench --crowd: {status}");
    let report: Report = serde_json::from_str(&line).context("read the report of bench --crowd")?;
    ensure!(
        report.failures.is_empty(),
        "{} of {} failed: {}",
        report.failures.len(),
        spec.managers,
        report.failures[0]
    );

    site::settle(&site.sshd)?;
    let server = milliseconds(machine::cpu(listener) + machine::reaped_cpu(listener) - served);
    let ours = report.cpu + server + milliseconds(wrappers_cpu(site) - wrappers);
    let available = (report.idle + ours).min(report.wall * machine::cores());
    let floor = if available > 0.0 { report.wall * server / available } else { 0.0 };
    Ok(Sample { floor, report })
}

fn wrappers_cpu(site: &Site) -> Duration {
    site.wrappers().map(|wrapper| machine::cpu(wrapper.pid())).sum()
}
