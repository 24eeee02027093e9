//! Time between a change on the host and the return of the provider's call: the runner exits, and the state arrives in a watch stream over an
//! open tunnel.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use grit_provider::testing::client::{RunnerStatus, Snapshot, Wrapper as _, WrapperClient};
use rustix::process::{Pid, Signal, kill_process};

use super::{Row, Settings, median, milliseconds, quantile, site::Site};
use crate::provider_client::Connector;

const BENCH: &str = "watch";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(&[])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(changes(*settings, &site))
}

/// The runner of grit-wrapper is killed and restarted.
async fn changes(settings: Settings, site: &Site) -> anyhow::Result<Vec<Row>> {
    let client = Connector::new(site.options()).client(site.target(0, &site.wrapper.unix_address())?);
    let (mut delays, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..settings.samples(300) {
        let status = until(&client, |status| runner(status).is_some()).await?;
        let runner = runner(&status).context("no runner")?;
        let start = Instant::now();
        client.check_status().await?;
        calls.push(milliseconds(start.elapsed()));

        // Until the stream is open and has sent the current state.
        settled(&client).await;
        let waiting = until(&client, |status| status.report.status == RunnerStatus::Stopped);
        let killing = async {
            let start = Instant::now();
            kill_process(runner, Signal::KILL).map(|()| start)
        };
        let (stopped, start) = tokio::join!(waiting, killing);
        stopped?;
        delays.push(milliseconds(start.context("kill the runner")?.elapsed()));
        client.start().await?;
    }
    let call = median(&calls);
    let row = |what: &str, value| {
        Row::new(BENCH, format!("exit of the runner until it is known, {what}"), value, "ms")
            .against(format!("one call, {call:.1} ms"), call)
    };
    Ok(vec![row("p50", median(&delays)), row("p99", quantile(&delays, 0.99)).budget(50.0)])
}

fn runner(status: &Snapshot) -> Option<Pid> {
    let running = status.report.status == RunnerStatus::Running;
    status.detail.as_deref().filter(|_| running)?.pid.and_then(|pid| Pid::from_raw(pid.cast_signed()))
}

/// Reads the status at each change until the condition holds.
async fn until(client: &WrapperClient, so: impl Fn(&Snapshot) -> bool) -> anyhow::Result<Snapshot> {
    let work = async {
        loop {
            let status = client.read_status().await?;
            if so(&status) {
                return Ok(status);
            }
            client.changed().await;
        }
    };
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done,
        Err(_) => bail!("a change was not told within {LIMIT:?}"),
    }
}

/// Waits until no change arrives for a short time.
async fn settled(client: &WrapperClient) {
    while tokio::time::timeout(Duration::from_millis(20), client.changed()).await.is_ok() {}
}
