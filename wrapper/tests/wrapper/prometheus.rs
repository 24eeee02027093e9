//! A real Prometheus, and its promtool, through a runner's whole life.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    support::{Wrapper, eventually},
    web::{ask, ready_with},
};

/// A program of Debian's `prometheus` package: on PATH, or where `cargo xtask test` unpacks it.
fn program(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_grit-wrapper")).ancestors().nth(2).unwrap();
    let mut folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    folders.push(target.join("prometheus/usr/bin"));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not in {folders:?}: install Debian's package `prometheus`, or let `cargo xtask test` unpack it")
    })
}

/// A server that ends with its test.
struct Prometheus {
    process: Child,
    url: String,
}

impl Prometheus {
    /// In the wrapper's folder, so that it goes with a test that is killed.
    async fn scraping(wrapper: &Wrapper, url: &str) -> Self {
        let path = |name: &str| wrapper.path(name);
        let target = url.strip_prefix("http://").unwrap();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: wrapper, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        fs::write(path("prometheus.yml"), config).unwrap();
        let log = path("prometheus.log");
        let process = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut server = Self { process, url: String::new() };
        server.url = eventually("Prometheus listens", async || {
            let log = fs::read_to_string(&log).unwrap();
            let line = log.lines().find(|line| line.contains("msg=\"Listening on\""));
            let address =
                line.and_then(|line| line.split_once("address=")).map(|(_, address)| address.to_owned());
            address.map(|address| format!("http://{}", address.trim())).ok_or(log)
        })
        .await;
        server
    }

    /// Waits until the newest sample of this series, which it must have, is `value`.
    async fn sees(&self, series: &str, value: &str) {
        let query = series.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
        let path = format!("/api/v1/query?query={query}");
        eventually(series, async || {
            let (_, body) = ask(&self.url, &path, &[], None).await;
            let answer: serde_json::Value = serde_json::from_str(&body).map_err(|_| body.clone())?;
            match answer["data"]["result"][0]["value"][1].as_str() {
                Some(found) if found == value => Ok(()),
                _ => Err(body),
            }
        })
        .await;
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Fails the test with what `promtool check metrics` has to say.
async fn checked_by_promtool(url: &str) {
    let (_, page) = ask(url, "/metrics", &[], None).await;
    let mut process = Command::new(program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}\n{page}");
}

#[tokio::test]
async fn a_whole_life_is_scraped_before_during_and_after_the_drain() {
    let (mut wrapper, url) = ready_with(&["--label=shard=blue"], &["--ignore-quit"]).await;
    let prometheus = Prometheus::scraping(&wrapper, &url).await;
    prometheus.sees("grit_wrapper_runner_up", "1").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"running\"}", "1").await;
    prometheus.sees("grit_wrapper_info{shard=\"blue\"}", "1").await;
    checked_by_promtool(&url).await;

    wrapper.client().await.graceful().await;
    wrapper.recorded("ready QUIT").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"draining\"}", "1").await;
    checked_by_promtool(&url).await;

    wrapper.client().await.forceful().await;
    prometheus.sees("grit_wrapper_runner_state{state=\"stopped\"}", "1").await;
    prometheus.sees("grit_wrapper_runner_up", "0").await;
    prometheus.sees("grit_wrapper_drains_total{mode=\"graceful\",result=\"forced\"}", "1").await;
    prometheus.sees("grit_wrapper_drain_duration_seconds_count{mode=\"graceful\"}", "1").await;
    prometheus.sees("up", "1").await;
    checked_by_promtool(&url).await;

    wrapper.signal(Signal::TERM);
    wrapper.ended().await;
    prometheus.sees("up", "0").await;
}

/// No runner runs, and one will: what a wrapper tells before its first one is the same but for how the last one ended.
#[tokio::test]
async fn between_two_lives_the_page_is_clean() {
    let flags = ["--restart=always", "--restart-delay=1h", "--restart-max-delay=1h"];
    let (wrapper, url) = ready_with(&flags, &["--exit-after", "1", "--code", "3"]).await;
    wrapper.logged("\"to\":\"backoff\"").await;
    checked_by_promtool(&url).await;
    let (_, page) = ask(&url, "/metrics", &[], None).await;
    assert!(page.contains("grit_wrapper_runner_exits_total{reason=\"error\"} 1\n"), "{page}");
}
