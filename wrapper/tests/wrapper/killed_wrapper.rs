//! Adoption after the previous wrapper was killed at critical times: between a signal and its record, during the start of a runner, after
//! a callback.

use std::{fs, time::Duration};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{CancelRequest, DrainRequest, GetStatusRequest, State},
};
use rustix::process::Signal;
use tonic::Code;

use crate::{
    callback::Hook,
    support::{Start, Wrapper, eventually, is_alive, kill_group, pid, processes_of},
};

fn start(folder: tempfile::TempDir, habits: &[&str]) -> Wrapper {
    start_with(folder, &[], habits)
}

fn start_with(folder: tempfile::TempDir, hooks: &[&Hook], habits: &[&str]) -> Wrapper {
    Start::again(folder).flags(&["--start-grace=0s"]).allow(hooks).child(habits)
}

async fn ready(habits: &[&str]) -> Wrapper {
    ready_with(&[], habits).await
}

async fn ready_with(hooks: &[&Hook], habits: &[&str]) -> Wrapper {
    let wrapper = start_with(tempfile::tempdir().unwrap(), hooks, habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

async fn killed(mut wrapper: Wrapper) -> tempfile::TempDir {
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    wrapper.into_folder()
}

/// The runner drains even if the wrapper that requested it was killed.
#[tokio::test]
async fn signalled_drain_cannot_be_cancelled_by_next_wrapper() {
    let habits = ["--jobs-take", "60000"];
    let first = ready(&habits).await;
    let drain = DrainRequest { id: "deploy-7".to_owned(), ..DrainRequest::default() };
    first.v1_client().await.drain(drain).await.unwrap();
    first.recorded("ready QUIT").await;
    // For this wrapper the runner is too young for another SIGQUIT, so that the test has time for its requests.
    let second = Start::again(killed(first).await).flags(&["--start-grace=1h"]).child(&habits);
    let mut client = second.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let drain = status.drain.clone().unwrap();
    assert_eq!((status.state(), drain.id.as_str(), drain.signalled), (State::Draining, "deploy-7", true));
    let late = client.cancel(CancelRequest::default()).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late:?}");
    assert!(late.message().contains("SIGQUIT was already sent"), "{late:?}");
}

/// As if the service is stopped while a deployment waits for the exit of the same runner.
#[tokio::test]
async fn joined_drain_survives_wrapper_kill() {
    let hook = Hook::new(&["200 OK"]).await;
    let habits = ["--jobs-take", "4000"];
    let first = ready_with(&[&hook], &habits).await;
    first.signal(Signal::TERM);
    first.recorded("ready QUIT").await;
    let callback = ShutdownCallback { url: hook.url.clone(), ..ShutdownCallback::default() };
    first.client().await.graceful_with(Some(callback)).await.unwrap();
    // It finishes the shutdown, and exits.
    let mut second = start_with(killed(first).await, &[&hook], &habits);
    second.ended().await;
    hook.called(1).await;
    let second = start_with(second.into_folder(), &[&hook], &habits);
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.drain.unwrap().id, "upstream");
    assert_eq!(
        second.record().matches("ready").count(),
        1,
        "the runner that was to stay stopped was started again"
    );

    // Clients cannot use the reserved id `signal`.
    let drain = DrainRequest { id: "signal".to_owned(), ..DrainRequest::default() };
    let refused = second.v1_client().await.drain(drain).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn completed_callback_is_not_repeated_by_next_wrapper() {
    let hook = Hook::new(&["200 OK"]).await;
    let other = Hook::new(&["200 OK"]).await;
    let first = ready_with(&[&hook, &other], &[]).await;
    let callback =
        |hook: &Hook| Some(ShutdownCallback { url: hook.url.clone(), ..ShutdownCallback::default() });
    first.client().await.graceful_with(callback(&hook)).await.unwrap();
    hook.called(1).await;
    eventually("it is written down", async || {
        let state = fs::read_to_string(first.path("w.sock.state")).unwrap();
        if state.contains("\"callbacks\":[]") { Ok(()) } else { Err(state) }
    })
    .await;
    let second = start_with(killed(first).await, &[&hook, &other], &[]);
    // Sent after the remaining callbacks.
    second.client().await.graceful_with(callback(&other)).await.unwrap();
    other.called(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(hook.heads().len(), 1);
}

/// The runners of this directory. A process at the exec barrier is not a runner yet.
fn runners(wrapper: &Wrapper) -> Vec<u32> {
    let is_runner = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"misbehaving_child"))
    };
    processes_of(wrapper.folder.path()).into_iter().filter(is_runner).collect()
}

/// Each round begins without a state file, so that the wrapper is killed during the start of the first runner: before the exec barrier, while
/// the PID is written, at the release, or immediately after it.
#[tokio::test]
async fn wrapper_killed_during_start_leaves_known_runner_or_none() {
    let mut folder = tempfile::tempdir().unwrap();
    let (mut adopted, mut started) = (0, 0);
    for round in 0..grit_testkit::rounds(20_u64, 60) {
        let mut first = start(folder, &[]);
        match round % 10 {
            // Before the first step and after the last one, also on a busy machine.
            0 => {}
            1 => first.logged("runner started").await,
            _ => tokio::time::sleep(Duration::from_micros(round * 7919 % 30_000)).await,
        }
        let _gone = rustix::process::kill_process(pid(first.pid()), Signal::KILL);
        first.ended().await;
        let second = start(first.into_folder(), &[]);
        // A child of the first wrapper between fork and exec keeps the socket of the first wrapper open. A connection to that socket is
        // reset at the exec.
        let status = eventually("the second wrapper answers", async || {
            second.v1_client().await.get_status(GetStatusRequest {}).await
        });
        let status = status.await.into_inner();
        assert_eq!(status.state(), State::Running, "round {round}: {status:?}");
        let known = status.pid.unwrap();
        eventually("just the runner that is known", async || match runners(&second) {
            found if found == [known] => Ok(()),
            found => Err((known, found)),
        })
        .await;
        match second.read("log").contains("adopting the runner") {
            true => adopted += 1,
            false => started += 1,
        }
        kill_group(known).await;
        assert!(!is_alive(known));
        folder = killed(second).await;
        for name in ["log", "record", "w.sock.state"] {
            let _none = fs::remove_file(folder.path().join(name));
        }
    }
    assert!(adopted > 0 && started > 0, "of one kind only, so the moments are wrong: {adopted}, {started}");
}

/// A client that received a response can rely on the drain, at whatever time between the request and the exit of the runner the wrapper is
/// killed. A client without a response can repeat the request.
#[tokio::test]
async fn wrapper_killed_during_drain_keeps_accepted_drain() {
    let (mut accepted, mut ended) = (0, 0);
    for round in 0..grit_testkit::rounds(20_u64, 50) {
        let habits = ["--jobs-take", "15"];
        let first = ready(&habits).await;
        let mut client = first.v1_client().await;
        let drain = DrainRequest { id: format!("deploy-{round}"), ..DrainRequest::default() };
        let drained = tokio::spawn(async move { client.drain(drain).await.is_ok() });
        match round % 10 {
            // After the response, and after the exit, also on a busy machine.
            0 => first.recorded("ready QUIT").await,
            1 => drop(first.client().await.becomes(Status::Stopped).await),
            _ => tokio::time::sleep(Duration::from_micros(round * 7919 % 30_000)).await,
        }
        let folder = killed(first).await;
        let was_accepted = drained.await.unwrap();
        let second = start(folder, &habits);
        let mut client = second.client().await;
        if was_accepted {
            accepted += 1;
            client.becomes(Status::Stopped).await;
            let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
            assert_eq!(status.drain.unwrap().id, format!("deploy-{round}"));
            assert_eq!(runners(&second), [0; 0], "round {round}: an orphan");
            let record = second.record();
            assert_eq!(record.matches("ready").count(), 1, "round {round}: another runner: {record}");
            assert!(!record.contains("TERM"), "round {round}: {record}");
            ended += usize::from(
                second.read("log").contains("the runner was drained before this wrapper started"),
            );
        }
    }
    assert!(
        accepted > 0 && ended > 0,
        "the moments are wrong: of {accepted} accepted drains, {ended} runners ended alone"
    );
}

/// PID reuse: another process has the PID of the runner.
#[tokio::test]
async fn unrelated_process_with_reused_pid_is_not_signalled() {
    let mut unrelated = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    // The kernel reports the start time of a process in ticks of 10 ms, in which no PID is reused. These two must have different ticks.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let first = ready(&[]).await;
    let runner = first.child_pid();
    let folder = killed(first).await;
    kill_group(runner).await;
    let path = folder.path().join("w.sock.state");
    let state = fs::read_to_string(&path).unwrap();
    let changed = state.replace(&format!("\"pid\":{runner},"), &format!("\"pid\":{},", unrelated.id()));
    assert_ne!(state, changed, "the file has another form");
    fs::write(&path, changed).unwrap();

    let second = start(folder, &[]);
    second.client().await.becomes(Status::Running).await;
    second.recorded("ready ready").await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_ne!(status.pid, Some(unrelated.id()));
    second.client().await.forceful().await;
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(unrelated.try_wait().unwrap(), None, "an unrelated process was signalled");
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}
