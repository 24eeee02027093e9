//! The events of a week in a short time: probes, restarts of the runner, scrapes, calls, and watches that come and go. Memory and descriptors
//! must not grow after the first day, and clients must not fill the log.

use std::{fs, thread, time::Duration};

use anyhow::{Context, ensure};
use grit_proto::wrapper_v1::{StartRequest, WatchRequest, wrapper_client::WrapperClient};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tokio::runtime::Runtime;

use super::{
    Row, Settings, machine,
    site::{self, Wrapper},
    wrapper::around_a_runner,
};
use crate::{lab::http, poll, sshd::free_address};

const BENCH: &str = "week";
const DAYS: usize = 7;

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let url = format!("http://{}", free_address()?);
    let http_listen = url.replace("http:", "tcp:");
    let options = [
        &["--log-level", "info", "--http-listen", &http_listen, "--probe-interval", "20ms"][..],
        &["--restart", "always"],
    ];
    let wrapper = around_a_runner(folder.path(), &options.concat())?;
    runtime.block_on(wrapper.answers())?;

    let per_day = settings.samples(100);
    for round in 0..per_day {
        hour(&runtime, &wrapper, &url, round)?;
    }
    let first = Usage::of(&wrapper, None)?;
    let log = || fs::metadata(folder.path().join(site::LOG)).map(|found| found.len() as f64);
    let log_before = log()?;
    let rounds = 0..per_day * (DAYS - 1);
    for round in rounds.clone() {
        hour(&runtime, &wrapper, &url, round)?;
    }
    let last = Usage::of(&wrapper, Some(first.descriptors))?;
    let restarts = rounds.filter(|round| ends_runner(*round)).count() as f64;
    // A connection to the runner may be open or not. A leak would count each restart, or each client.
    Ok(vec![
        Row::new(BENCH, "memory growth after the first day (RssAnon)", last.memory - first.memory, "KB")
            .budget(300.0),
        Row::new(
            BENCH,
            "more descriptors than after the first day",
            last.descriptors - first.descriptors,
            "",
        )
        .budget(2.0),
        Row::new(
            BENCH,
            "log per restart of the runner, all clients included",
            (log()? - log_before) / restarts / 1000.0,
            "KB",
        )
        .budget(8.0),
    ])
}

/// The resources that a wrapper uses.
struct Usage {
    memory: f64,
    descriptors: f64,
}

impl Usage {
    /// The smallest number of descriptors within two seconds, because a probe may be in progress, and connections of ended clients may not be
    /// closed yet. Stops earlier at the number of an earlier measurement.
    fn of(wrapper: &Wrapper, earlier: Option<f64>) -> anyhow::Result<Self> {
        let mut descriptors = f64::INFINITY;
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(20));
            let open = fs::read_dir(format!("/proc/{}/fd", wrapper.pid()))?.count() as f64;
            descriptors = descriptors.min(open);
            if earlier.is_some_and(|earlier| descriptors <= earlier) {
                break;
            }
        }
        Ok(Self { memory: machine::status(wrapper.pid(), "RssAnon") * 1.024, descriptors })
    }
}

/// Some clients, and at times the end of the runner.
fn hour(runtime: &Runtime, wrapper: &Wrapper, url: &str, round: usize) -> anyhow::Result<()> {
    runtime.block_on(async {
        for path in ["/metrics", "/status", "/jobs"] {
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
        anyhow::Ok(())
    })?;
    if ends_runner(round) { restart(runtime, wrapper, url) } else { Ok(()) }
}

fn ends_runner(round: usize) -> bool {
    round % 10 == 1
}

/// Kills the runner, and requests the start that the wrapper delays.
fn restart(runtime: &Runtime, wrapper: &Wrapper, url: &str) -> anyhow::Result<()> {
    let status = || runtime.block_on(status(url));
    let pid = status()?["pid"].as_i64().context("no runner")?;
    let process = Pid::from_raw(i32::try_from(pid)?).context("no runner")?;
    kill_process(process, Signal::KILL)?;
    let becomes = |what, holds: &dyn Fn(&Json) -> bool| {
        poll::until(what, Duration::from_secs(60), || match status() {
            Ok(status) if holds(&status) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    becomes("the delay before a restart", &|status| status["state"] == "backoff");
    runtime.block_on(async {
        let mut client = WrapperClient::new(site::channel(&wrapper.socket).await?);
        client.start(StartRequest {}).await?;
        anyhow::Ok(())
    })?;
    becomes("the next runner", &|status| status["pid"].as_i64().is_some_and(|new| new != pid));
    Ok(())
}

async fn status(url: &str) -> anyhow::Result<Json> {
    http::get(&format!("{url}/status")).await?.json()
}
