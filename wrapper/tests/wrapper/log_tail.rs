//! The last lines of a failed runner's log, in the reason of its failure.

use std::process::Command;

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{self as v1, GetStatusRequest},
};
use rustix::process::Signal;

use crate::support::{Start, Wrapper, eventually, is_end_of_adopted, kill_group, misbehaving_child};

/// Waits until a runner has failed and its log was read. Returns the reason.
async fn failed(wrapper: &Wrapper) -> String {
    let mut client = wrapper.v1_client().await;
    eventually("the runner fails", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let over = matches!(status.state(), v1::State::Stopped | v1::State::Failed | v1::State::Backoff)
            && !status.reading_log;
        if over { Ok(status.failure_reason) } else { Err(status) }
    })
    .await
}

fn shell(start: Start, script: &str) -> Wrapper {
    start.command(&["sh", "-c", script, "runner"])
}

#[tokio::test]
async fn failed_runner_log_tail_is_reported_to_all_clients() {
    let token = "glrt-0123456789abcdef";
    let script = format!("echo out; echo \"FATAL: no config for {token}\" >&2; exit 1");
    let wrapper = shell(Start::new(), &script);
    let reason = failed(&wrapper).await;
    let wanted = "exit status 1\nThe last lines of the runner's log:\n  FATAL: no config for glrt-[hidden]";
    assert_eq!(reason, wanted);
    assert_eq!(wrapper.client().await.status().await, (Status::Stopped, wanted.to_owned()));

    let address = format!("unix://{}", wrapper.path("w.sock").display());
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"));
        command.args(arguments).args(["--address", &address]).output().unwrap()
    };
    let status = String::from_utf8(ask(&["status"]).stdout).unwrap();
    let lines = "failure    exit status 1\n           The last lines of the runner's log:\n             FATAL: no config";
    assert!(status.contains(lines), "{status}");
    let status: serde_json::Value = serde_json::from_slice(&ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["failure_reason"], wanted);
    // Not before the lines were read, even if the request arrives at the time of the failure.
    let waited = ask(&["wait", "--for", "ready"]);
    let said = String::from_utf8(waited.stderr).unwrap();
    assert!(waited.status.code() == Some(1) && said.contains("FATAL: no config"), "{said}");
}

#[tokio::test]
async fn log_tail_is_of_the_failed_runner() {
    let script = "test -e $0.1 || { touch $0.1; echo first >&2; exit 1; }
        test -e $0.2 || { touch $0.2; exit 2; }
        echo third >&2; exit 3";
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runner");
    let flags = ["--restart=on-failure", "--restart-delay=1s", "--restart-max-delay=1s"];
    let wrapper = Start::again(folder).flags(&flags).command(&["sh", "-c", script, name.to_str().unwrap()]);
    let reported = |reason: &str| reason.split_once("the last failure: ").map(|(_, why)| why.to_owned());
    for wanted in [
        "exit status 1\nThe last lines of the runner's log:\n  first",
        "exit status 2",
        "exit status 3\nThe last lines of the runner's log:\n  third",
    ] {
        eventually(wanted, async || {
            let reason = failed(&wrapper).await;
            if reported(&reason).as_deref() == Some(wanted) { Ok(()) } else { Err(reason) }
        })
        .await;
    }
}

/// Only the output that cannot be read back is missing.
#[tokio::test]
async fn unreadable_log_leaves_only_exit_reason() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let piped = "mkfifo \"$0\"; cat \"$0\" >/dev/null & exec \"$@\" 2>\"$0\"";
    for elsewhere in ["exec \"$@\" 2>/dev/null", piped, "exec \"$@\" 2>&-"] {
        let start = Start::new().through(&["sh", "-c", elsewhere, pipe.to_str().unwrap()]);
        assert_eq!(failed(&shell(start, "echo why >&2; exit 1")).await, "exit status 1", "{elsewhere}");
    }
}

#[tokio::test]
async fn no_log_tail_after_clean_or_requested_exit() {
    let script = "echo 'a line' >&2; exit 0";
    assert_eq!(failed(&shell(Start::new(), script)).await, "");

    let first = Start::new().child(&[]);
    first.child_ready().await;
    let mut first = first;
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder()).child(&[]);
    let mut client = second.client().await;
    client.becomes(Status::Running).await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    let reason = failed(&second).await;
    assert!(is_end_of_adopted(&reason, ""), "{reason}");
}

/// The exit code of an adopted runner can be unknown, so its last lines are more important.
#[tokio::test]
async fn log_tail_of_adopted_runner_is_reported() {
    let child = misbehaving_child();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let test = std::process::id().to_string();
    let script = "echo 'about to fail' >&2; exec \"$0\" \"$@\"";
    let command = [
        "sh",
        "-c",
        script,
        child.to_str().unwrap(),
        "--record",
        record.to_str().unwrap(),
        "--lives-with",
        &test,
    ];
    let mut first = Start::again(folder).command(&command);
    first.child_ready().await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder()).command(&command);
    second.client().await.becomes(Status::Running).await;
    kill_group(runner).await;
    let reason = failed(&second).await;
    let (how, lines) = reason.split_once('\n').unwrap_or_default();
    assert!(is_end_of_adopted(how, "signal: killed"), "{reason}");
    assert_eq!(lines, "The last lines of the runner's log:\n  about to fail");
}
