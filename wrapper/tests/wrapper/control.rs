//! Control calls: accepted calls are executed even if the client is gone, calls join, and long responses are limited.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::Status as Upstream,
    wrapper_v1::{DrainRequest, GetStatusRequest, ListJobsRequest, Mode, StartRequest, State},
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    health_levels::Runner,
    operator::{json, operator, ready, stderr},
    support::{Start, Wrapper, pid},
};

const JOB: &str = "https://gitlab.example/group/project/-/jobs/17";

/// A request from a job, so that the wrapper first requests the job list of the runner.
fn from_a_job(id: &str) -> DrainRequest {
    DrainRequest { id: id.to_owned(), job_url: JOB.to_owned(), ..DrainRequest::default() }
}

/// A wrapper whose runner needs a minute for its job list, and that runner.
async fn with_a_runner_that_hangs() -> (Wrapper, Runner) {
    let runner = Runner::new().await;
    runner.says("/debug/jobs/list", 200, &format!("url={JOB} state=running\n"));
    runner.list_takes(Duration::from_secs(60));
    let wrapper = Start::new().flags(&["--start-grace=0s"]).runner(&runner).child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    runner.listens().await;
    (wrapper, runner)
}

/// Waits until the runner has exited, and starts it again.
async fn drained(wrapper: &Wrapper, runner: &Runner, id: &str) {
    wrapper.client().await.becomes(Upstream::Stopped).await;
    let mut client = wrapper.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.drain.unwrap().id, id);
    client.start(StartRequest {}).await.unwrap();
    runner.listens().await;
}

#[tokio::test]
async fn drain_continues_if_client_leaves_during_self_check() {
    let (wrapper, runner) = with_a_runner_that_hangs().await;
    let moment = Duration::from_millis(300);

    let mut client = wrapper.v1_client().await;
    let mut request = tonic::Request::new(from_a_job("client deadline"));
    request.set_timeout(moment);
    client.drain(request).await.unwrap_err();
    drained(&wrapper, &runner, "client deadline").await;

    // Dropping the future of a call resets the call (RST_STREAM); the connection stays open.
    timeout(moment, client.drain(from_a_job("reset"))).await.unwrap_err();
    drained(&wrapper, &runner, "reset").await;

    let mut other = wrapper.v1_client().await;
    timeout(moment, other.drain(from_a_job("closed"))).await.unwrap_err();
    drop(other);
    drained(&wrapper, &runner, "closed").await;

    // As `timeout -s INT 1` does, but always during the call.
    let mut command = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
        .args(["drain", "--id", "command"])
        .env("GRIT_WRAPPER_ADDRESS", format!("unix://{}", wrapper.path("w.sock").display()))
        .env("CI_JOB_URL", JOB)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wrapper.logged("\"id\":\"closed\"").await;
    tokio::time::sleep(2 * moment).await;
    kill_process(pid(command.id()), Signal::INT).unwrap();
    command.wait().unwrap();
    drained(&wrapper, &runner, "command").await;

    crate::support::eventually("each check took longer than its limit", async || {
        let skipped = wrapper.read("log").matches("skipping the self-drain check").count();
        if skipped == 4 { Ok(()) } else { Err(skipped) }
    })
    .await;
}

#[tokio::test]
async fn drain_is_answered_if_self_drain_check_hangs() {
    let (wrapper, _runner) = with_a_runner_that_hangs().await;
    let mut client = wrapper.v1_client().await;
    let begin = Instant::now();
    let answer = client.drain(from_a_job("patient")).await.unwrap().into_inner();
    let took = begin.elapsed();
    assert!(!answer.joined);
    // The limit of the check is 1 s, that of the request to the runner 3 s, and that of a call 60 s.
    assert!(took < Duration::from_secs(3), "{took:?}");
    wrapper.logged("timed out reading the runner's job list").await;
    wrapper.recorded("ready QUIT").await;
}

#[tokio::test]
async fn joined_drain_is_reported_by_every_interface() {
    let wrapper = ready(&[], &["--ignore-quit"]).await;
    let first = json(&operator(&wrapper, &["drain", "--id", "a", "--deadline", "1h", "--json"]));
    assert_eq!((&first["joined"], &first["joined_id"]), (&false.into(), &Value::Null));
    let deadline = &first["drain"]["deadline"];

    let text = operator(&wrapper, &["drain", "--id", "b", "--deadline", "2h"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.starts_with("note       joined the drain \"a\", which is already in progress\nstate "),
        "{text}"
    );
    let same = operator(&wrapper, &["drain", "--id", "a"]);
    let same = String::from_utf8(same.stdout).unwrap();
    assert!(
        same.starts_with("note       joined the drain with this id, which is already in progress\n"),
        "{same}"
    );
    let waits = operator(&wrapper, &["drain", "--id", "b", "--wait", "--timeout", "100ms"]);
    assert!(stderr(&waits).contains("joined the drain \"a\", which is already in progress"), "{waits:?}");
    let program = json(&operator(&wrapper, &["drain", "--id", "b", "--json"]));
    assert_eq!((&program["joined"], &program["joined_id"]), (&true.into(), &"a".into()));
    assert_eq!(
        (&program["drain"]["id"], &program["drain"]["deadline"]),
        (&"a".into(), deadline),
        "not later"
    );

    let earlier = json(&operator(&wrapper, &["drain", "--id", "c", "--deadline", "30m", "--json"]));
    assert_eq!((&earlier["joined"], &earlier["joined_id"]), (&true.into(), &"a".into()));
    assert_ne!(&earlier["drain"]["deadline"], deadline, "earlier");

    let forceful =
        DrainRequest { id: "d".to_owned(), mode: Mode::Forceful.into(), ..DrainRequest::default() };
    wrapper.recorded("ready QUIT").await;
    let answer = wrapper.v1_client().await.drain(forceful.clone()).await.unwrap().into_inner();
    assert_eq!((answer.joined, answer.joined_id.as_str()), (true, "a"));
    assert_eq!(answer.status.unwrap().drain.unwrap().mode(), Mode::Forceful);
    wrapper.client().await.becomes(Upstream::Stopped).await;
    let answer = wrapper.v1_client().await.drain(forceful).await.unwrap().into_inner();
    assert_eq!((answer.joined, answer.joined_id.as_str()), (true, ""));
    let late = operator(&wrapper, &["drain"]);
    let late = String::from_utf8(late.stdout).unwrap();
    assert!(
        late.starts_with("note       the runner has already exited; there is nothing to drain\n"),
        "{late}"
    );
}

/// `systemctl stop` without a time limit waits for jobs that may never finish.
#[tokio::test]
async fn deadline_of_joining_drain_limits_signal_drain() {
    let mut wrapper = ready(&[], &["--ignore-quit"]).await;
    wrapper.signal(Signal::TERM);
    wrapper.recorded("ready QUIT").await;
    let joined = json(&operator(&wrapper, &["drain", "--id", "b", "--deadline", "500ms", "--json"]));
    assert_eq!((&joined["joined"], &joined["joined_id"]), (&true.into(), &"signal".into()));
    wrapper.recorded("ready QUIT TERM").await;
    wrapper.ended().await;
}

#[tokio::test]
async fn last_drain_is_reported_after_start() {
    let wrapper = ready(&[], &["--code", "7"]).await;
    json(&operator(&wrapper, &["drain", "--id", "deploy-7", "--reason", "version 2", "--json"]));
    wrapper.client().await.becomes(Upstream::Stopped).await;
    json(&operator(&wrapper, &["start", "--json"]));
    wrapper.recorded("ready QUIT ready").await;
    let last_drain = |wrapper: &Wrapper| {
        let status = json(&operator(wrapper, &["status", "--json"]));
        assert_eq!((&status["state"], &status["drain"]), (&"running".into(), &Value::Null));
        status["last_drain"].clone()
    };
    let last = last_drain(&wrapper);
    assert_eq!((&last["id"], &last["reason"]), (&"deploy-7".into(), &"version 2".into()));
    assert_eq!(last["exit"]["how"]["code"], 7);
    let uid = rustix::process::geteuid().as_raw();
    assert!(last["requested_by"].as_str().unwrap().starts_with(&format!("uid {uid}")), "{last}");
}

#[tokio::test]
async fn drain_reports_who_made_it_forceful() {
    let wrapper = ready(&[], &["--ignore-quit", "--ignore-term"]).await;
    operator(&wrapper, &["drain", "--id", "deploy-7"]);
    wrapper.recorded("ready QUIT").await;
    let forced_by = |wrapper: &Wrapper| {
        let drain = json(&operator(wrapper, &["status", "--json"]))["drain"].clone();
        assert_eq!(drain["id"], "deploy-7");
        drain["forced_by"].as_str().unwrap().to_owned()
    };
    assert_eq!(forced_by(&wrapper), "");
    operator(&wrapper, &["drain", "--force"]);
    let by = forced_by(&wrapper);
    let uid = rustix::process::geteuid().as_raw();
    assert!(by.starts_with(&format!("uid {uid}")), "{by}");
    // Only the first one counts.
    wrapper.client().await.forceful().await;
    assert_eq!(forced_by(&wrapper), by);

    let (mut process, folder) = wrapper.into_parts();
    process.kill().unwrap();
    process.wait().unwrap();
    let next = Start::again(folder).flags(&["--start-grace=0s"]).child(&[]);
    drop(next.client().await);
    assert_eq!(forced_by(&next), by);
}

/// A runner with 1,000 sections, 5,000 jobs and 20 MB of metrics.
///
/// The commands are processes that this test waits for, while the runner's server responds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_runner_is_probed_and_drained() {
    let runner = Runner::new().await;
    let job = |id: u32| {
        format!(
            "url=https://gitlab.example/group/project/-/jobs/{id} state=running stage=step_script executor_stage=docker_run duration={id}s\n"
        )
    };
    runner.says("/health/ready", 200, "ok");
    let bucket = |at: u32| {
        format!(
            "gitlab_runner_job_queue_duration_seconds_bucket{{project_jobs_running=\"{at}\",runner=\"short-token\",system_id=\"s_0123456789ab\",le=\"1\"}} {at}\n"
        )
    };
    let buckets: String = (0..160_000).map(bucket).collect();
    assert!(buckets.len() > 20_000_000, "{}", buckets.len());
    let limit = |at| format!("gitlab_runner_limit{{runner=\"{at:09}\",runner_name=\"number {at}\"}} 0\n");
    let limits: String = (0..1000).map(limit).collect();
    runner.says("/metrics", 200, &(buckets + &limits + crate::health_levels::VERSION));
    runner.says("/debug/jobs/list", 200, &(1..=5000).map(job).collect::<String>());
    let sections: String = (0..1000)
        .map(|at| {
            format!(
                "[[runners]]\nname = \"a runner with a long name, number {at}\"\ntoken = \"glrt-{at:012}\"\n"
            )
        })
        .collect();
    let habits = ["--jobs-take", "300"];
    let (wrapper, mut client) = crate::health_levels::watched(Some(&runner), Some(&sections), &habits).await;
    wrapper.child_ready().await;
    let health = crate::support::eventually("a reason for each section", async || {
        let status =
            client.get_status(GetStatusRequest {}).await.map_err(|error| error.to_string())?.into_inner();
        let health = status.health.unwrap();
        if health.jobs == Some(5000) && health.reasons.len() > 1 {
            Ok(health)
        } else {
            Err(format!("{health:?}"))
        }
    })
    .await;
    assert!(health.reasons.last().unwrap().starts_with("and 98"), "{:?}", health.reasons);
    assert_eq!(health.runner_version.as_deref(), Some("19.2.0"), "the last line of the metrics");
    let most = peak_memory(wrapper.pid());
    assert!(most < 40_000, "the wrapper has used {most} KB");
    runner.says("/metrics", 200, crate::health_levels::VERSION);

    let jobs = client.list_jobs(ListJobsRequest {}).await.unwrap().into_inner();
    assert_eq!((jobs.jobs.len(), jobs.left_out, jobs.jobs[0].id), (5000, 0, Some(5000)));
    assert_eq!(json(&operator(&wrapper, &["jobs", "--json"])).as_array().unwrap().len(), 5000);
    let drained = operator(&wrapper, &["drain", "--wait", "--json"]);
    assert_eq!(json(&drained)["state"], "stopped", "{}", stderr(&drained));
    assert_eq!(client.get_status(GetStatusRequest {}).await.unwrap().into_inner().state(), State::Stopped);
}

/// The largest resident memory of a process since its start.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The audit lines of the log.
fn changes(wrapper: &Wrapper) -> Vec<Value> {
    let log = wrapper.read("log");
    let lines = log.lines().filter(|line| line.contains("\"change accepted\""));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line of one change, counted from 1. The log has a queue, so a line can appear after the response.
async fn change(wrapper: &Wrapper, count: usize) -> Value {
    let line = async || changes(wrapper).get(count - 1).cloned().ok_or_else(|| changes(wrapper));
    crate::support::eventually("the line of a change", line).await
}

#[tokio::test]
async fn each_accepted_change_logs_sender_once() {
    let flags = ["--grpc-listen=tcp://127.0.0.1:0", "--start-grace=1h"];
    let mut wrapper = Start::new().flags(&flags).child(&["--ignore-quit"]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    let uid = rustix::process::geteuid().as_raw();

    json(&operator(
        &wrapper,
        &["drain", "--id", "one", "--reason", "a\u{1b}[2J\u{9b}b\nc", "--deadline", "2h", "--json"],
    ));
    let line = change(&wrapper, 1).await;
    assert_eq!(
        (&line["action"], &line["outcome"], &line["mode"]),
        (&"drain".into(), &"started".into(), &"graceful".into())
    );
    assert_eq!((&line["transport"], &line["uid"], &line["id"]), (&"unix".into(), &uid.into(), &"one".into()));
    let gid = rustix::process::getegid().as_raw();
    assert_eq!(line["gid"], gid, "{line}");
    assert_eq!(line["reason"], "a\\u{1b}[2J\\u{9b}b\\nc", "{line}");
    assert_eq!(line["deadline_seconds"], 7200);
    assert!(line["pid"].is_u64(), "{line}");

    // Upstream's API, through TCP.
    let log = wrapper.read("log");
    let line = log.lines().find(|line| line.contains("tcp://127.0.0.1:0")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let mut upstream = crate::support::tcp_client(line["bound"].as_str().unwrap()).await.unwrap();
    upstream.graceful().await;
    let line = change(&wrapper, 2).await;
    assert_eq!(
        (&line["transport"], &line["outcome"], &line["joined_id"]),
        (&"tcp".into(), &"joined".into(), &"one".into())
    );
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:") && line["uid"].is_null(), "{line}");

    json(&operator(&wrapper, &["cancel", "--json"]));
    let line = change(&wrapper, 3).await;
    assert_eq!((&line["action"], &line["id"], &line["uid"]), (&"cancel".into(), &"one".into(), &uid.into()));

    upstream.graceful().await;
    upstream.forceful().await;
    for (count, outcome, mode) in [(4, "started", "graceful"), (5, "joined", "forceful")] {
        let line = change(&wrapper, count).await;
        assert_eq!((&line["transport"], &line["id"]), (&"tcp".into(), &"upstream".into()), "{line}");
        assert_eq!((&line["outcome"], &line["mode"]), (&outcome.into(), &mode.into()));
    }
    upstream.becomes(Upstream::Stopped).await;
    json(&operator(&wrapper, &["start", "--json"]));
    json(&operator(&wrapper, &["start", "--json"]));
    assert_eq!(
        (&change(&wrapper, 6).await["action"], &change(&wrapper, 6).await["outcome"]),
        (&"start".into(), &"started".into())
    );
    assert_eq!(
        (&change(&wrapper, 7).await["action"], &change(&wrapper, 7).await["outcome"]),
        (&"start".into(), &"already".into())
    );

    // A refused call is not a change.
    let refused = operator(&wrapper, &["cancel"]);
    assert_eq!(refused.status.code(), Some(1));
    wrapper.signal(Signal::TERM);
    crate::support::eventually("the line of the signal", async || {
        let line = change(&wrapper, 8).await;
        if line["transport"] == "signal" { Ok(()) } else { Err(line) }
    })
    .await;
    let line = change(&wrapper, 8).await;
    assert_eq!(
        (&line["action"], &line["id"], &line["peer"]),
        (&"drain".into(), &"signal".into(), &"SIGTERM".into())
    );
    assert_eq!(changes(&wrapper).len(), 8);
    json(&operator(&wrapper, &["drain", "--force", "--json"]));
    wrapper.ended().await;
}
