//! Upstream's API with a client that shares no code with this project or tonic: gRPC's C-core, in Debian's `python3-grpcio`. The library of
//! upstream's client, grpc-go, is not available here, but its requests are sent.

use std::process::Command;

use grit_proto::runner_wrapper::Status;
use serde_json::Value as Json;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::support::{Start, Wrapper, eventually};

/// Debian's Python, not another one on PATH.
const PYTHON: &str = "/usr/bin/python3";

/// The responses to these calls.
fn calls(target: &str, authority: &str, calls: &[&str]) -> Vec<(i64, String)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrapper/other_clients.py");
    let output = Command::new(PYTHON).args([script, target, authority]).args(calls).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("No module named"), "install python3-grpcio, as `cargo xtask test` does: {said}");
    assert!(output.status.success(), "{target} {authority:?} {calls:?}: {said}");
    let line = |line: &str| {
        let answer: Json = serde_json::from_str(line).unwrap();
        (answer["status"].as_i64().unwrap(), answer["failureReason"].as_str().unwrap().to_owned())
    };
    String::from_utf8(output.stdout).unwrap().lines().map(line).collect()
}

fn response_of(status: Status) -> (i64, String) {
    (i64::from(i32::from(status)), String::new())
}

async fn wrapper(flags: &[&str], habits: &[&str]) -> (Wrapper, [String; 2]) {
    let always = ["--grpc-listen=tcp://localhost:0", "--start-grace=0s"];
    let wrapper = Start::new().flags(&always).flags(flags).child(habits);
    wrapper.child_ready().await;
    let unix = format!("unix:{}", wrapper.path("w.sock").display());
    let bound = wrapper.read("log").lines().find_map(|line| {
        let line: Json = serde_json::from_str(line).ok()?;
        (line["address"] == "tcp://localhost:0").then(|| line["bound"].as_str().unwrap().to_owned())
    });
    (wrapper, [unix, bound.unwrap()])
}

#[tokio::test]
async fn c_core_client_calls_and_callback_work() {
    for listener in [0, 1] {
        let hook = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/done", hook.local_addr().unwrap());
        let allow = format!("--allow-callback={url}");
        let (wrapper, targets) = wrapper(&[&allow], &["--jobs-take", "700"]).await;
        let target = &targets[listener];
        let graceful = format!("InitGracefulShutdown={url}");
        let answers = calls(target, "", &["CheckStatus", &graceful, "CheckStatus"]);
        assert_eq!(
            answers,
            [response_of(Status::Running), response_of(Status::InShutdown), response_of(Status::InShutdown)]
        );
        let (mut stream, _) = hook.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
        assert!(head.starts_with("post /done") && head.contains("x-token: s3cret"), "{head}");
        assert_eq!(calls(target, "", &["CheckStatus"]), [response_of(Status::Stopped)]);
        assert_eq!(wrapper.record(), "ready QUIT");
    }
}

#[tokio::test]
async fn c_core_client_forceful_shutdown_works() {
    let (wrapper, [unix, tcp]) = wrapper(&[], &["--term-takes", "700", "--code", "3"]).await;
    assert_eq!(calls(&unix, "", &["InitForcefulShutdown"]), [response_of(Status::InShutdown)]);
    eventually("the runner has ended", async || {
        let answers = calls(&tcp, "", &["CheckStatus"]);
        if answers[0].0 == i64::from(i32::from(Status::Stopped)) { Ok(answers) } else { Err(answers) }
    })
    .await;
    assert_eq!(calls(&tcp, "", &["CheckStatus"])[0].1, "exit status 3");
    assert_eq!(wrapper.record(), "ready TERM");
}

/// The authorities that clients send for a server without a name.
#[tokio::test]
async fn any_authority_is_accepted() {
    let (_wrapper, targets) = wrapper(&[], &[]).await;
    for authority in [
        // grpc-go for `unix:`, and since 1.57 for addresses that a custom dialer receives, as in upstream's client for `tcp:`.
        "localhost",
        "tcp:%2F%2Flocalhost:7777",
        // grpc-go before 1.57.
        "tcp://localhost:7777",
        // C-core since 1.57, and grpc-java.
        "%2Frun%2Fgrit-wrapper%2Fwrapper.sock",
        "/run/grit-wrapper/wrapper.sock",
        "a b",
    ] {
        for target in &targets {
            let answers = calls(target, authority, &["CheckStatus", "CheckStatus"]);
            assert_eq!(
                answers,
                [response_of(Status::Running), response_of(Status::Running)],
                "{target} as {authority:?}"
            );
        }
    }
}
