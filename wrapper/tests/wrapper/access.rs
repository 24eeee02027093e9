//! Access control, with real connections of other users.

use std::{path::Path, process::Output};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{Callback, DrainRequest},
};
use tonic::Code;

use crate::{
    support::{Start, UNRELATED_USER, Wrapper, as_user, is_root, tcp_client},
    web::{ask, ready_with},
};

/// Runs a command of the wrapper as another user.
fn ask_as_stranger(wrapper: &Wrapper, command: &[&str]) -> Output {
    let (mut unrelated, _program) = as_user(UNRELATED_USER, Path::new(env!("CARGO_BIN_EXE_grit-wrapper")));
    wrapper.open_folder();
    let address = format!("unix://{}", wrapper.path("w.sock").display());
    unrelated.args(command).arg("--address").arg(address).output().unwrap()
}

/// Only root can run these tests: for other users, the kernel reports the wrapper's user for every client.
const ONLY_ROOT: &str = "only root can run a program as another user";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

async fn ready(flags: &[&str]) -> Wrapper {
    let wrapper = Start::new().flags(&["--start-grace=0s", "--socket-mode=0666"]).flags(flags).child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

#[tokio::test]
async fn unlisted_user_is_rejected_and_logged() {
    if !is_root() {
        return grit_testkit::not_covered("that another user is refused", ONLY_ROOT);
    }
    let wrapper = ready(&["--allow-control=4343"]).await;
    for command in ["status", "drain"] {
        let answer = ask_as_stranger(&wrapper, &[command]);
        assert_eq!(answer.status.code(), Some(1), "{}", text(&answer));
        assert!(text(&answer).contains("has no access"), "{}", text(&answer));
    }
    wrapper.logged("uid 4242, unix socket").await;
    assert_eq!(wrapper.record(), "ready");
}

#[tokio::test]
async fn read_only_user_can_read_but_not_drain() {
    if !is_root() {
        return grit_testkit::not_covered("that a reader can look but not drain", ONLY_ROOT);
    }
    let wrapper = ready(&["--allow-read=4242"]).await;
    let answer = ask_as_stranger(&wrapper, &["status"]);
    assert_eq!(answer.status.code(), Some(0), "{}", text(&answer));
    let answer = ask_as_stranger(&wrapper, &["drain"]);
    assert!(text(&answer).contains("read-only access"), "{}", text(&answer));
    assert_eq!(wrapper.record(), "ready");
    // The wrapper's user has access.
    wrapper.client().await.graceful().await;
    wrapper.recorded("ready QUIT").await;
}

#[tokio::test]
async fn tcp_is_read_only_with_allow_list() {
    let wrapper = ready(&["--allow-control=4343", "--grpc-listen=tcp://127.0.0.1:0"]).await;
    let log = wrapper.read("log");
    let line = log.lines().find(|line| line.contains("tcp://127.0.0.1:0")).unwrap();
    assert!(
        log.lines().any(|line| line.contains("WARN") && line.contains("any user of the host can control the runner")),
        "{log}"
    );
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let mut client = tcp_client(line["bound"].as_str().unwrap()).await.unwrap();
    assert_eq!(client.status().await.0, Status::Running);
    let refused = client.graceful_with(None).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(wrapper.record(), "ready");
}

/// The journal limits the number of lines of a service per time, including those of the runner.
#[tokio::test]
async fn refusal_log_lines_are_rate_limited() {
    let lists = ["--allow-control=4343", "--grpc-listen=tcp://127.0.0.1:0"];
    let (wrapper, url) = ready_with(&lists, &[]).await;
    let log = wrapper.read("log");
    let line = log.lines().find(|line| line.contains("\"address\":\"tcp") && !line.contains("HTTP")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let mut client = tcp_client(line["bound"].as_str().unwrap()).await.unwrap();
    for _ in 0..100 {
        client.graceful_with(None).await.unwrap_err();
    }
    // The log has a queue, so lines can appear after the responses.
    crate::support::eventually("the lines of the refusals", async || {
        let count = wrapper.read("log").matches("request denied").count();
        if count >= 20 { Ok(()) } else { Err(count) }
    })
    .await;
    assert_eq!(wrapper.read("log").matches("request denied").count(), 20);
    let (_, page) = ask(&url, "/metrics").await;
    assert!(page.contains("grit_wrapper_grpc_calls_denied_total 100\n"), "{page}");
}

#[tokio::test]
async fn disallowed_callback_url_rejects_the_drain() {
    let flags = ["--allow-callback=https://ci.example/hooks/"];
    let wrapper = ready(&flags).await;
    let mut client = wrapper.client().await;
    let callback =
        ShutdownCallback { url: "http://169.254.169.254/".to_owned(), ..ShutdownCallback::default() };
    let refused = client.graceful_with(Some(callback)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("--allow-callback"));
    // In every API that starts a drain.
    let callback = Callback { url: "https://ci.example/admin".to_owned(), ..Callback::default() };
    let drain = DrainRequest { id: "d".to_owned(), callback: Some(callback), ..DrainRequest::default() };
    let refused = wrapper.v1_client().await.drain(drain).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("--allow-callback"));
    assert_eq!(client.status().await.0, Status::Running);
    assert_eq!(wrapper.record(), "ready");
}

#[tokio::test]
async fn callback_to_local_address_rejects_the_drain() {
    let wrapper = ready(&[]).await;
    let mut client = wrapper.client().await;
    for host in ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let url = format!("http://{host}:9252/");
        let callback = ShutdownCallback { url: url.clone(), ..ShutdownCallback::default() };
        let refused = client.graceful_with(Some(callback)).await.unwrap_err();
        let callback = Callback { url, ..Callback::default() };
        let drain = DrainRequest { id: "d".to_owned(), callback: Some(callback), ..DrainRequest::default() };
        let also_refused = wrapper.v1_client().await.drain(drain).await.unwrap_err();
        for refused in [refused, also_refused] {
            let message = refused.message();
            assert_eq!(refused.code(), Code::PermissionDenied, "{message}");
            assert!(message.contains(&format!("callback: {host} is an address of this host")), "{message}");
            assert!(message.contains("--allow-callback"), "{message}");
        }
    }
    assert_eq!(client.status().await.0, Status::Running);
    assert_eq!(wrapper.record(), "ready");
}
