//! Processes that a runner leaves behind: jobs in separate process groups that ignore SIGTERM.
//!
//! The child behaves like GitLab Runner: after SIGTERM it waits for its time limit, and exits with code 1 while its jobs keep running.

use std::fs;

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainOutcome, GetStatusRequest},
};
use grit_testkit::{not_covered, rounds};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Start, Wrapper, eventually, is_alive, is_root, kill_group, processes_of};

/// The three jobs of `--stubborn-jobs`.
const JOBS: usize = 3;

const RUNNER: [&str; 5] = ["--stubborn-jobs", "--term-takes", "50", "--code", "1"];

fn start(start: Start, flags: &[&str], habits: &[&str]) -> Wrapper {
    start.flags(&["--start-grace=0s"]).flags(flags).child(habits)
}

/// The processes of the runner: all that have the directory in their arguments, except the wrapper.
fn of_runner(wrapper: &Wrapper) -> Vec<u32> {
    let mut processes = processes_of(wrapper.folder.path());
    processes.retain(|pid| *pid != wrapper.pid());
    processes
}

async fn with_jobs(wrapper: &Wrapper) {
    drop(wrapper.client().await);
    wrapper.logged("runner started").await;
    eventually("the runner and its jobs", async || {
        let processes = of_runner(wrapper);
        // The shell that left its job, and a process before its exec, exist for a short time.
        if wrapper.record().starts_with("ready") && processes.len() == 1 + JOBS {
            Ok(())
        } else {
            Err(processes)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_leaves_no_process() {
    for round in 0..rounds(2, 100) {
        // Both exits of a runner with jobs that ignore SIGTERM.
        let killed = round % 2 == 1;
        let habits = if killed { &["--stubborn-jobs", "--ignore-term"][..] } else { &RUNNER[..] };
        let flags = ["--process-termination-timeout", if killed { "100ms" } else { "60s" }];
        let wrapper = start(Start::new(), &flags, habits);
        with_jobs(&wrapper).await;
        let mut client = wrapper.v1_client().await;
        wrapper.client().await.forceful().await;
        wrapper.client().await.becomes(Status::Stopped).await;
        // At the time at which a caller may destroy the machine.
        assert_eq!(of_runner(&wrapper), Vec::<u32>::new(), "round {round}");
        let drain = client.get_status(GetStatusRequest {}).await.unwrap().into_inner().drain.unwrap();
        let outcome = if killed { DrainOutcome::Killed } else { DrainOutcome::Failed };
        assert_eq!(drain.outcome(), outcome, "round {round}: {drain:?}");
    }
}

/// The processes that a crashed runner left, as the log reports them.
fn reported(wrapper: &Wrapper) -> Vec<Value> {
    let log = wrapper.read("log");
    let lines = log.lines().filter(|line| line.contains("a process of the runner is still running"));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_reports_leftover_processes() {
    let wrapper = start(Start::new(), &[], &RUNNER);
    with_jobs(&wrapper).await;
    kill_group(wrapper.child_pid()).await;
    wrapper.client().await.becomes(Status::Stopped).await;
    let jobs = of_runner(&wrapper);
    assert_eq!(jobs.len(), JOBS, "a crash ends no job");
    // The search for them does not delay the new state.
    eventually("the reports", async || {
        let reported = reported(&wrapper);
        let is_reported = |job: &u32| {
            let is_complete =
                |line: &Value| line["pid"] == *job && line["age_seconds"].is_u64() && line["command"] == "sh";
            reported.iter().any(is_complete)
        };
        if jobs.iter().all(is_reported) { Ok(()) } else { Err(reported) }
    })
    .await;
}

/// A runner's zombies become children of the wrapper when the runner exits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zombies_of_drained_runner_are_not_reported() {
    let mut wrapper = start(Start::new(), &[], &["--zombies"]);
    wrapper.child_ready().await;
    let runner = wrapper.child_pid();
    let children = || fs::read_to_string(format!("/proc/{runner}/task/{runner}/children")).unwrap();
    eventually("two zombies", async || {
        let children = children();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        if pids.filter(|pid| !is_alive(*pid)).count() == 2 { Ok(()) } else { Err(children) }
    })
    .await;
    wrapper.client().await.graceful().await;
    wrapper.client().await.becomes(Status::Stopped).await;
    // The wrapper searches for left processes before it handles this signal.
    wrapper.signal(Signal::TERM);
    wrapper.ended().await;
    assert_eq!(reported(&wrapper), Vec::<Value>::new());
}

/// Only processes that a job started belong to the runner, not similar ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_spares_unrelated_processes() {
    let wrapper = start(Start::new(), &[], &RUNNER);
    with_jobs(&wrapper).await;
    // The runner and jobs of another wrapper, and a process of the test.
    let other = start(Start::new(), &[], &RUNNER);
    with_jobs(&other).await;
    let mut unrelated = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    wrapper.client().await.forceful().await;
    wrapper.client().await.becomes(Status::Stopped).await;
    assert_eq!(of_runner(&wrapper), Vec::<u32>::new());
    assert_eq!(of_runner(&other).len(), 1 + JOBS);
    assert!(is_alive(unrelated.id()));
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

/// As process 1 of a container, the wrapper reaps orphans.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphan_zombies_are_reaped_by_wrapper_as_pid_1() {
    if !is_root() {
        not_covered("a wrapper that is process 1", "only root may make a namespace of processes here");
        return;
    }
    // Each of these leaves a child that exits soon, and whose parent has exited.
    let orphans = "for i in 1 2 3; do (setsid sleep 0.2 &); done; echo started > $0; sleep 1000";
    let begin = Start::new().through(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let folder = begin.folder_path();
    let started = folder.join("started");
    let wrapper = begin.command(&["sh", "-c", orphans, started.to_str().unwrap()]);
    eventually("the orphans are made", async || fs::metadata(&started).map_err(|error| error.to_string()))
        .await;
    // The wrapper is the only child of `unshare`.
    let children =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let first: u32 = children(wrapper.pid()).trim().parse().unwrap();
    eventually("only the runner is left", async || {
        let left = children(first);
        if left.split_whitespace().count() == 1 { Ok(()) } else { Err(left) }
    })
    .await;
}
