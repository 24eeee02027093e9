//! Runs each command and request of docs/wrapper/ (README.md, draining.md, metrics.md) unchanged, with text output and with JSON.

use std::{
    io::Read as _,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::{
    health_levels::{CONFIG, Runner, VERSION, polls, watched},
    support::{Start, Wrapper, eventually},
    web::{ask, ready_at},
};

const COMMANDS: &str = include_str!("../../../docs/wrapper/draining.md");
const README: &str = include_str!("../../../docs/wrapper/README.md");
const REQUESTS: &str = include_str!("../../../docs/wrapper/metrics.md");

/// The examples of one section that begin with `program`. A test removes and checks each one, and fails if one remains.
struct Examples(Vec<&'static str>);

impl Examples {
    fn of(document: &'static str, section: &str, program: &str) -> Self {
        let (_, rest) = document.split_once(&format!("\n## {section}\n")).unwrap();
        let section = rest.split("\n## ").next().unwrap();
        let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
        Self(lines.filter(|line| line.starts_with(program)).collect())
    }

    fn take(&mut self, beginning: &str) -> &'static str {
        let at = self.0.iter().position(|line| line.starts_with(beginning));
        self.0.remove(at.unwrap_or_else(|| panic!("{beginning} is not among {:?}", self.0)))
    }
}

impl Drop for Examples {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.0.is_empty(), "shown, and not run: {:?}", self.0);
    }
}

/// Runs a line as in a shell.
fn typed(wrapper: &Wrapper, line: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env_remove("CI_JOB_URL").stdin(Stdio::null());
    on_path(&mut shell, wrapper).output().unwrap()
}

/// With the program first on PATH, and the wrapper at its default address.
fn on_path<'a>(command: &'a mut Command, wrapper: &Wrapper) -> &'a mut Command {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_grit-wrapper"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let address = format!("unix://{}", wrapper.path("w.sock").display());
    command.env("PATH", path).env("GRIT_WRAPPER_ADDRESS", address)
}

#[track_caller]
fn people(wrapper: &Wrapper, line: &str) -> String {
    let output = typed(wrapper, line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{line}: {text}");
    text
}

#[track_caller]
fn programs(wrapper: &Wrapper, line: &str) -> Value {
    let command = line.split('#').next().unwrap().trim_end();
    // A command that waits writes one JSON object for each change.
    let text = people(wrapper, &format!("{command} --json"));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[track_caller]
fn shows(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}: {text}");
    }
}

const JOBS: &str = "url=https://gitlab.example/secret/project/-/jobs/18 state=running stage=prepare_script executor_stage=docker_run duration=4.5s\n\
                    url=https://gitlab.example/secret/project/-/jobs/17 state=running stage=step_script executor_stage=docker_run duration=2h10m3s\n";

/// A runner that polls and has two jobs, and needs this many milliseconds to drain.
async fn busy(runner: &Runner, takes: &str) -> Wrapper {
    runner.says("/health/ready", 200, "ready\n");
    let both = polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", 201, 1);
    runner.says("/metrics", 200, &(VERSION.to_owned() + &both));
    runner.says("/debug/jobs/list", 200, JOBS);
    let (wrapper, _) = watched(Some(runner), Some(CONFIG), &["--jobs-take", takes]).await;
    wrapper.child_ready().await;
    wrapper
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_commands_work() {
    let runner = Runner::new().await;
    let wrapper = busy(&runner, "200").await;
    let mut shown = Examples::of(COMMANDS, "Commands", "grit-wrapper ");

    let wait = shown.take("grit-wrapper wait --for polling");
    shows(&people(&wrapper, wait), &["state      running", "health     polling"]);
    assert_eq!(programs(&wrapper, wait)["health"]["level"], "polling");

    let status = shown.take("grit-wrapper status");
    shows(
        &people(&wrapper, status),
        &[
            "state      running",
            "pid ",
            "version    19.2.0",
            "jobs       2",
            "oldest job 2h10m, stage step_script",
        ],
    );
    let json = programs(&wrapper, status);
    assert_eq!((&json["pid"], &json["health"]["jobs"]), (&wrapper.child_pid().into(), &2.into()), "{json}");

    let jobs = shown.take("grit-wrapper jobs");
    let text = people(&wrapper, jobs);
    let fields = |line| str::split(line, "  ").map(str::trim).filter(|field| !field.is_empty()).collect();
    let columns: Vec<Vec<&str>> = text.lines().map(fields).collect();
    assert_eq!(
        columns,
        [
            ["JOB", "STATE", "STAGE", "EXECUTOR STAGE", "AGE"],
            ["17", "running", "step_script", "docker_run", "2h10m"],
            ["18", "running", "prepare_script", "docker_run", "4s"],
        ]
    );
    let json = programs(&wrapper, jobs);
    assert_eq!(json[0]["id"].as_u64().max(json[1]["id"].as_u64()), Some(18), "{json}");
    assert!(!format!("{text}{json}").contains("gitlab.example"), "a project shows");

    // In a job of this runner, as in every CI job, CI_JOB_URL is set.
    let self_job = "CI_JOB_URL=https://gitlab.example/secret/project/-/jobs/17";
    let refused = typed(&wrapper, &format!("{self_job} grit-wrapper drain --wait"));
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && errors.contains("run the job on another runner"), "{errors}");
    assert_eq!(wrapper.record(), "ready");

    let start = shown.take("grit-wrapper start");
    let drain = shown.take("grit-wrapper drain --id deploy-7");
    let drained =
        ["state      stopped", "exit       code 0", "drain      graceful, id deploy-7, reason: version 2"];
    shows(&people(&wrapper, drain), &drained);
    shows(&people(&wrapper, start), &["state      running"]);
    let json = programs(&wrapper, drain);
    assert_eq!(
        (&json["state"], &json["drain"]["reason"]),
        (&"stopped".into(), &"version 2".into()),
        "{json}"
    );
    assert_eq!(programs(&wrapper, start)["state"], "running");

    // A runner without its signal handlers would be killed by SIGTERM, and the command would report that.
    let ready = async |runners: usize| {
        eventually("the last runner is ready", async || {
            let record = wrapper.record();
            if record.matches("ready").count() == runners { Ok(()) } else { Err(record) }
        })
        .await;
    };
    ready(3).await;
    let force = shown.take("grit-wrapper drain --force");
    shows(&people(&wrapper, force), &["state      stopped", "drain      forceful, id operator"]);
    people(&wrapper, start);
    ready(4).await;
    assert_eq!(programs(&wrapper, force)["drain"]["mode"], "forceful");
    people(&wrapper, start);

    let dated = shown.take("grit-wrapper drain --deadline 2h");
    shows(&people(&wrapper, dated), &["drain      graceful, id operator", "deadline   20"]);
    people(&wrapper, "grit-wrapper wait && grit-wrapper start");
    assert!(programs(&wrapper, dated)["drain"]["deadline"].is_string());

    // Before SIGQUIT is sent.
    let young = Start::new().flags(&["--start-grace=1h"]).child(&[]);
    drop(young.client().await);
    young.child_ready().await;
    let cancel = shown.take("grit-wrapper cancel");
    people(&young, "grit-wrapper drain");
    shows(&people(&young, cancel), &["state      running"]);
    people(&young, "grit-wrapper drain");
    assert_eq!(programs(&young, cancel)["drain"], Value::Null);
}

#[test]
fn readme_commands_are_those_that_run() {
    let of = |document: &'static str| {
        let lines = document.lines().filter_map(|line| line.strip_prefix("    grit-wrapper "));
        lines.filter(|line| !line.starts_with("run ")).collect::<Vec<_>>()
    };
    let (readme, commands) = (of(README), of(COMMANDS));
    assert!(readme.len() == 3 && readme.iter().all(|line| commands.contains(line)), "{readme:?}");
}

#[tokio::test]
async fn documented_http_requests_work() {
    let wrapper = Start::new().flags(&["--http-listen=tcp://127.0.0.1:0"]).child(&[]);
    let url = ready_at(&wrapper).await;
    let mut shown = Examples::of(REQUESTS, "HTTP endpoints", "curl ");
    let mut get = async |line: &'static str| {
        let path = shown.take(line).strip_prefix("curl http://127.0.0.1:9253").unwrap();
        let (status, body) = ask(&url, path).await;
        assert_eq!(status, 200, "{line}: {body}");
        body
    };
    assert!(get("curl http://127.0.0.1:9253/metrics").await.contains("grit_wrapper_runner_up 1\n"));
    let status: Value = serde_json::from_str(&get("curl http://127.0.0.1:9253/status").await).unwrap();
    assert_eq!(status["pid"], wrapper.child_pid());
}

/// A command on a terminal, which util-linux' `script` creates. It exits with its test.
struct Terminal {
    process: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn new(wrapper: &Wrapper, line: &str) -> Self {
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", line, "/dev/null"]);
        let script = on_path(&mut script, wrapper).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = script.spawn().unwrap();
        let mut output = process.stdout.take().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut part) {
                kept.lock().unwrap().extend(&part[..read]);
            }
        });
        Self { process, seen }
    }

    async fn shows(&self, text: &str) {
        eventually(text, async || {
            let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
            if seen.contains(text) { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program on the terminal receives SIGHUP.
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_shows_progress_in_one_terminal_line() {
    let runner = Runner::new().await;
    let mut wrapper = busy(&runner, "60000").await;
    people(&wrapper, "grit-wrapper drain --id deploy-7");
    let mut terminal = Terminal::new(&wrapper, "grit-wrapper wait");
    terminal.shows("\r\u{1b}[Kis draining, 2 jobs, oldest job 2h10m in stage step_script").await;
    let (_, last) = JOBS.split_once('\n').unwrap();
    runner.says("/debug/jobs/list", 200, last);
    terminal.shows("\r\u{1b}[Kis draining, 1 job, oldest job 2h10m in stage step_script; waited ").await;

    // The wrapper is killed during the wait, and the wait continues.
    wrapper.signal(rustix::process::Signal::KILL);
    terminal.shows("\r\u{1b}[Kis in an unknown state: the wrapper does not respond").await;
    assert_eq!(terminal.process.try_wait().unwrap(), None);
    wrapper.ended().await;
    let next = Start::again(wrapper.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    drop(next.client().await);
    people(&next, "grit-wrapper drain --force");
    terminal.shows("\r\nstate      stopped\r\n").await;
    // Another client aborted the jobs, so the drain is not clean.
    assert_eq!(terminal.process.wait().unwrap().code(), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_drain_ends_wait() {
    let wrapper = Start::new().flags(&["--start-grace=1h"]).child(&[]);
    wrapper.child_ready().await;
    let mut terminal = Terminal::new(&wrapper, "grit-wrapper drain --wait");
    terminal.shows("is draining").await;
    people(&wrapper, "grit-wrapper cancel");
    terminal.shows("the drain was cancelled, and the runner keeps running").await;
    assert_eq!(terminal.process.wait().unwrap().code(), Some(1));
}

/// Each level is waited for, not the level below it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_ends_exactly_at_requested_level() {
    let runner = Runner::new().await;
    runner.says("/health/ready", 503, "boot-verify pending\n");
    runner.says("/metrics", 200, VERSION);
    let (wrapper, _) = watched(Some(&runner), Some(CONFIG), &[]).await;
    let wait = |rung: &str, limit: &str| {
        typed(&wrapper, &format!("grit-wrapper wait --for {rung} --timeout {limit}")).status.code()
    };
    assert_eq!((wait("process", "60s"), wait("ready", "300ms")), (Some(0), Some(3)));
    runner.says("/health/ready", 200, "ready\n");
    assert_eq!((wait("ready", "60s"), wait("polling", "300ms")), (Some(0), Some(3)));
    let both = polls("aaaaaaaaa", 204, 1) + &polls("bbbbbbbbb", 201, 1);
    runner.says("/metrics", 200, &(VERSION.to_owned() + &both));
    assert_eq!((wait("polling", "60s"), wait("stopped", "300ms")), (Some(0), Some(3)));
}
