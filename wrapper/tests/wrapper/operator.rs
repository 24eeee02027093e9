//! The operator's commands, as the documentation shows them.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

use grit_proto::runner_wrapper::Status;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::{
    health_levels::{CONFIG, watched_with},
    support::{Start, Wrapper, eventually, pid},
    web::{ask, ready_at},
};

pub(crate) fn operator(wrapper: &Wrapper, command: &[&str]) -> Output {
    at(&format!("unix://{}", wrapper.path("w.sock").display()), command)
}

pub(crate) fn at(address: &str, command: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
        .args(command)
        .env("GRIT_WRAPPER_ADDRESS", address)
        .output()
        .unwrap()
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    last_object(output)
}

/// A command that waits writes one JSON object for each change.
fn last_object(output: &Output) -> Value {
    serde_json::from_str(String::from_utf8_lossy(&output.stdout).lines().last().unwrap()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) async fn ready(flags: &[&str], habits: &[&str]) -> Wrapper {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).flags(flags).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

#[tokio::test]
async fn status_drain_wait_and_start_report_state_in_json() {
    let wrapper = ready(&[], &["--jobs-take", "300", "--code", "4"]).await;
    assert_eq!(operator(&wrapper, &["wait", "--for", "process"]).status.code(), Some(0));
    let status = json(&operator(&wrapper, &["status", "--json"]));
    assert_eq!((&status["state"], &status["pid"]), (&"running".into(), &wrapper.child_pid().into()));

    let drained =
        operator(&wrapper, &["drain", "--id", "deploy-7", "--reason", "version 2", "--wait", "--json"]);
    // The runner failed, and the command reports this.
    assert_eq!(drained.status.code(), Some(4), "{}", stderr(&drained));
    let drained: Value = last_object(&drained);
    assert_eq!(drained["state"], "failed");
    assert_eq!(drained["exit"]["how"]["code"], 4);
    assert_eq!(
        (&drained["drain"]["id"], &drained["drain"]["reason"]),
        (&"deploy-7".into(), &"version 2".into())
    );
    let people = operator(&wrapper, &["status"]);
    let people = String::from_utf8(people.stdout).unwrap();
    assert!(people.starts_with("state      failed\nexit       code 4\n"), "{people}");

    let unreachable_goal = operator(&wrapper, &["wait", "--for", "ready"]);
    assert_eq!(unreachable_goal.status.code(), Some(1), "{}", stderr(&unreachable_goal));
    assert_eq!(json(&operator(&wrapper, &["start", "--json"]))["state"], "running");
    wrapper.recorded("ready QUIT ready").await;
}

#[tokio::test]
async fn drain_wait_exits_4_unless_drain_was_clean() {
    let stubborn = &["--ignore-quit", "--ignore-term"][..];
    for (habits, words, outcome, code) in [
        (&[][..], &["drain", "--wait"][..], "clean", 0),
        (&[], &["drain", "--force", "--wait"], "jobs_aborted", 0),
        (&["--ignore-quit"], &["drain", "--deadline", "100ms", "--wait"], "jobs_aborted", 4),
        (&["--code", "1"], &["drain", "--wait"], "failed", 4),
        (&["--code", "1"], &["drain", "--force", "--wait"], "failed", 4),
        (stubborn, &["drain", "--deadline", "100ms", "--wait"], "killed", 4),
        (stubborn, &["drain", "--force", "--wait"], "killed", 4),
    ] {
        // The runner has enough time to exit without a request, also on a busy machine.
        let limit = if outcome == "killed" { "300ms" } else { "60s" };
        let wrapper = ready(&[&format!("--process-termination-timeout={limit}")], habits).await;
        let output = operator(&wrapper, &[words, &["--json"]].concat());
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{habits:?} {words:?}: {errors}");
        let status: Value = last_object(&output);
        assert_eq!(status["drain"]["outcome"], outcome, "{habits:?} {words:?}: {status}");
        assert_eq!(errors.contains("the drain was not clean"), code == 4, "{errors}");
        // A later request returns the same.
        assert_eq!(json(&operator(&wrapper, &["status", "--json"]))["drain"]["outcome"], outcome);
        assert_eq!(operator(&wrapper, &["wait"]).status.code(), Some(if outcome == "clean" { 0 } else { 4 }));
    }
}

#[tokio::test]
async fn failed_start_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("runner");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let wrapper = Start::new().flags(&["--start-grace=0s"]).command(&[program.to_str().unwrap(), "1000"]);
    wrapper.client().await.becomes(Status::Running).await;
    operator(&wrapper, &["drain", "--wait", "--json"]);
    fs::remove_file(&program).unwrap();
    let failed = operator(&wrapper, &["start"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(stderr(&failed).contains("the runner could not be started: "), "{}", stderr(&failed));
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    assert_eq!(json(&operator(&wrapper, &["start", "--json"]))["state"], "running");
}

#[tokio::test]
async fn timed_out_wait_reports_state_and_drain_continues() {
    let wrapper = ready(&[], &["--ignore-quit"]).await;
    let late = operator(&wrapper, &["drain", "--wait", "--timeout", "3s"]);
    assert_eq!(late.status.code(), Some(3), "{}", stderr(&late));
    assert!(stderr(&late).contains("timed out after 3s; the runner is draining"), "{}", stderr(&late));
    wrapper.recorded("ready QUIT").await;
    let forced = json(&operator(&wrapper, &["drain", "--force", "--wait", "--json"]));
    assert_eq!((&forced["state"], &forced["drain"]["mode"]), (&"stopped".into(), &"forceful".into()));
}

/// The command is slow, and reads the status only after the start.
#[tokio::test]
async fn drain_wait_reports_its_drain_after_a_start_by_another_client() {
    let flags = ["--start-grace=0s"];
    let habits = ["--ignore-quit", "--term-takes", "10"];
    let wrapper = Start::new().flags(&flags).child(&habits);
    wrapper.client().await.becomes(Status::Running).await;
    wrapper.child_ready().await;
    let address = format!("unix://{}", wrapper.path("w.sock").display());
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
        .args(["drain", "--id", "deploy-7", "--wait", "--json"])
        .env("GRIT_WRAPPER_ADDRESS", &address)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has the response to its request.
    let mut response = String::new();
    let mut output = BufReader::new(waiting.stdout.take().unwrap());
    output.read_line(&mut response).unwrap();
    assert!(response.contains("deploy-7"), "{response}");
    kill_process(pid(waiting.id()), Signal::STOP).unwrap();
    wrapper.client().await.forceful().await;
    wrapper.client().await.becomes(Status::Stopped).await;
    json(&operator(&wrapper, &["start", "--json"]));
    kill_process(pid(waiting.id()), Signal::CONT).unwrap();

    let status = eventually("the command ends", async || waiting.try_wait().unwrap().ok_or("waits")).await;
    let errors = stderr(&waiting.wait_with_output().unwrap());
    // Another client aborted the jobs.
    assert_eq!(status.code(), Some(4), "{errors}");
    assert!(errors.contains("the drain was not clean") && !errors.contains("cancelled"), "{errors}");
}

#[tokio::test]
async fn drain_can_be_cancelled_only_before_sigquit() {
    let wrapper = Start::new().flags(&["--start-grace=1h"]).child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    assert_eq!(json(&operator(&wrapper, &["drain", "--json"]))["drain"]["signalled"], false);
    assert_eq!(json(&operator(&wrapper, &["cancel", "--json"]))["state"], "running");
    let nothing = operator(&wrapper, &["cancel"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(stderr(&nothing).contains("no drain is in progress"), "{}", stderr(&nothing));
}

#[tokio::test]
async fn unreachable_wrapper_exits_2() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix://{}", folder.path().join("none.sock").display());
    for command in
        [&["status"][..], &["jobs"], &["drain"], &["cancel"], &["start"], &["wait"], &["dial-stdio"]]
    {
        let refused = at(&address, command);
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("none.sock"), "{}", stderr(&refused));
    }
    let wrong = at("somewhere", &["status"]);
    assert!(stderr(&wrong).contains("--address"), "{}", stderr(&wrong));
}

#[tokio::test]
async fn unknown_jobs_exit_1() {
    let wrapper = ready(&[], &[]).await;
    let unknown = operator(&wrapper, &["jobs"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("job list unavailable"), "{}", stderr(&unknown));
}

#[tokio::test]
async fn wait_above_maximum_level_fails() {
    let flags = ["--http-listen=tcp://127.0.0.1:0"];
    let (wrapper, _own) = watched_with(None, Some(CONFIG), &flags, &[]).await;
    let url = ready_at(&wrapper).await;
    let refused = operator(&wrapper, &["wait", "--for", "ready", "--timeout", "60s"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("the highest health level that this runner can reach is process"),
        "{}",
        stderr(&refused)
    );
    assert!(stderr(&refused).contains("listen_address"), "{}", stderr(&refused));
    let status = json(&operator(&wrapper, &["status", "--json"]));
    assert_eq!(status["health"]["level_max"], "process", "{status}");
    let (_, status) = ask(&url, "/status").await;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["health"]["level_max"], "process", "{status}");
}

#[tokio::test]
async fn unknown_command_exits_1_not_2() {
    let wrapper = ready(&[], &[]).await;
    assert_eq!(operator(&wrapper, &["frobnicate"]).status.code(), Some(1));
    assert_eq!(operator(&wrapper, &["run", "--nothing"]).status.code(), Some(2));
}

#[tokio::test]
async fn drain_wait_json_writes_response_and_final_status() {
    let wrapper = ready(&[], &["--jobs-take", "1500"]).await;
    let output = operator(&wrapper, &["drain", "--wait", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let states = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone());
    assert_eq!(states.collect::<Vec<_>>(), ["draining", "stopped"], "{text}");
}
