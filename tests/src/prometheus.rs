//! A real Prometheus: Debian's, on PATH or where `cargo xtask test` unpacks it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde_json::Value as Json;

use crate::{lab::http, poll, terraform};

const LIMIT: Duration = Duration::from_secs(60);

/// A program of Debian's package `prometheus`.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let mut folders: Vec<_> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let target = terraform::built("grit-wrapper")?;
    folders.extend(target.ancestors().nth(2).map(|target| target.join("prometheus/usr/bin")));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!("{name} is not in {folders:?}: install Debian's package `prometheus`, or let `cargo xtask test` unpack it")
    })
}

/// Runs `promtool` in a directory.
pub fn promtool(directory: &Path, words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program("promtool")?).args(words).current_dir(directory).output()?;
    ensure!(output.status.success(), "promtool {words:?}: {output:?}");
    Ok(())
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    url: String,
    runtime: tokio::runtime::Runtime,
}

/// A series of a response: its labels, and its samples as time and value.
#[derive(Debug, Clone)]
pub struct Series {
    pub labels: serde_json::Map<String, Json>,
    pub samples: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Starts a server with the `prometheus.yml` of this directory, which also gets its data and its log.
    pub fn start(directory: &Path) -> anyhow::Result<Self> {
        let log = directory.join("prometheus.log");
        let process = Command::new(program("prometheus")?)
            .arg(format!("--config.file={}", directory.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("start Prometheus")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut server = Self { process, url: String::new(), runtime };
        server.url = poll::until("Prometheus listens", LIMIT, || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let line = log.lines().find(|line| line.contains("msg=\"Listening on\""));
            let address = line.and_then(|line| line.split_once("address="));
            address.map(|(_, address)| format!("http://{}", address.trim())).ok_or(log)
        });
        Ok(server)
    }

    /// The field `data` of a response of the API.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Json> {
        let pairs: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", percent_encoded(value))).collect();
        let url = format!("{}/api/v1/{path}?{}", self.url, pairs.join("&"));
        let mut reply: Json = self.runtime.block_on(http::get(&url))?.json()?;
        ensure!(reply["status"] == "success", "{parameters:?}: {reply}");
        Ok(reply["data"].take())
    }

    /// The current series of an expression.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<Series>> {
        let data = self.get("query", &[("query", expression)])?;
        series(&data, |found| found["value"].as_array().cloned().map(Json::Array).into_iter().collect())
    }

    /// The series of an expression between two times, in seconds since 1970.
    pub fn query_range(&self, expression: &str, times: (f64, f64), step: f64) -> anyhow::Result<Vec<Series>> {
        let (start, end, step) = (times.0.to_string(), times.1.to_string(), step.to_string());
        let parameters = [("query", expression), ("start", &start), ("end", &end), ("step", &step)];
        let data = self.get("query_range", &parameters)?;
        series(&data, |found| found["values"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until an expression has a series.
    #[track_caller]
    pub fn wait_for(&self, expression: &str) {
        poll::until(expression, LIMIT, || match self.query(expression) {
            Ok(found) if found.is_empty() => Err(format!("no series; up: {:?}", self.query("up"))),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:#}")),
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The current time as Prometheus counts it.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn series(data: &Json, samples: impl Fn(&Json) -> Vec<Json>) -> anyhow::Result<Vec<Series>> {
    let found = data["result"].as_array().context("a result")?;
    let number = |value: &Json| value.as_str().and_then(|text| text.parse::<f64>().ok());
    let series = found.iter().map(|found| {
        let pairs = samples(found).into_iter();
        let pairs = pairs.filter_map(|pair| Some((pair[0].as_f64()?, number(&pair[1])?)));
        Series { labels: found["metric"].as_object().cloned().unwrap_or_default(), samples: pairs.collect() }
    });
    Ok(series.collect())
}

fn percent_encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}
