//! The wrapper on its host: CPU and memory when idle, and what accumulates.
//!
//! The runner is the stand-in for GitLab Runner with its HTTP server enabled, so that the wrapper probes it as in production.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context, ensure};
use grit_proto::wrapper_v1::{WatchRequest, wrapper_client::WrapperClient};
use tokio::runtime::Runtime;

use super::{
    Row, Settings, machine, milliseconds,
    site::{self, Wrapper},
};
use crate::{lab::http, sshd::free_address, terraform};

const BENCH: &str = "wrapper";

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows = idle(*settings, &runtime)?;
    rows.extend(growth(*settings, &runtime)?);
    Ok(rows)
}

/// CPU and memory while a runner runs and no client calls.
fn idle(settings: Settings, runtime: &Runtime) -> anyhow::Result<Vec<Row>> {
    let (warm, window) = if settings.quick { (1, 1) } else { (12, 20) };
    let folder = tempfile::tempdir().context("make a folder")?;
    let wrapper = around_a_runner(folder.path(), &[])?;
    runtime.block_on(wrapper.answers())?;
    thread::sleep(Duration::from_secs(warm));
    let before = machine::cpu(wrapper.pid());
    thread::sleep(Duration::from_secs(window));
    let used = milliseconds(machine::cpu(wrapper.pid()) - before) / window as f64;
    let memory = machine::resident(wrapper.pid()) / 1000.0;
    Ok(vec![
        Row::new(BENCH, "memory, runner running (RSS)", memory, "MB").budget(8.0),
        Row::new(BENCH, "CPU a second", used, "ms").budget(1.0),
    ])
}

/// The probes, scrapes, calls and watches of a week in a short time. Memory and descriptors must not grow after the first day.
fn growth(settings: Settings, runtime: &Runtime) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let url = format!("http://{}", free_address()?);
    let http_listen = url.replace("http:", "tcp:");
    let wrapper =
        around_a_runner(folder.path(), &["--http-listen", &http_listen, "--probe-interval", "20ms"])?;
    runtime.block_on(wrapper.answers())?;
    let day = || (0..settings.samples(100)).try_for_each(|_| runtime.block_on(hour(&wrapper, &url)));
    day()?;
    let (memory, descriptors) = usage(&wrapper, 0.0)?;
    for _ in 1..7 {
        day()?;
    }
    let last = usage(&wrapper, descriptors)?;
    // A connection to the runner may be open or not. A leak would count each client.
    Ok(vec![
        Row::new(BENCH, "memory growth after the first day (RssAnon)", last.0 - memory, "KB").budget(300.0),
        Row::new(BENCH, "more descriptors than after the first day", last.1 - descriptors, "").budget(2.0),
    ])
}

async fn hour(wrapper: &Wrapper, url: &str) -> anyhow::Result<()> {
    for path in ["/metrics", "/status"] {
        http::get(&format!("{url}{path}")).await?;
    }
    for _ in 0..5 {
        site::first_answer(&wrapper.socket).await?;
    }
    let mut watches = Vec::new();
    for _ in 0..4 {
        let mut client = WrapperClient::new(site::channel(&wrapper.socket).await?);
        let mut watch = client.watch(WatchRequest {}).await?.into_inner();
        ensure!(watch.message().await?.is_some(), "a watch without a first message");
        watches.push((client, watch));
    }
    Ok(())
}

/// Memory, and the smallest number of descriptors within two seconds, because a probe may be in progress, and connections of ended clients may
/// not be closed yet. Stops earlier at the number of an earlier measurement.
fn usage(wrapper: &Wrapper, earlier: f64) -> anyhow::Result<(f64, f64)> {
    let mut descriptors = f64::INFINITY;
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(20));
        descriptors = descriptors.min(fs::read_dir(format!("/proc/{}/fd", wrapper.pid()))?.count() as f64);
        if descriptors <= earlier {
            break;
        }
    }
    Ok((machine::status(wrapper.pid(), "RssAnon") * 1.024, descriptors))
}

/// A wrapper with these options, around a runner with an HTTP server.
fn around_a_runner(folder: &Path, options: &[&str]) -> anyhow::Result<Wrapper> {
    let program = terraform::built("runner-stand-in")?.display().to_string();
    let config = folder.join("config.toml").display().to_string();
    // It requests jobs at a closed port; the result does not matter here.
    let section = format!(
        "name = \"m\"\nurl = \"http://{}\"\ntoken = \"glrt-bench\"\nexecutor = \"shell\"\n",
        free_address()?
    );
    fs::write(&config, format!("concurrent = 1\n[[runners]]\n{section}")).context("write config.toml")?;
    let listen = free_address()?.to_string();
    let command = [&program, "run", "--config", &config, "--listen-address", &listen];
    Wrapper::spawn(folder, options, &command)
}
