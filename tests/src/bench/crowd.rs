//! A client of many managers in a separate process: `bench --crowd`.
//!
//! It reads a [`Spec`] from stdin, calls all managers at the same time, holds the connections, and writes a [`Report`] to stdout.
//! It exits when stdin is closed. A separate process shows the memory of these connections only,
//! without memory of earlier samples.

use std::{
    io::{BufRead as _, Read as _, Write as _},
    time::{Duration, Instant},
};

use crate::provider_client::{Connector, SshOptions, Target, TrustOptions};
use anyhow::Context;
use futures::future::join_all;
use grit_provider::testing::{
    client::{ClientError, RunnerStatus, StatusReport, WrapperClient},
    transport::Secret,
};
use serde::{Deserialize, Serialize};

use super::{machine, milliseconds};

/// The settings of a drain: twelve attempts, 0.5 s before the second.
const ATTEMPTS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(500);

/// The managers and the connection settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    pub managers: usize,
    pub address: String,
    /// The managers use them in turn.
    pub wrapper_addresses: Vec<String>,
    pub username: String,
    pub private_key: String,
    pub known_hosts: String,
    pub host_key: String,
}

/// The measured values. Times in milliseconds, memory in KB (1000 bytes).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// From the start to the last response.
    pub wall: f64,
    /// CPU time of this process.
    pub cpu: f64,
    /// Idle time of all cores during the run.
    pub idle: f64,
    /// Resident memory added by the connections.
    pub memory: f64,
    /// The errors, one for each manager whose call failed.
    pub failures: Vec<String>,
}

/// Runs the client.
pub fn main() -> anyhow::Result<()> {
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let spec: Spec = serde_json::from_str(&line).context("read the spec")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let connector = Connector::new(options(&spec));
    let clients: Vec<_> = (0..spec.managers)
        .map(|number| Ok(connector.client(target(&spec, number)?)))
        .collect::<anyhow::Result<_>>()?;

    let own = std::process::id();
    let (memory, cpu, idle) = (machine::resident(own), machine::own_cpu(), machine::idle());
    let start = Instant::now();
    let answers = runtime.block_on(join_all(clients.iter().map(ask)));
    let wall = start.elapsed();
    let (cpu, idle) = (machine::own_cpu() - cpu, machine::idle().saturating_sub(idle));
    let failures = answers.into_iter().filter_map(|answer| match answer {
        Ok(report) if report.status == RunnerStatus::Running => None,
        Ok(report) => Some(format!("the wrapper says {}", report.status)),
        Err(error) => Some(format!("{error:?}")),
    });
    let report = Report {
        wall: milliseconds(wall),
        cpu: milliseconds(cpu),
        idle: milliseconds(idle),
        memory: machine::resident(own) - memory,
        failures: failures.collect(),
    };
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&report)?)?;
    output.flush()?;
    input.read_to_end(&mut Vec::new())?;
    let _entered = runtime.enter();
    drop((clients, connector));
    Ok(())
}

/// Calls once, and retries if sshd rejected the connection, as health and drain do.
async fn ask(client: &WrapperClient) -> Result<StatusReport, ClientError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match client.check_status().await {
            Err(error) if left > 0 && error.retryable() => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

fn options(spec: &Spec) -> SshOptions {
    let trust = TrustOptions { known_hosts: Some(spec.known_hosts.clone()), ..TrustOptions::default() };
    SshOptions {
        username: Some(spec.username.clone()),
        private_key: Some(Secret::new(spec.private_key.clone())),
        trust,
        ..SshOptions::default()
    }
}

fn target(spec: &Spec, number: usize) -> anyhow::Result<Target> {
    // The same key with a different comment: such managers do not share a session, like managers on different hosts.
    let own_key = Some(format!("{} number-{number}", spec.host_key));
    let turn = number.checked_rem(spec.wrapper_addresses.len()).context("no wrapper")?;
    let wrapper = &spec.wrapper_addresses[turn];
    Ok(Target {
        manager: format!("mgr-{number}"),
        instance_name: format!("runner-manager-{number}"),
        instance_id: None,
        address: spec.address.parse()?,
        wrapper_address: wrapper.parse()?,
        username: None,
        private_key: None,
        host_key: own_key,
    })
}
