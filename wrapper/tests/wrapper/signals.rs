//! The signals to the wrapper, and the resulting signals to the runner.

use std::{os::unix::process::ExitStatusExt, time::Duration};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{GetStatusRequest, State},
};
use rustix::process::Signal;

use crate::support::{Start, UNRELATED_USER, Wrapper, eventually, is_alive, is_root};

async fn ready(flags: &[&str], habits: &[&str]) -> Wrapper {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).flags(flags).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

#[tokio::test]
async fn each_stop_signal_drains_then_wrapper_exits() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut wrapper = ready(&[], &["--jobs-take", "200", "--code", "5"]).await;
        let child = wrapper.child_pid();
        wrapper.signal(signal);
        let status = wrapper.ended().await;
        assert_eq!((status.code(), status.signal()), (Some(5), None), "{signal:?}");
        assert_eq!(wrapper.record(), "ready QUIT", "{signal:?}");
        assert!(!is_alive(child));
        assert!(!wrapper.path("w.sock").exists(), "the socket was left behind");
    }
}

#[tokio::test]
async fn second_sigterm_terminates_third_is_not_forwarded() {
    let mut wrapper = ready(&["--process-termination-timeout=1s"], &["--ignore-quit", "--ignore-term"]).await;
    wrapper.signal(Signal::TERM);
    wrapper.recorded("ready QUIT").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    wrapper.signal(Signal::TERM);
    wrapper.recorded("ready QUIT TERM").await;
    wrapper.signal(Signal::TERM);
    wrapper.signal(Signal::INT);
    assert_eq!(wrapper.ended().await.code(), Some(137));
    assert_eq!(wrapper.record(), "ready QUIT TERM");
}

/// As if a service manager signals the wrapper's process group and the wrapper.
#[tokio::test]
async fn simultaneous_signals_count_once() {
    let mut wrapper = ready(&[], &["--jobs-take", "1000"]).await;
    wrapper.signal(Signal::TERM);
    wrapper.logged("signal received: draining").await;
    wrapper.signal(Signal::INT);
    assert_eq!(wrapper.ended().await.code(), Some(0));
    assert_eq!(wrapper.record(), "ready QUIT");
}

/// As `docker kill -s QUIT` followed by `docker stop`: SIGTERM and SIGINT are forceful only when one of them came before.
#[tokio::test]
async fn second_signal_after_sigquit_stays_graceful() {
    let second = async |signal| {
        let mut wrapper = ready(&[], &["--jobs-take", "2500"]).await;
        wrapper.signal(Signal::QUIT);
        wrapper.recorded("ready QUIT").await;
        // Longer than the window in which two signals count as one.
        tokio::time::sleep(Duration::from_millis(600)).await;
        wrapper.signal(signal);
        wrapper.logged("signal received again: drain already in progress").await;
        assert_eq!(wrapper.ended().await.code(), Some(0), "{signal:?}");
        assert_eq!(wrapper.record(), "ready QUIT", "{signal:?}");
    };
    tokio::join!(second(Signal::QUIT), second(Signal::TERM), second(Signal::INT));
}

#[tokio::test]
async fn sighup_is_forwarded_to_runner() {
    let wrapper = ready(&[], &[]).await;
    wrapper.signal(Signal::HUP);
    wrapper.recorded("ready HUP").await;
    wrapper.signal(Signal::HUP);
    wrapper.recorded("ready HUP HUP").await;
    assert_eq!(wrapper.client().await.status().await.0, Status::Running);
}

#[tokio::test]
async fn drain_by_signal_becomes_forceful_at_drain_timeout() {
    let mut wrapper = ready(&["--drain-timeout=700ms"], &["--ignore-quit", "--code", "4"]).await;
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(4));
    assert_eq!(wrapper.record(), "ready QUIT TERM");
}

/// As with a unit that drops the capability, and a runner that changes its user.
#[tokio::test]
async fn refused_signal_is_reported_and_sent_by_next_wrapper() {
    if !is_root() {
        return grit_testkit::not_covered(
            "a runner that its wrapper may not signal",
            "only root may change users",
        );
    }
    let runner = |start: Start| {
        let folder = start.folder_path();
        let script = "trap 'exit 0' QUIT; while :; do sleep 0.1; done";
        let user = ["setpriv", "--reuid", UNRELATED_USER, "--regid", UNRELATED_USER, "--clear-groups"];
        let words = [&user[..], &["sh", "-c", script, folder.to_str().unwrap()]].concat();
        start.flags(&["--start-grace=0s"]).command(&words)
    };
    let mut first = runner(Start::new().through(&["setpriv", "--bounding-set", "-kill"]));
    first.client().await.graceful().await;
    let mut client = first.v1_client().await;
    eventually("the refused signal", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let reasons = status.health.clone().unwrap_or_default().reasons.join("; ");
        let is_reported = reasons.contains("cannot send a signal to the runner: SIGQUIT")
            && reasons.contains("Operation not permitted");
        let is_told = is_reported && status.drain.as_ref().is_some_and(|drain| !drain.signalled);
        if is_told && status.state() == State::Draining { Ok(()) } else { Err(status) }
    })
    .await;

    first.signal(Signal::KILL);
    first.ended().await;
    let second = runner(Start::again(first.into_folder()));
    second.client().await.becomes(Status::Stopped).await;
}
