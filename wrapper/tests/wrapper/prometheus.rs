//! A real Prometheus and promtool, over the whole lifecycle of a runner.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    health_levels::{Runner, VERSION, polls},
    support::{Start, Wrapper, eventually, kill_group},
    web::{ask, ready_at, ready_with},
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

/// A server that exits with its test.
struct Prometheus {
    process: Child,
    url: String,
}

impl Prometheus {
    async fn scraping(wrapper: &Wrapper, url: &str) -> Self {
        Self::with_rules(wrapper, url, "").await
    }

    /// In the wrapper's directory, so that it is removed if the test is killed.
    async fn with_rules(wrapper: &Wrapper, url: &str, rules: &str) -> Self {
        let path = |name: &str| wrapper.path(name);
        let target = url.strip_prefix("http://").unwrap();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: [rules.yml]\n\
             scrape_configs: [{{job_name: grit-wrapper, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        fs::write(path("rules.yml"), rules).unwrap();
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
            let (_, body) = ask(&self.url, &path).await;
            let answer: serde_json::Value = serde_json::from_str(&body).map_err(|_| body.clone())?;
            match answer["data"]["result"][0]["value"][1].as_str() {
                Some(found) if found == value => Ok(()),
                _ => Err(body),
            }
        })
        .await;
    }

    /// Waits until this alert fires, and returns its summary.
    async fn fires(&self, alert: &str) -> String {
        eventually(alert, async || {
            let (_, body) = ask(&self.url, "/api/v1/alerts").await;
            // A long body comes in chunks, whose sizes are on lines of their own; the JSON has no line breaks.
            let json: String =
                body.split("\r\n").filter(|line| u32::from_str_radix(line, 16).is_err()).collect();
            let answer: serde_json::Value = serde_json::from_str(&json).map_err(|_| body.clone())?;
            let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
            let found = alerts
                .iter()
                .find(|found| found["labels"]["alertname"] == alert && found["state"] == "firing");
            found.and_then(|found| Some(found["annotations"]["summary"].as_str()?.to_owned())).ok_or(body)
        })
        .await
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Fails the test with the output of `promtool check metrics`.
async fn checked_by_promtool(url: &str) {
    let (_, page) = ask(url, "/metrics").await;
    check_by_promtool(&page);
}

fn check_by_promtool(page: &str) {
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
async fn prometheus_scrapes_before_during_and_after_drain() {
    let (mut wrapper, url) = ready_with(&[], &["--ignore-quit"]).await;
    let prometheus = Prometheus::scraping(&wrapper, &url).await;
    prometheus.sees("grit_wrapper_runner_up", "1").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"running\"}", "1").await;
    checked_by_promtool(&url).await;

    wrapper.client().await.graceful().await;
    wrapper.recorded("ready QUIT").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"draining\"}", "1").await;
    checked_by_promtool(&url).await;

    wrapper.client().await.forceful().await;
    prometheus.sees("grit_wrapper_runner_state{state=\"stopped\"}", "1").await;
    prometheus.sees("grit_wrapper_runner_up", "0").await;
    prometheus.sees("grit_wrapper_drains_total{mode=\"graceful\",outcome=\"jobs_aborted\"}", "1").await;
    prometheus.sees("up", "1").await;
    checked_by_promtool(&url).await;

    wrapper.signal(Signal::TERM);
    wrapper.ended().await;
    prometheus.sees("up", "0").await;
}

/// The metrics of the runner and its drain continue under the next wrapper.
#[tokio::test]
async fn drain_metrics_continue_after_wrapper_kill() {
    let (mut first, url) = ready_with(&[], &["--ignore-quit"]).await;
    let prometheus = Prometheus::scraping(&first, &url).await;
    first.client().await.graceful().await;
    first.recorded("ready QUIT").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"draining\"}", "1").await;
    let moments = ["drain_start_timestamp_seconds"];
    let before = samples(&url, moments).await;

    first.signal(Signal::KILL);
    first.ended().await;
    prometheus.sees("up", "0").await;
    let listen = url.replace("http://", "--http-listen=tcp://");
    let second =
        Start::again(first.into_folder()).flags(&["--start-grace=0s", &listen]).child(&["--ignore-quit"]);
    drop(second.client().await);
    prometheus.sees("up", "1").await;
    prometheus.sees("grit_wrapper_runner_up", "1").await;
    prometheus.sees("grit_wrapper_runner_state{state=\"draining\"}", "1").await;
    let after = samples(&url, moments).await;
    assert!(
        before.iter().zip(&after).all(|(before, after)| (before - after).abs() < 0.1),
        "{before:?} {after:?}"
    );
    checked_by_promtool(&url).await;

    second.client().await.forceful().await;
    prometheus.sees("grit_wrapper_runner_up", "0").await;
    prometheus.sees("grit_wrapper_drains_total{mode=\"graceful\",outcome=\"unknown\"}", "1").await;
    checked_by_promtool(&url).await;
}

/// The current values of these metrics.
async fn samples<const COUNT: usize>(url: &str, names: [&str; COUNT]) -> [f64; COUNT] {
    let (_, page) = ask(url, "/metrics").await;
    names.map(|name| {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("grit_wrapper_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
    })
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus")
}

/// The packaged rules with shorter times: no `for`, one second in place of an hour or ten minutes, and two restarts, which take 3 s, in place
/// of three.
fn impatient_rules() -> String {
    let text = fs::read_to_string(rules().join("grit-wrapper.rules.yml")).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("for: "));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    let changes = [
        ("_seconds > 3600", "_seconds > 1"),
        ("_seconds > 600", "_seconds > 1"),
        ("restarts_total[15m]) >= 3", "restarts_total[15m]) >= 2"),
    ];
    changes.iter().fold(text, |text, (limit, short)| {
        assert!(text.contains(limit), "the rules have another limit than {limit}");
        text.replace(limit, short)
    })
}

/// Each alert fires for some series of the unit tests, and does not fire for others.
#[test]
fn shipped_alert_rules_pass_promtool_tests() {
    for words in
        [["check", "rules", "grit-wrapper.rules.yml"], ["test", "rules", "grit-wrapper.rules.test.yml"]]
    {
        let output = Command::new(program("promtool")).args(words).current_dir(rules()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

#[test]
fn documented_prometheus_config_is_valid() {
    let docs = fs::read_to_string(rules().join("../../../docs/wrapper/metrics.md")).unwrap();
    let lines = docs.lines().skip_while(|line| line.trim() != "# prometheus.yml");
    let config: String =
        lines.map_while(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect();
    assert!(config.contains("scrape_configs"), "{config}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prometheus.yml"), config).unwrap();
    fs::copy(rules().join("grit-wrapper.rules.yml"), folder.path().join("grit-wrapper.rules.yml")).unwrap();
    let mut promtool = Command::new(program("promtool"));
    let output =
        promtool.args(["check", "config", "prometheus.yml"]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("rules found"), "{output:?}");
}

/// GitLab stops responding to the runner, then rejects it. Its drain makes no progress, then has no jobs but does not end, and is killed.
#[tokio::test]
async fn failing_drain_fires_alerts_in_sequence() {
    let runner = Runner::new().await;
    let jobs = |count: u32| format!("{VERSION}gitlab_runner_jobs{{state=\"running\"}} {count}\n");
    let accepted = polls("aaaaaaaaa", 204, 7);
    runner.says("/metrics", 200, &(jobs(0) + &accepted));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    fs::write(&config, "[[runners]]\nname = \"a\"\ntoken = \"glrt-aaaaaaaaaaaa\"\n").unwrap();
    let wrapper = Start::again(folder)
        .flags(&["--start-grace=0s", "--probe-interval=100ms"])
        .flags(&["--http-listen=tcp://127.0.0.1:0", "--process-termination-timeout=1h"])
        .env("CONFIG_FILE", config.to_str().unwrap())
        .runner(&runner)
        .child(&["--ignore-quit", "--ignore-term"]);
    let url = ready_at(&wrapper).await;
    let prometheus = Prometheus::with_rules(&wrapper, &url, &impatient_rules()).await;
    prometheus.fires("GritWrapperRunnerNoResponse").await;
    runner.says("/metrics", 200, &(jobs(2) + &accepted + &polls("aaaaaaaaa", 403, 1)));
    prometheus.fires("GritWrapperRunnerNotPolling").await;

    let mut client = wrapper.client().await;
    client.graceful().await;
    let summary = prometheus.fires("GritWrapperDrainStalled").await;
    assert!(summary.ends_with("makes no progress with 2 jobs left"), "{summary}");
    runner.says("/metrics", 200, &jobs(0));
    prometheus.fires("GritWrapperRunnerNotExiting").await;
    runner.says("/metrics", 500, "");
    prometheus.fires("GritWrapperDrainJobsUnknown").await;
    client.forceful().await;
    prometheus.fires("GritWrapperTerminationStuck").await;
    kill_group(wrapper.child_pid()).await;
    prometheus.fires("GritWrapperDrainAbortedJobs").await;
}
