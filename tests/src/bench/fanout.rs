//! 1 to 200 managers at once, behind one sshd.
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
    let managers: &[usize] = if settings.quick { &[1, 10] } else { &[1, 10, 100, 200] };
    let wide = Site::for_a_crowd(&["MaxStartups 1000", "LogLevel VERBOSE"])?;
    let mut rows = Vec::new();
    // The first sample warms the caches.
    sample(&wide, &spec(&wide, 2)?)?;
    let (mut most, mut wall) = (1, 0.0);
    for count in managers {
        let (compared, own) = beside_openssh(*settings, &wide, *count)?;
        rows.extend(compared);
        (most, wall) = (*count, own);
    }
    rows.push(one_session(*settings, &wide, most, wall)?);
    rows.extend(default_limits(*settings, most)?);
    Ok(rows)
}

/// The values of one sample.
#[derive(Debug)]
struct Sample {
    report: Report,
    /// CPU time of sshd and its sessions, in milliseconds.
    server: f64,
    /// The lower bound for the server alone, in milliseconds.
    floor: f64,
    /// Connections that sshd rejected.
    refused: f64,
}

/// The provider's client and OpenSSH's, alternating. Returns the rows, and the median wall time of the provider's client.
fn beside_openssh(settings: Settings, site: &Site, count: usize) -> anyhow::Result<(Vec<Row>, f64)> {
    let ours = spec(site, count)?;
    let kex = ["-o", "KexAlgorithms=curve25519-sha256", "-W", "{{wrapper_host}}:{{wrapper_port}}"];
    let theirs = Spec {
        ssh_command: Some(site.ssh(&site.sshd, &kex)?),
        wrapper_addresses: site.wrappers().map(Wrapper::tcp_address).collect(),
        ..ours.clone()
    };
    let (mut own, mut openssh) = (Vec::new(), Vec::new());
    for _ in 0..settings.samples(if count < 100 { 5 } else { 3 }) {
        own.push(sample(site, &ours)?);
        openssh.push(sample(site, &theirs)?);
    }
    let each = count as f64;
    let of = |samples: &[Sample], value: &dyn Fn(&Sample) -> f64| {
        median(&samples.iter().map(value).collect::<Vec<_>>())
    };
    let floor = of(&own, &|it| it.floor);
    let wall = of(&own, &|it| it.report.wall);
    let openssh_wall = of(&openssh, &|it| it.report.wall);
    let cpu = of(&openssh, &|it| it.report.cpu / each);
    let memory = of(&openssh, &|it| it.report.memory / each);
    let row = |what: &str, median, unit| Row::new(BENCH, format!("{count}: {what}"), median, unit);
    let over_floor =
        row("wall", wall, "ms").against(format!("the server's own CPU time, {floor:.0} ms"), floor);
    let over_openssh =
        row("wall", wall, "ms").against(format!("ssh -W curve25519, {openssh_wall:.0} ms"), openssh_wall);
    let grown = row("client memory per connection", of(&own, &|it| it.report.memory / each), "KB")
        .against(format!("ssh -W curve25519, {memory:.0} KB"), memory);
    let judged = count >= 200;
    let rows = vec![
        if judged { over_floor.budget_ratio(1.08) } else { over_floor },
        // OpenSSH's time depends more on the machine than ours does.
        over_openssh,
        row("client CPU per connection", of(&own, &|it| it.report.cpu / each), "ms")
            .against(format!("ssh -W curve25519, {cpu:.1} ms"), cpu),
        row("server CPU per connection", of(&own, &|it| it.server / each), "ms"),
        if judged { grown.budget(150.0) } else { grown },
    ];
    Ok((rows, wall))
}

/// Managers with the same host for SSH share one session. `many`: the wall time with a session for each, from the samples above.
fn one_session(settings: Settings, site: &Site, count: usize, many: f64) -> anyhow::Result<Row> {
    let shared = Spec { shared: true, ..spec(site, count)? };
    let mut one = Vec::new();
    for _ in 0..settings.samples(3) {
        one.push(sample(site, &shared)?.report.wall);
    }
    let row = Row::new(BENCH, format!("{count}: wall, one session for all"), median(&one), "ms");
    Ok(row.against(format!("a session each, {many:.0} ms"), many))
}

/// By default sshd rejects connections at random from the 11th unauthenticated one (`MaxStartups 10:30:100`).
fn default_limits(settings: Settings, count: usize) -> anyhow::Result<Vec<Row>> {
    let site = Site::for_a_crowd(&["LogLevel VERBOSE"])?;
    let spec = spec(&site, count)?;
    let samples: Vec<Sample> =
        (0..settings.samples(3)).map(|_| sample(&site, &spec)).collect::<anyhow::Result<_>>()?;
    let worst = samples.iter().map(|it| it.refused).fold(0.0, f64::max);
    let walls: Vec<f64> = samples.iter().map(|it| it.report.wall).collect();
    Ok(vec![
        Row::new(BENCH, format!("{count}: wall, default MaxStartups"), median(&walls), "ms"),
        Row::new(BENCH, format!("{count}: refused, default MaxStartups, worst"), worst, "").budget(0.0),
    ])
}

fn spec(site: &Site, managers: usize) -> anyhow::Result<Spec> {
    Ok(Spec {
        managers,
        shared: false,
        address: site.sshd.address().to_string(),
        wrapper_addresses: site.wrappers().map(Wrapper::unix_address).collect(),
        username: site.sshd.username(),
        private_key: site.key.private.clone(),
        known_hosts: site.sshd.known_hosts(),
        host_key: site.sshd.host_keys().into_iter().next().context("sshd has no host key")?,
        ssh_command: None,
    })
}

/// Runs the client process; fails if a manager's call failed.
fn sample(site: &Site, spec: &Spec) -> anyhow::Result<Sample> {
    let listener = site.sshd.listener();
    let served = machine::cpu(listener) + machine::reaped_cpu(listener);
    let wrappers = wrappers_cpu(site);
    let refused = refusals(site);

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
    Ok(Sample { floor, server, refused: refusals(site) - refused, report })
}

fn wrappers_cpu(site: &Site) -> Duration {
    site.wrappers().map(|wrapper| machine::cpu(wrapper.pid())).sum()
}

fn refusals(site: &Site) -> f64 {
    site.sshd.log().matches("drop connection").count() as f64
}
