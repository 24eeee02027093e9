//! Access control, with real connections of other users.

use std::{path::Path, process::Output};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{
        Callback, CancelRequest, DrainRequest, GetStatusRequest, Mode, StartRequest, WatchRequest,
        wrapper_client::WrapperClient,
    },
};
use tonic::Code;

use crate::{
    support::{Start, UNRELATED_USER, Wrapper, as_user, is_root, unix_channel, unix_client},
    web::{ask, ready_at},
};

/// Runs a command of the wrapper as another user.
fn ask_as_stranger(wrapper: &Wrapper, address: &str, command: &str) -> Output {
    let (mut unrelated, _program) = as_user(UNRELATED_USER, Path::new(env!("CARGO_BIN_EXE_grit-wrapper")));
    wrapper.open_folder();
    unrelated.args([command, "--address", address]).output().unwrap()
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

/// The sockets of these flags: one for control, and one for the status that every user can connect to.
async fn with_status_socket(flags: &[&str]) -> (Wrapper, String) {
    let start = Start::new();
    let status = format!("unix://{}", start.folder_path().join("status.sock").display());
    let wrapper = start
        .flags(&["--start-grace=0s", "--status-socket-mode=0666", &format!("--status-listen={status}")])
        .flags(flags)
        .child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    (wrapper, status)
}

/// The kernel checks the mode of each socket.
#[tokio::test]
async fn users_of_the_status_socket_can_only_read() {
    if !is_root() {
        return grit_testkit::not_covered("that a reader can look but not drain", ONLY_ROOT);
    }
    let (wrapper, status) = with_status_socket(&[]).await;
    let control = format!("unix://{}", wrapper.path("w.sock").display());
    for (address, command, code, shown) in [
        (&status, "status", 0, "state      running"),
        (&status, "drain", 1, "this address of the wrapper is read-only (--status-listen)"),
        (&status, "cancel", 1, "this address of the wrapper is read-only (--status-listen)"),
        (&status, "start", 1, "this address of the wrapper is read-only (--status-listen)"),
        (&control, "status", 2, "ermission"),
    ] {
        let answer = ask_as_stranger(&wrapper, address, command);
        assert_eq!(answer.status.code(), Some(code), "{command}: {}", text(&answer));
        assert!(text(&answer).contains(shown), "{command}: {}", text(&answer));
    }
    wrapper.logged("uid 4242, unix socket").await;
    assert_eq!(wrapper.record(), "ready");
    wrapper.client().await.graceful().await;
    wrapper.recorded("ready QUIT").await;
}

#[tokio::test]
async fn status_socket_rejects_every_change() {
    let (wrapper, status) = with_status_socket(&[]).await;
    let path = Path::new(status.strip_prefix("unix://").unwrap());
    let mut upstream = unix_client(path).await.unwrap();
    assert_eq!(upstream.status().await.0, Status::Running);
    let mut v1 = WrapperClient::new(unix_channel(path).await.unwrap());
    assert!(v1.get_status(GetStatusRequest {}).await.unwrap().into_inner().pid.is_some());
    assert!(v1.watch(WatchRequest {}).await.unwrap().into_inner().message().await.unwrap().is_some());
    let drain =
        |mode: Mode| DrainRequest { id: "d".to_owned(), mode: mode.into(), ..DrainRequest::default() };
    for denied in [
        upstream.graceful_with(None).await.map(drop),
        v1.drain(drain(Mode::Graceful)).await.map(drop),
        v1.drain(drain(Mode::Forceful)).await.map(drop),
        v1.cancel(CancelRequest::default()).await.map(drop),
        v1.start(StartRequest {}).await.map(drop),
    ] {
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    }
    assert_eq!(wrapper.record(), "ready");
    let log = wrapper.read("log");
    assert!(!log.contains("change accepted"), "{log}");
}

/// The journal limits the number of lines of a service per time, including those of the runner.
#[tokio::test]
async fn refusal_log_lines_are_rate_limited() {
    let (wrapper, status) = with_status_socket(&["--http-listen=tcp://127.0.0.1:0"]).await;
    let url = ready_at(&wrapper).await;
    let mut client = unix_client(Path::new(status.strip_prefix("unix://").unwrap())).await.unwrap();
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
