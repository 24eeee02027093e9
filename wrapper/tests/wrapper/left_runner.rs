//! A command that is not the runner itself: a script that starts it without `exec`, and exits before it.

use std::{fs, path::Path};

use grit_proto::wrapper_v1::{
    DrainOutcome, DrainRequest, GetStatusRequest, State, Status, wrapper_client::WrapperClient,
};
use grit_testkit::program;
use rustix::process::{Signal, kill_process};
use tonic::transport::Channel;

use crate::support::{Start, Wrapper, eventually, is_alive, pid};

/// Starts `gitlab-runner COMMAND` in the background, waits for SIGQUIT or the file `go`, and exits with 0. The runner is a copy of the shell with
/// the name and the arguments of GitLab Runner, which runs the script COMMAND. It ends with its directory.
fn command_in(folder: &Path, command: &str) -> String {
    program::copy(Path::new("/bin/sh"), &folder.join("gitlab-runner")).unwrap();
    let runner = format!("echo $$ >pid.new; mv pid.new pid; while test -e {command}; do sleep 0.1; done");
    fs::write(folder.join(command), runner).unwrap();
    let path = folder.join("script");
    let script = format!(
        "cd {}\n./gitlab-runner {command} &\ntrap 'exit 0' QUIT\nuntil test -e go; do sleep 0.02; done",
        folder.display()
    );
    program::script(&path, &script).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A wrapper with that command.
async fn start(command: &str, flags: &[&str]) -> (Wrapper, WrapperClient<Channel>, u32) {
    let start =
        Start::new().flags(&["--start-grace=0s", "--restart=always", "--restart-delay=10ms"]).flags(flags);
    let folder = start.folder_path();
    let wrapper = start.command(&[&command_in(&folder, command)]);
    let runner = eventually("the runner runs", async || {
        let text = fs::read_to_string(folder.join("pid")).unwrap_or_default();
        text.trim().parse::<u32>().map_err(|_| text)
    })
    .await;
    let client = wrapper.v1_client().await;
    (wrapper, client, runner)
}

async fn status(client: &mut WrapperClient<Channel>) -> Status {
    client.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

async fn becomes(client: &mut WrapperClient<Channel>, state: State) -> Status {
    eventually("the state", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.state() == state { Ok(status) } else { Err(status) }
    })
    .await
}

fn reasons(status: &Status) -> String {
    status.health.clone().unwrap_or_default().reasons.join("; ")
}

fn drain(id: &str) -> DrainRequest {
    DrainRequest { id: id.to_owned(), ..DrainRequest::default() }
}

#[tokio::test]
async fn drain_beside_a_left_runner_is_not_clean() {
    let (_wrapper, mut client, runner) = start("run", &[]).await;
    client.drain(drain("d")).await.unwrap();
    let stopped = becomes(&mut client, State::Stopped).await;
    let reason = format!("a process of the runner is still running: PID {runner}");
    assert!(is_alive(runner) && reasons(&stopped).contains(&reason), "{stopped:?}");
    assert!(stopped.failure_reason.contains(&reason), "{stopped:?}");
    assert_eq!(stopped.left_runner, Some(runner));
    assert_eq!(stopped.drain.unwrap().outcome(), DrainOutcome::Unknown);
    kill_process(pid(runner), Signal::KILL).unwrap();
    eventually("the reason is gone", async || {
        let status = status(&mut client.clone()).await;
        if reasons(&status).contains("still running") || status.left_runner.is_some() {
            Err(status)
        } else {
            Ok(())
        }
    })
    .await;
}

/// The restart policy would start a second runner.
#[tokio::test]
async fn no_runner_is_started_beside_a_left_runner() {
    let (wrapper, mut client, runner) = start("run", &[]).await;
    fs::write(wrapper.path("go"), "").unwrap();
    let stopped = becomes(&mut client, State::Stopped).await;
    assert!(reasons(&stopped).contains("is not restarted beside it"), "{stopped:?}");
    wrapper.logged("a runner that it started was still running").await;
    assert_eq!(wrapper.read("log").matches("\"runner started\"").count(), 1);
    client.drain(drain("d")).await.unwrap();
    let drained = status(&mut client).await;
    assert_eq!(drained.drain.clone().unwrap().outcome(), DrainOutcome::Unknown, "{drained:?}");
    kill_process(pid(runner), Signal::KILL).unwrap();
}

/// The command exits before the wrapper, which is killed or terminates, or after it.
#[tokio::test]
async fn next_wrapper_starts_no_runner_beside_a_left_runner() {
    for (signal, is_first) in [(Signal::KILL, true), (Signal::TERM, true), (Signal::KILL, false)] {
        let (mut first, mut client, runner) = start("run", &[]).await;
        let command = first.child_pid();
        if is_first {
            fs::write(first.path("go"), "").unwrap();
            becomes(&mut client, State::Stopped).await;
        }
        first.signal(signal);
        first.ended().await;
        fs::write(first.path("go"), "").unwrap();
        eventually("the command exits", async || if is_alive(command) { Err(command) } else { Ok(()) }).await;
        let script = first.path("script");
        let second = Start::again(first.into_folder()).command(&[script.to_str().unwrap()]);
        let mut client = second.v1_client().await;
        let idle = status(&mut client).await;
        assert_eq!(idle.state(), State::Idle, "{signal:?} {is_first}: {idle:?}");
        assert!(reasons(&idle).contains(&format!("still running: PID {runner}")), "{idle:?}");
        assert_eq!(second.read("log").matches("\"runner started\"").count(), 1);

        // When the runner has exited, the command is started.
        kill_process(pid(runner), Signal::KILL).unwrap();
        eventually("the runner is started", async || {
            let log = second.read("log");
            if log.matches("\"runner started\"").count() == 2 { Ok(()) } else { Err(log) }
        })
        .await;
    }
}

/// As with `tini -- gitlab-runner run`: both have the name of the state file in their environment.
#[tokio::test]
async fn command_is_adopted_without_state_file_and_not_its_child() {
    let (mut first, _, runner) = start("run", &[]).await;
    let command = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    fs::remove_file(first.path("w.sock.state")).unwrap();
    let script = first.path("script");
    let second = Start::again(first.into_folder()).command(&[script.to_str().unwrap()]);
    let adopted = status(&mut second.v1_client().await).await;
    assert_eq!((adopted.state(), adopted.pid), (State::Running, Some(command)), "{adopted:?}");
    kill_process(pid(runner), Signal::KILL).unwrap();
}

#[tokio::test]
async fn drain_that_kills_a_left_runner_is_not_clean() {
    let (_wrapper, mut client, runner) = start("run", &["--leftover-processes=kill"]).await;
    client.drain(drain("d")).await.unwrap();
    let stopped = becomes(&mut client, State::Stopped).await;
    assert!(!is_alive(runner));
    assert_eq!(stopped.drain.unwrap().outcome(), DrainOutcome::Unknown);
}

/// Jobs run other commands of the same program.
#[tokio::test]
async fn helper_command_of_a_job_is_not_a_left_runner() {
    let (_wrapper, mut client, helper) = start("artifacts-uploader", &[]).await;
    client.drain(drain("d")).await.unwrap();
    let stopped = becomes(&mut client, State::Stopped).await;
    assert_eq!(stopped.drain.unwrap().outcome(), DrainOutcome::Clean);
    kill_process(pid(helper), Signal::KILL).unwrap();
}
