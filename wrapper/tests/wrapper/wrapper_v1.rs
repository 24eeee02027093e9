//! The API `grit.wrapper.v1`.

use std::time::Duration;

use grit_proto::wrapper_v1::{
    CancelRequest, DrainRequest, GetStatusRequest, Mode, StartRequest, State, Status, WatchRequest,
    exit::How, wrapper_client::WrapperClient,
};
use rustix::process::Signal;
use tonic::{Code, Streaming, transport::Channel};

use crate::support::{Start, Wrapper};

async fn ready(flags: &[&str], habits: &[&str]) -> (Wrapper, WrapperClient<Channel>) {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).flags(flags).child(habits);
    let client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    (wrapper, client)
}

fn drain(id: &str) -> DrainRequest {
    DrainRequest { id: id.to_owned(), reason: "a test".to_owned(), ..DrainRequest::default() }
}

async fn status(client: &mut WrapperClient<Channel>) -> Status {
    client.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

/// Reads the stream until a state is reported.
async fn until(stream: &mut Streaming<Status>, wanted: State) -> Status {
    while let Some(status) = stream.message().await.unwrap() {
        if status.state() == wanted {
            return status;
        }
    }
    panic!("the stream ended before {wanted:?}");
}

#[tokio::test]
async fn watch_reports_all_states_and_ends_with_wrapper() {
    let (mut wrapper, mut client) = ready(&[], &["--jobs-take", "200", "--code", "3"]).await;
    let mut watch = client.watch(WatchRequest {}).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.state(), State::Running);
    assert_eq!(first.pid, Some(wrapper.child_pid()));
    assert!(first.started_at.is_some() && first.exit.is_none() && first.drain.is_none());

    client.drain(drain("deploy-7")).await.unwrap();
    let draining = until(&mut watch, State::Draining).await;
    let drain = draining.drain.unwrap();
    assert_eq!(
        (drain.id.as_str(), drain.reason.as_str(), drain.mode()),
        ("deploy-7", "a test", Mode::Graceful)
    );
    let stopped = until(&mut watch, State::Failed).await;
    assert_eq!(stopped.exit.unwrap().how, Some(How::Code(3)));
    assert_eq!(stopped.failure_reason, "exit status 3");
    assert_eq!(stopped.drain.unwrap().id, "deploy-7");

    wrapper.signal(Signal::TERM);
    while !until(&mut watch, State::Failed).await.shutting_down {}
    while watch.message().await.unwrap().is_some() {}
    assert_eq!(wrapper.ended().await.code(), Some(3));
}

#[tokio::test]
async fn second_drain_joins_and_reports_first_id() {
    let (wrapper, mut client) = ready(&[], &["--ignore-quit"]).await;
    let first = client.drain(drain("one")).await.unwrap().into_inner();
    assert!(!first.joined);
    for id in ["one", "two"] {
        let again = client.drain(drain(id)).await.unwrap().into_inner();
        assert!(again.joined);
        assert_eq!(again.status.unwrap().drain.unwrap().id, "one");
    }
    // A forceful request of any client has an effect.
    wrapper.recorded("ready QUIT").await;
    client.drain(DrainRequest { mode: Mode::Forceful.into(), ..drain("two") }).await.unwrap();
    wrapper.recorded("ready QUIT TERM").await;
}

#[tokio::test]
async fn deadline_turns_graceful_drain_into_forceful() {
    let (wrapper, mut client) =
        ready(&["--process-termination-timeout=1s"], &["--ignore-quit", "--ignore-term"]).await;
    let mut watch = client.watch(WatchRequest {}).await.unwrap().into_inner();
    let deadline = Some(Duration::from_millis(800).try_into().unwrap());
    let answer = client.drain(DrainRequest { deadline, ..drain("d") }).await.unwrap().into_inner();
    assert!(answer.status.unwrap().drain.unwrap().deadline.is_some());
    until(&mut watch, State::Terminating).await;
    let stopped = until(&mut watch, State::Failed).await;
    let exit = stopped.exit.unwrap();
    assert_eq!((exit.how, exit.killed), (Some(How::Signal(9)), true));
    assert_eq!(wrapper.record(), "ready QUIT TERM");
}

#[tokio::test]
async fn drain_can_be_cancelled_before_sigquit() {
    let wrapper = Start::new().flags(&["--start-grace=1h"]).child(&[]);
    let mut client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    let cancel = |id: &str| CancelRequest { id: id.to_owned() };
    let nothing = client.cancel(cancel("")).await.unwrap_err();
    assert_eq!((nothing.code(), nothing.message()), (Code::FailedPrecondition, "no drain is in progress"));

    let answer = client.drain(drain("d")).await.unwrap().into_inner().status.unwrap();
    assert!(answer.state() == State::Draining && !answer.drain.unwrap().signalled);
    let other = client.cancel(cancel("other")).await.unwrap_err();
    assert_eq!(other.message(), "another drain is in progress");
    let cancelled = client.cancel(cancel("d")).await.unwrap().into_inner().status.unwrap();
    assert_eq!((cancelled.state(), cancelled.drain), (State::Running, None));
    let record = cancelled.cancelled_drain.unwrap();
    assert_eq!(record.id, "d");
    assert!(record.cancelled_by.starts_with("uid ") && record.cancelled_at.is_some(), "{record:?}");
    assert_eq!(wrapper.record(), "ready");
    // Until the next drain.
    let again = client.drain(drain("e")).await.unwrap().into_inner().status.unwrap();
    assert_eq!(again.cancelled_drain, None);
}

#[tokio::test]
async fn signalled_drain_cannot_be_cancelled_runner_can_restart() {
    let (wrapper, mut client) = ready(&[], &["--jobs-take", "500"]).await;
    client.drain(drain("d")).await.unwrap();
    wrapper.recorded("ready QUIT").await;
    let late = client.cancel(CancelRequest::default()).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition);
    let early = client.start(StartRequest {}).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);

    let mut watch = client.watch(WatchRequest {}).await.unwrap().into_inner();
    until(&mut watch, State::Stopped).await;
    let started = client.start(StartRequest {}).await.unwrap().into_inner();
    assert!(!started.already);
    assert!(client.start(StartRequest {}).await.unwrap().into_inner().already);
    wrapper.recorded("ready QUIT ready").await;
    let now = status(&mut client).await;
    assert_eq!((now.state(), now.drain, now.restarts), (State::Running, None, 0));
}

#[tokio::test]
async fn invalid_requests_do_not_stop_runner() {
    let (wrapper, mut client) = ready(&[], &[]).await;
    for (request, field) in [
        (drain(""), "id"),
        (drain(&"x".repeat(201)), "id"),
        (DrainRequest { reason: "x".repeat(1001), ..drain("d") }, "reason"),
        (
            DrainRequest { deadline: Some(prost_types::Duration { seconds: -1, nanos: 0 }), ..drain("d") },
            "deadline",
        ),
        (
            DrainRequest { deadline: Some(prost_types::Duration { seconds: 0, nanos: 0 }), ..drain("d") },
            "deadline",
        ),
    ] {
        let refused = client.drain(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(field), "{}", refused.message());
    }
    assert_eq!(status(&mut client).await.state(), State::Running);
    assert_eq!(wrapper.record(), "ready");
}

/// Streams that the client does not read use only the calls of their connection; other clients are not affected.
#[tokio::test]
async fn unread_streams_block_only_their_connection() {
    let (wrapper, mut hog) = ready(&[], &["--jobs-take", "100"]).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(hog.watch(WatchRequest {}).await.unwrap());
    }
    let mut waiting = tokio::spawn({
        let mut hog = hog.clone();
        async move { status(&mut hog).await.state() }
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "there is no limit");

    let mut other = wrapper.v1_client().await;
    for _ in 0..20 {
        other.drain(drain("d")).await.unwrap();
        wrapper.client().await.becomes(grit_proto::runner_wrapper::Status::Stopped).await;
        other.start(StartRequest {}).await.unwrap();
    }
    drop(unread);
    assert_eq!(waiting.await.unwrap(), State::Running);
}
