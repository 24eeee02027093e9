//! The wrapper on its host: CPU and memory when idle, and response times.
//!
//! The runner is the stand-in for GitLab Runner with its HTTP server enabled, so that the wrapper probes it as in production.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::runtime::Runtime;

use super::{Row, Settings, machine, median, milliseconds, site::Wrapper, timed};
use crate::{sshd::free_address, terraform};

const BENCH: &str = "wrapper";

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows = starts(*settings, &runtime)?;
    rows.extend(idle(*settings, &runtime)?);
    for (program, most) in [("grit-wrapper", 6.5), ("terraform-provider-grit", 13.0)] {
        let size = fs::metadata(terraform::built(program)?).context("look at a program")?.len();
        rows.push(Row::new(BENCH, format!("size of {program}"), size as f64 / 1e6, "MB").budget(most));
    }
    Ok(rows)
}

/// From exec to the first response, compared with a process that exits immediately.
fn starts(settings: Settings, runtime: &Runtime) -> anyhow::Result<Vec<Row>> {
    let (mut answers, mut nothing) = (Vec::new(), Vec::new());
    for round in 0..=settings.samples(20) {
        let folder = tempfile::tempdir().context("make a folder")?;
        let start = Instant::now();
        let wrapper = Wrapper::spawn(folder.path(), &[], &["sleep", "infinity"])?;
        runtime.block_on(wrapper.answers())?;
        let answered = milliseconds(start.elapsed());
        drop(wrapper);
        let (_, ended) = timed(|| Command::new("true").status().context("run true"))?;
        if round > 0 {
            answers.push(answered);
            nothing.push(ended);
        }
    }
    let ended = median(&nothing);
    let row = Row::new(BENCH, "exec to first answer", median(&answers), "ms");
    Ok(vec![row.against(format!("`true`, start to end, {ended:.1} ms"), ended)])
}

/// CPU and memory while a runner runs and no client calls, compared with `sleep`.
fn idle(settings: Settings, runtime: &Runtime) -> anyhow::Result<Vec<Row>> {
    let (warm, window) = if settings.quick { (1, 1) } else { (12, 20) };
    let folder = tempfile::tempdir().context("make a folder")?;
    let (wrapper, plain) = (around_a_runner(folder.path(), &[])?, Sleeping::start()?);
    runtime.block_on(wrapper.answers())?;
    thread::sleep(Duration::from_secs(warm));

    let pid = wrapper.pid();
    let before = (machine::status(pid, "voluntary_ctxt_switches"), machine::cpu(pid));
    thread::sleep(Duration::from_secs(window));
    let seconds = window as f64;
    let wakes = (machine::status(pid, "voluntary_ctxt_switches") - before.0) / seconds;
    let used = milliseconds(machine::cpu(pid) - before.1) / seconds;
    let threads = machine::status(pid, "Threads");

    let sleep = machine::resident(plain.0.id()) / 1000.0;
    let own = machine::status(pid, "RssAnon") * 1.024 / 1000.0;
    Ok(vec![
        Row::new(BENCH, "memory, runner running (RSS)", machine::resident(pid) / 1000.0, "MB")
            .against(format!("sleep, {sleep:.1} MB"), sleep)
            .budget(6.0),
        Row::new(BENCH, "of it not from files (RssAnon)", own, "MB"),
        Row::new(BENCH, "wake-ups a second, probes included", wakes, "/s"),
        Row::new(BENCH, "CPU a second", used, "ms"),
        Row::new(BENCH, "threads", threads, ""),
    ])
}

/// A wrapper with these options, around a runner with an HTTP server.
pub(super) fn around_a_runner(folder: &Path, options: &[&str]) -> anyhow::Result<Wrapper> {
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

struct Sleeping(std::process::Child);

impl Sleeping {
    fn start() -> anyhow::Result<Sleeping> {
        let child = Command::new("sleep").arg("infinity").stdin(Stdio::null()).spawn();
        Ok(Sleeping(child.context("start sleep")?))
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
