//! Processes that a runner leaves behind: jobs in separate process groups that ignore SIGTERM.
//!
//! The child behaves like GitLab Runner: after SIGTERM it waits for its time limit, and exits with code 1 while its jobs keep running.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainOutcome, GetStatusRequest},
};
use grit_testkit::{not_covered, rounds};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::{
    cgroup::Delegated,
    support::{Start, Wrapper, eventually, is_alive, is_root, kill_group, pid, processes_of},
};

/// The three jobs of `--stubborn-jobs`.
const JOBS: usize = 3;

pub(crate) const RUNNER: [&str; 5] = ["--stubborn-jobs", "--term-takes", "50", "--code", "1"];

pub(crate) fn start(start: Start, cgroup: Option<&Delegated>, flags: &[&str], habits: &[&str]) -> Wrapper {
    let start = start.flags(&["--start-grace=0s"]).flags(flags);
    let start = match cgroup {
        Some(cgroup) => {
            let into = cgroup.script_into();
            start.through(&["/bin/sh", "-c", &into, "sh"])
        }
        None => start,
    };
    start.child(habits)
}

/// The processes of the runner: all that have the directory in their arguments, except the wrapper.
pub(crate) fn of_runner(wrapper: &Wrapper) -> Vec<u32> {
    let mut processes = processes_of(wrapper.folder.path());
    processes.retain(|pid| *pid != wrapper.pid());
    processes
}

pub(crate) async fn with_jobs(wrapper: &Wrapper) {
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

async fn forceful_stops(rounds: u32, adopted: bool, with_cgroup: bool) {
    let name = if adopted { "adopted" } else { "own" };
    let cgroup = if with_cgroup {
        let Some(cgroup) = Delegated::new(name) else {
            not_covered(
                "the end of a runner's cgroup",
                "no cgroup of version 2 can be delegated here (root makes them)",
            );
            return;
        };
        Some(cgroup)
    } else {
        None
    };
    for round in 0..rounds {
        // Both exits of a runner with jobs that ignore SIGTERM.
        let killed = round % 2 == 1;
        let habits = if killed { &["--stubborn-jobs", "--ignore-term"][..] } else { &RUNNER[..] };
        let flags = ["--process-termination-timeout", if killed { "100ms" } else { "60s" }];
        let mut wrapper = start(Start::new(), cgroup.as_ref(), &flags, habits);
        with_jobs(&wrapper).await;
        if adopted {
            wrapper.signal(Signal::KILL);
            wrapper.ended().await;
            wrapper = start(Start::again(wrapper.into_folder()), cgroup.as_ref(), &flags, habits);
        }
        let mut client = wrapper.v1_client().await;
        wrapper.client().await.forceful().await;
        wrapper.client().await.becomes(Status::Stopped).await;
        // At the time at which a caller may destroy the machine.
        let left = of_runner(&wrapper);
        if adopted && cgroup.is_none() {
            // The parent of this job had exited before the wrapper was killed, so that only a cgroup would reveal the job.
            assert_eq!(left.len(), 1, "round {round}: {left:?}");
        } else {
            assert_eq!(left, Vec::<u32>::new(), "round {round}");
        }
        let drain = client.get_status(GetStatusRequest {}).await.unwrap().into_inner().drain.unwrap();
        let outcomes: &[_] = match (killed, adopted) {
            (true, _) => &[DrainOutcome::Killed],
            (false, false) => &[DrainOutcome::Failed],
            // Its parent may have reaped it before the wrapper.
            (false, true) => &[DrainOutcome::Failed, DrainOutcome::Unknown],
        };
        assert!(outcomes.contains(&drain.outcome()), "round {round}: {drain:?}");
        if let Some(cgroup) = &cgroup {
            assert_eq!(cgroup.runners(), Vec::<PathBuf>::new(), "round {round}: a cgroup is left");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_leaves_no_process() {
    forceful_stops(rounds(2, 100), false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_of_adopted_runner_kills_its_descendants() {
    forceful_stops(rounds(2, 100), true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_with_a_cgroup_leaves_no_process() {
    forceful_stops(rounds(2, 100), false, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_of_adopted_cgroup_leaves_no_process() {
    forceful_stops(rounds(2, 100), true, true).await;
}

/// The runner is in a separate cgroup, without the wrapper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_runs_in_separate_cgroup_if_delegated() {
    let Some(cgroup) = Delegated::new("where") else {
        not_covered("a runner's cgroup", "no cgroup of version 2 can be delegated here (root makes them)");
        return;
    };
    let wrapper = start(Start::new(), Some(&cgroup), &[], &RUNNER);
    with_jobs(&wrapper).await;
    let members = |folder: &Path| fs::read_to_string(folder.join("cgroup.procs")).unwrap();
    assert_eq!(members(cgroup.folder()), format!("{}\n", wrapper.pid()));
    let runners = cgroup.runners();
    assert_eq!(runners.len(), 1, "{runners:?}");
    for process in of_runner(&wrapper) {
        assert!(members(&runners[0]).lines().any(|line| line == process.to_string()), "{process}");
    }
}

/// If the wrapper is killed during a forceful stop, before the jobs have ended, the next wrapper completes the stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_wrapper_finishes_interrupted_forceful_stop() {
    let habits = ["--stubborn-jobs", "--ignore-term"];
    let mut wrapper = start(Start::new(), None, &["--process-termination-timeout=60s"], &habits);
    with_jobs(&wrapper).await;
    wrapper.client().await.forceful().await;
    wrapper.recorded("ready TERM").await;
    let runner = wrapper.child_pid();
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    kill_group(runner).await;
    assert_eq!(of_runner(&wrapper).len(), JOBS, "they outlive both");
    let wrapper = start(Start::again(wrapper.into_folder()), None, &[], &habits);
    wrapper.client().await.becomes(Status::Stopped).await;
    assert_eq!(of_runner(&wrapper), Vec::<u32>::new());
}

/// The processes that a crashed runner left, as the log reports them.
fn reported(wrapper: &Wrapper) -> Vec<Value> {
    let log = wrapper.read("log");
    let lines = log.lines().filter(|line| line.contains("a process of the runner is still running"));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_reports_leftover_processes() {
    let wrapper = start(Start::new(), None, &[], &RUNNER);
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
    let mut wrapper = start(Start::new(), None, &[], &["--zombies"]);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_kills_leftover_processes_if_configured() {
    let wrapper = start(Start::new(), None, &["--leftover-processes=kill"], &RUNNER);
    with_jobs(&wrapper).await;
    kill_group(wrapper.child_pid()).await;
    wrapper.client().await.becomes(Status::Stopped).await;
    assert_eq!(of_runner(&wrapper), Vec::<u32>::new());
}

/// A wrapper whose adopted runner has crashed, before its processes were recorded.
async fn after_crash_of_adopted(cgroup: Option<&Delegated>) -> Wrapper {
    let flags = ["--leftover-processes=kill"];
    let mut wrapper = start(Start::new(), cgroup, &flags, &RUNNER);
    with_jobs(&wrapper).await;
    let runner = wrapper.child_pid();
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let wrapper = start(Start::again(wrapper.into_folder()), cgroup, &flags, &RUNNER);
    wrapper.logged("adopting the runner").await;
    kill_group(runner).await;
    wrapper.client().await.becomes(Status::Stopped).await;
    wrapper
}

/// The wrapper is not an ancestor of the jobs, and their parent has exited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_only_the_cgroup_reveals_are_killed() {
    let Some(cgroup) = Delegated::new("only") else {
        not_covered(
            "the end of a job by its cgroup",
            "no cgroup of version 2 can be delegated here (root makes them)",
        );
        return;
    };
    let wrapper = after_crash_of_adopted(None).await;
    assert_eq!(of_runner(&wrapper).len(), JOBS, "without a cgroup they are not found");

    let wrapper = after_crash_of_adopted(Some(&cgroup)).await;
    assert_eq!(of_runner(&wrapper), Vec::<u32>::new());
    assert_eq!(cgroup.runners(), Vec::<PathBuf>::new(), "the cgroup is left");
}

/// Only processes that a job started belong to the runner, not similar ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forceful_stop_spares_unrelated_processes() {
    let wrapper = start(Start::new(), None, &[], &RUNNER);
    with_jobs(&wrapper).await;
    // The runner and jobs of another wrapper, and a process of the test.
    let other = start(Start::new(), None, &[], &RUNNER);
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

/// The kernel kills all processes of a PID namespace with its process 1, which an upgrade does not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrapper_as_pid_1_is_upgraded() {
    if !is_root() {
        not_covered("a wrapper that is process 1", "only root may make a namespace of processes here");
        return;
    }
    let begin = Start::new().through(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let started = begin.folder_path().join("started");
    let wrapper =
        begin.command(&["sh", "-c", "echo started > $0; exec sleep 1000", started.to_str().unwrap()]);
    eventually("the runner runs", async || fs::metadata(&started).map_err(|error| error.to_string())).await;
    // The wrapper is the only child of `unshare`.
    let parent = wrapper.pid();
    let first = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    kill_process(pid(first.trim().parse().unwrap()), Signal::USR1).unwrap();
    wrapper.logged("upgraded: supervising the same runner").await;
    assert_eq!(wrapper.client().await.status().await.0, Status::Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adoption_with_different_command_warns() {
    let mut wrapper = start(Start::new(), None, &[], &[]);
    wrapper.child_ready().await;
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let mut wrapper = start(Start::again(wrapper.into_folder()), None, &[], &[]);
    wrapper.logged("adopting the runner").await;
    let warning = "keeps running with the command of the previous wrapper";
    assert!(!wrapper.read("log").contains(warning), "it is the same command");
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let wrapper = start(Start::again(wrapper.into_folder()), None, &[], &["--code", "1"]);
    wrapper.logged(warning).await;
}
