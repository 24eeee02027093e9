//! Instructions of single operations, counted by valgrind's tool callgrind. A regression shows also on a busy machine.
//!
//! The counts depend on the compiler, so that `instructions.txt` has a line for each compiler and count. With another compiler the counts
//! are shown, not judged. Only a release build is measured: `--quick` has no counts.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use grit_proto::{
    runner_wrapper::{CheckStatusRequest, Status, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::{GetStatusRequest, Level, wrapper_client::WrapperClient},
};
use hyper::StatusCode;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

use super::{
    Row, Settings,
    plugin::call_often,
    site::{self, Wrapper},
};
use crate::{
    debian::succeeded,
    lab::http,
    terraform::{self, ClientIdentity, Plugin},
};

const BENCH: &str = "instructions";

/// The allowed increase.
const TOLERANCE: f64 = 1.1;

/// The table, and the variable with which a run writes it.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/instructions.txt");
const UPDATE: &str = "GRIT_UPDATE_INSTRUCTIONS";

/// Repetitions of an operation. The difference between twice as many and these contains no connect and no first call.
const TIMES: usize = 100;

/// The same for calls of the wrapper. How often it waits for the client depends on the scheduling of both: with 100 calls the counts of one
/// build differed by 4 %, with 1,000 calls by 1.5 %.
const STATUS_CALLS: usize = 1000;

/// The first version of valgrind with the system calls of the wrapper, as major and minor number: that of Debian 13.
const FOR_WRAPPER: (u32, u32) = (3, 24);

/// A count and what was counted.
type Count = (&'static str, f64);

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    if settings.quick {
        return Ok(Vec::new());
    }
    let not_measured = |what: &str, why: &str| Row::new(BENCH, what, f64::NAN, "").named(why);
    if ["valgrind", "vgdb"].iter().any(|program| terraform::on_path(program).is_none()) {
        return Ok(vec![not_measured("all", "not measured: valgrind is not installed")]);
    }
    let runtime = Runtime::new()?;
    let mut counts = provider(&runtime)?;
    let mut rows = Vec::new();
    if version()? < FOR_WRAPPER {
        rows.push(not_measured("grit-wrapper", "not measured: valgrind is older than 3.24"));
    } else {
        let (http_server, probes) = runtime.block_on(runner())?;
        counts.push(("wrapper: CheckStatus", status_call(&runtime, &http_server)?));
        counts.push(("wrapper: probe", probe(&runtime, &http_server, &probes)?));
    }

    let compiler = succeeded(Command::new("rustc").arg("--version"))?;
    let compiler = compiler.trim();
    if std::env::var_os(UPDATE).is_some() {
        update(Path::new(TABLE), compiler, &counts)?;
    }
    let table = fs::read_to_string(TABLE).context("read the table of instructions")?;
    rows.extend(counts.into_iter().map(|(what, count)| judge(what, count, expected(&table, compiler, what))));
    Ok(rows)
}

/// The version of valgrind: its line is `valgrind-3.24.0`.
fn version() -> anyhow::Result<(u32, u32)> {
    let line = succeeded(Command::new("valgrind").arg("--version"))?;
    let numbers = line.trim().strip_prefix("valgrind-").and_then(|version| {
        let mut numbers = version.split('.').map_while(|number| number.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    });
    numbers.with_context(|| format!("not a version of valgrind: {line}"))
}

/// From exec to the handshake, and one call of Terraform.
fn provider(runtime: &Runtime) -> anyhow::Result<Vec<Count>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let identity = ClientIdentity::new()?;
    let (command, out) = counted("terraform-provider-grit", folder.path())?;
    let plugin = Plugin::start_by(command, folder.path(), Some(&identity.pem))?;
    let mut parts = Parts::new(plugin.id(), out);
    let start = parts.next()?;

    let mut calls = |numbers: Range<usize>| {
        runtime.block_on(call_often(&plugin, &identity, numbers))?;
        parts.next()
    };
    // The first connection does more than the others.
    calls(0..1)?;
    let (some, twice) = (calls(1..1 + TIMES)?, calls(1 + TIMES..1 + 3 * TIMES)?);
    let call = (twice - some) / TIMES as f64;
    Ok(vec![("provider: exec to handshake line", start), ("provider: PlanResourceChange", call)])
}

fn status_call(runtime: &Runtime, http_server: &str) -> anyhow::Result<f64> {
    let mut counted = Counted::new(runtime, &["--probe-interval", "1h"], http_server)?;
    let mut calls = |number| {
        runtime.block_on(async {
            let mut client = ProcessWrapperClient::new(site::channel(&counted.wrapper.socket).await?);
            for _ in 0..number {
                client.check_status(CheckStatusRequest {}).await?;
            }
            anyhow::Ok(())
        })?;
        counted.parts.next()
    };
    calls(1)?;
    let (some, twice) = (calls(STATUS_CALLS)?, calls(2 * STATUS_CALLS)?);
    Ok((twice - some) / STATUS_CALLS as f64)
}

/// One probe of a runner whose two sections have finished jobs.
fn probe(runtime: &Runtime, http_server: &str, probes: &AtomicUsize) -> anyhow::Result<f64> {
    let mut counted = Counted::new(runtime, &["--probe-interval", "20ms"], http_server)?;
    let wait = |number| {
        let last = probes.load(Ordering::Relaxed) + number;
        crate::poll::until("probes of the runner", Duration::from_secs(120), || {
            let found = probes.load(Ordering::Relaxed);
            if found >= last { Ok(()) } else { Err(found) }
        });
    };
    wait(TIMES);
    runtime.block_on(counted.works())?;
    counted.parts.next()?;
    let before = probes.load(Ordering::Relaxed);
    wait(2 * TIMES);
    let total = counted.parts.next()?;
    Ok(total / (probes.load(Ordering::Relaxed) - before) as f64)
}

/// A wrapper under callgrind, with its runner.
struct Counted {
    wrapper: Wrapper,
    parts: Parts,
    _folder: TempDir,
}

impl Counted {
    fn new(runtime: &Runtime, options: &[&str], http_server: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let config = folder.path().join("config.toml");
        let sections = ["aaaaaaaaa", "bbbbbbbbb"]
            .map(|token| format!("[[runners]]\nname = \"{token}\"\ntoken = \"glrt-{token}\"\n"));
        fs::write(&config, format!("concurrent = 1\n{}", sections.concat())).context("write config.toml")?;
        let port = http_server.rsplit(':').next().context("an address without a port")?;
        let address = format!("127.0.0.2:{port}");
        let options = [options, &["--runner-listen-address", &address]].concat();
        // The words after the port are for the wrapper.
        let config = config.display().to_string();
        let command = ["python3", "-c", RUNNER, port, "run", "--config", &config];
        let (callgrind, out) = counted("grit-wrapper", folder.path())?;
        let wrapper = Wrapper::spawn_by(callgrind, folder.path(), &options, &command)?;
        let parts = Parts::new(wrapper.pid(), out);
        let counted = Self { wrapper, parts, _folder: folder };
        runtime.block_on(counted.wrapper.answers())?;
        crate::poll::until("a runner", Duration::from_secs(60), || {
            runtime.block_on(async {
                let mut client = ProcessWrapperClient::new(site::channel(&counted.wrapper.socket).await?);
                let status = client.check_status(CheckStatusRequest {}).await?.into_inner();
                ensure!(status.status() == Status::Running, "{status:?}");
                Ok(())
            })
        });
        Ok(counted)
    }

    /// An error if the wrapper does not report that the runner finishes jobs: a probe that fails early has fewer instructions.
    async fn works(&self) -> anyhow::Result<()> {
        let mut client = WrapperClient::new(site::channel(&self.wrapper.socket).await?);
        let status = client.get_status(GetStatusRequest {}).await?.into_inner();
        let health = status.health.context("a status without health")?;
        ensure!(health.level() == Level::Working, "not the level of the runner: {health:?}");
        Ok(())
    }
}

/// A runner whose HTTP server is the server of the benchmark: the wrapper accepts responses of the runner's process only.
const RUNNER: &str = "
import socket, sys, threading
def copy(source, target):
    while data := source.recv(65536): target.sendall(data)
    target.shutdown(socket.SHUT_WR)
port = int(sys.argv[1])
listener = socket.create_server(('127.0.0.2', port))
while True:
    client, server = listener.accept()[0], socket.create_connection(('127.0.0.1', port))
    for ends in (client, server), (server, client): threading.Thread(target=copy, args=ends, daemon=True).start()
";

/// A runner's HTTP server, which counts the requests of metrics: one for each probe.
async fn runner() -> anyhow::Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
    let address = listener.local_addr()?.to_string();
    let probes = Arc::new(AtomicUsize::new(0));
    let counter = probes.clone();
    tokio::spawn(http::serve(listener, move |request| {
        let answer = match request.uri().path() {
            "/metrics" => {
                counter.fetch_add(1, Ordering::Relaxed);
                http::text(StatusCode::OK, METRICS)
            }
            "/health/ready" => http::text(StatusCode::OK, "ready\n"),
            "/debug/jobs/list" => http::text(StatusCode::OK, ""),
            _ => http::empty(StatusCode::NOT_FOUND),
        };
        async { answer }
    }));
    Ok((address, probes))
}

const METRICS: &str = r#"gitlab_runner_version_info{revision="r1",version="19.2.0"} 1
gitlab_runner_process_state_info{state="running"} 1
gitlab_runner_concurrent 1
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="aaaaaaaaa",status="204"} 7
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="bbbbbbbbb",status="204"} 7
gitlab_runner_job_duration_seconds_count{runner="aaaaaaaaa"} 3
gitlab_runner_job_duration_seconds_count{runner="bbbbbbbbb"} 3
"#;

/// A program under callgrind, and the file of its counts.
fn counted(program: &str, folder: &Path) -> anyhow::Result<(Command, PathBuf)> {
    let out = folder.join("counts");
    // Its whole path, because the provider's environment has no PATH.
    let mut command = Command::new(terraform::on_path("valgrind").context("no valgrind")?);
    command.args(["-q", "--tool=callgrind", &format!("--callgrind-out-file={}", out.display())]);
    command.arg(pipes(&out)).arg(terraform::built(program)?);
    Ok((command, out))
}

/// The option for vgdb's pipes, which a killed process leaves behind: in the directory of the counts, instead of the one for temporary files.
fn pipes(out: &Path) -> String {
    format!("--vgdb-prefix={}", out.with_file_name("vgdb").display())
}

/// The counts of a process under callgrind, from one request to the next.
struct Parts {
    pid: u32,
    out: PathBuf,
    number: usize,
}

impl Parts {
    fn new(pid: u32, out: PathBuf) -> Self {
        Self { pid, out, number: 0 }
    }

    fn next(&mut self) -> anyhow::Result<f64> {
        self.number += 1;
        let pid = format!("--pid={}", self.pid);
        succeeded(Command::new("vgdb").args([pid, pipes(&self.out)]).arg("dump"))?;
        let path = self.out.with_extension(self.number.to_string());
        let part = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let total = part.lines().find_map(|line| line.strip_prefix("totals: "));
        total.and_then(|total| total.trim().parse().ok()).context("a part without a total")
    }
}

/// The count of the table: `COMPILER | NAME | COUNT`.
fn expected(table: &str, compiler: &str, what: &str) -> Option<f64> {
    let mut lines = table.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
    lines.find_map(|line| match line[..] {
        [of, name, count] if of == compiler && name == what => count.parse().ok(),
        _ => None,
    })
}

fn judge(what: &str, count: f64, expected: Option<f64>) -> Row {
    let row = Row::new(BENCH, what, count / 1e3, "k");
    match expected {
        Some(expected) => Row {
            budget: Some(expected * TOLERANCE / 1e3),
            met: Some(count <= expected * TOLERANCE),
            ..row.against(format!("the table, {:.1} k", expected / 1e3), expected / 1e3)
        },
        None => row.named("the table does not have this compiler"),
    }
}

/// Replaces the lines of these counts.
fn update(table: &Path, compiler: &str, counts: &[Count]) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "the table is for a release build");
    let text = fs::read_to_string(table).context("read the table")?;
    let is_replaced =
        |line: &&str| counts.iter().any(|(what, _)| line.starts_with(&format!("{compiler} | {what} | ")));
    let others = text.lines().filter(|line| !is_replaced(line)).map(str::to_owned);
    let new = counts.iter().map(|(what, count)| format!("{compiler} | {what} | {count:.0}"));
    let lines: Vec<String> = others.chain(new).collect();
    fs::write(table, lines.join("\n") + "\n").context("write the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_increase_above_tolerance_is_missed() {
        let table = "rustc 1 | a | 1000\nrustc 2 | a | 2000\n";
        let met = |compiler, count| judge("a", count, expected(table, compiler, "a")).met;
        assert_eq!(met("rustc 1", 1099.0), Some(true));
        assert_eq!(met("rustc 1", 1101.0), Some(false));
        assert_eq!(met("rustc 2", 1101.0), Some(true));
        assert_eq!(met("rustc 3", 9999.0), None);
    }
}
