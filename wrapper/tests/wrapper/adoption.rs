//! Adoption after a wrapper was killed: the runner, the drain request and the callback continue.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{DrainRequest, GetStatusRequest, StartRequest, State},
};
use rustix::process::Signal;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::support::{
    Start, Wrapper, eventually, is_alive, is_end_of_adopted, kill_group, misbehaving_child, pid, processes_of,
};

pub(crate) async fn ready(habits: &[&str]) -> Wrapper {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

/// Kills the wrapper, and starts the next one.
async fn killed_and_again(mut wrapper: Wrapper, habits: &[&str]) -> Wrapper {
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    Start::again(wrapper.into_folder()).flags(&["--start-grace=0s"]).child(habits)
}

/// The processes that run the misbehaving child for this directory. A process at the exec barrier is not one yet.
pub(crate) fn runners(folder: &Path) -> Vec<u32> {
    let is_runner = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"misbehaving_child"))
    };
    processes_of(folder).into_iter().filter(is_runner).collect()
}

#[tokio::test]
async fn next_wrapper_adopts_runner_of_killed_wrapper() {
    let first = ready(&[]).await;
    let runner = first.child_pid();
    let second = killed_and_again(first, &[]).await;
    let mut client = second.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.pid), (State::Running, Some(runner)));
    assert!(is_alive(runner));

    let mut client = second.client().await;
    client.graceful().await;
    let reason = client.becomes(Status::Stopped).await;
    assert!(is_end_of_adopted(&reason, ""), "{reason}");
    assert_eq!(second.record(), "ready QUIT", "a second runner was started, or the first one hurt");
}

/// As while a package is being upgraded, or after a wrong setting.
#[tokio::test]
async fn adopted_runner_needs_no_command() {
    let mut first = ready(&[]).await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder())
        .flags(&["--start-grace=0s"])
        .command(&["/nonexistent/gitlab-runner"]);
    second.logged("the adopted runner is supervised, but cannot be restarted").await;
    let mut client = second.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.pid), (State::Running, Some(runner)));

    let mut client = second.client().await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    assert_eq!(second.record(), "ready QUIT");
}

#[tokio::test]
async fn drain_and_callback_survive_wrapper_kill() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/done", listener.local_addr().unwrap());
    let habits = ["--jobs-take", "5000"];
    let flags = ["--start-grace=0s", &format!("--allow-callback={url}")];
    let mut first = Start::new().flags(&flags).child(&habits);
    first.child_ready().await;
    let callback = ShutdownCallback {
        url,
        method: "POST".to_owned(),
        headers: [("Token".to_owned(), "s3cret".to_owned())].into(),
    };
    first.client().await.graceful_with(Some(callback)).await.unwrap();
    first.recorded("ready QUIT").await;
    let state = first.path("w.sock.state");
    assert!(fs::read_to_string(&state).unwrap().contains("s3cret"), "the callback is not kept");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);

    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder()).flags(&flags).child(&habits);
    let mut client = second.client().await;
    assert_eq!(client.status().await.0, Status::InShutdown);
    client.becomes(Status::Stopped).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    assert!(head.starts_with("POST /done") && head.contains("token: s3cret"), "{head}");
    assert!(second.record().starts_with("ready QUIT") && second.record().matches("ready").count() == 1);
}

#[tokio::test]
async fn stopped_runner_stays_stopped_after_wrapper_restart() {
    let first = ready(&["--code", "6"]).await;
    let mut client = first.v1_client().await;
    client.drain(DrainRequest { id: "deploy-9".to_owned(), ..DrainRequest::default() }).await.unwrap();
    first.client().await.becomes(Status::Stopped).await;
    let second = killed_and_again(first, &[]).await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.failure_reason.as_str()), (State::Failed, "exit status 6"));
    assert_eq!(status.drain.unwrap().id, "deploy-9");
    assert_eq!(second.record(), "ready QUIT", "a drained runner was started again");
}

#[tokio::test]
async fn next_wrapper_sends_sigkill_without_second_sigterm() {
    let habits = ["--ignore-term"];
    let first = ready(&habits).await;
    first.client().await.forceful().await;
    first.recorded("ready TERM").await;
    let mut first = first;
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder())
        .flags(&["--start-grace=0s", "--process-termination-timeout=1s"])
        .child(&habits);
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(second.record(), "ready TERM");
    assert_eq!(runners(second.folder.path()), [0; 0]);
}

#[tokio::test]
async fn runner_that_exited_meanwhile_is_replaced() {
    let mut first = ready(&[]).await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    kill_group(runner).await;
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    second.client().await.becomes(Status::Running).await;
    second.recorded("ready ready").await;
    assert_eq!(runners(second.folder.path()).len(), 1);
}

/// As if a service manager stops the wrapper, kills it after a timeout, and starts it again.
#[tokio::test]
async fn shutdown_of_killed_wrapper_is_finished_by_next_one() {
    let jobs = tempfile::tempdir().unwrap();
    let jobs_ended = jobs.path().join("ended");
    let habits = ["--jobs-until", jobs_ended.to_str().unwrap()];
    let first = ready(&habits).await;
    first.signal(Signal::TERM);
    first.recorded("ready QUIT").await;
    // It finishes the shutdown, and exits as the first one would have done.
    let mut second = killed_and_again(first, &habits).await;
    second.recorded("ready QUIT QUIT").await;
    fs::write(&jobs_ended, "").unwrap();
    second.ended().await;
    assert_eq!(second.record(), "ready QUIT QUIT");
    let third = Start::again(second.into_folder()).flags(&["--start-grace=0s"]).child(&habits);
    third.client().await.becomes(Status::Running).await;
    assert_eq!(runners(third.folder.path()).len(), 1);
}

/// The new program would not know of the runner.
#[tokio::test]
async fn upgrade_without_state_file_is_refused() {
    let tcp = ["--grpc-listen=tcp://127.0.0.1:0"];
    let without = Start::new().without_socket().flags(&tcp).env("RUNTIME_DIRECTORY", "").child(&[]);
    without.child_ready().await;
    without.logged("no state file, because the wrapper has no unix socket").await;
    without.signal(Signal::USR1);
    without.logged("without --state-file").await;
    assert!(is_alive(without.pid()));
}

/// The next wrapper would start a second runner, and drain only this one.
#[tokio::test]
async fn wrapper_with_tcp_address_only_adopts_runner() {
    let listen = |port| format!("--grpc-listen=tcp://127.0.0.1:{port}");
    let (own, other) = (listen(crate::sockets::free_port()), listen(crate::sockets::free_port()));
    let start = |folder, listen: &str| Start::again(folder).without_socket().flags(&[listen]).child(&[]);
    let mut first = start(tempfile::tempdir().unwrap(), &own);
    first.child_ready().await;
    let runner = first.child_pid();

    // In the same directory, with another address: it needs a state file of its own.
    let folder = first.path("");
    let mut neighbour = Start::new()
        .without_socket()
        .env("RUNTIME_DIRECTORY", folder.to_str().unwrap())
        .flags(&[&other])
        .child(&[]);
    assert_eq!(neighbour.ended().await.code(), Some(125));
    let told = format!("in use by process {}", first.pid());
    assert!(neighbour.read("log").contains(&told), "{}", neighbour.read("log"));
    assert!(neighbour.read("log").contains("--state-file"), "{}", neighbour.read("log"));
    assert_eq!(neighbour.record(), "");

    first.signal(Signal::KILL);
    first.ended().await;
    let second = start(first.into_folder(), &own);
    second.logged("adopting the runner of the previous wrapper").await;
    assert_eq!(runners(second.folder.path()), [runner]);
}

/// As during the upgrade of a package, or while a file system is not mounted.
#[tokio::test]
async fn restart_after_binary_returns() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("runner");
    let put = || {
        // By another process, so that no child of the test has the file open for writing.
        let copied = Command::new("cp").arg(misbehaving_child()).arg(&program).status().unwrap();
        assert!(copied.success());
    };
    put();
    let (program_path, record) = (program.to_str().unwrap().to_owned(), folder.path().join("record"));
    let (record, test) = (record.to_str().unwrap().to_owned(), std::process::id().to_string());
    let wrapper = Start::again(folder).flags(&["--start-grace=0s", "--restart=always"]).command(&[
        &program_path,
        "--record",
        &record,
        "--lives-with",
        &test,
    ]);
    wrapper.child_ready().await;
    fs::remove_file(&program).unwrap();
    kill_group(wrapper.child_pid()).await;
    let mut client = wrapper.v1_client().await;
    eventually("the reason", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.failure_reason.contains("does not exist") { Ok(()) } else { Err(status) }
    })
    .await;
    put();
    wrapper.recorded("ready ready").await;
    wrapper.client().await.becomes(Status::Running).await;
}

/// A wrapper that exits regularly leaves nothing to adopt.
#[tokio::test]
async fn next_wrapper_starts_runner_after_clean_exit() {
    let mut first = ready(&[]).await;
    first.signal(Signal::TERM);
    first.ended().await;
    assert_eq!(first.read("w.sock.state"), "", "it means that no runner is running");
    let second = Start::again(first.into_folder()).child(&[]);
    second.recorded("ready QUIT ready").await;
}

/// As with `systemctl restart` while Terraform waits for the drain, and after it.
#[tokio::test]
async fn next_wrapper_starts_no_runner_after_drain_of_client() {
    let (folder, jobs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ended = jobs.path().join("ended");
    let habits = ["--jobs-until", ended.to_str().unwrap()];
    let start = |folder| Start::again(folder).flags(&["--start-grace=0s"]).child(&habits);
    let mut wrapper = start(folder);
    wrapper.child_ready().await;
    // The client joins the drain for the exit of the wrapper.
    wrapper.signal(Signal::TERM);
    wrapper.recorded("ready QUIT").await;
    let request = DrainRequest { id: "terraform".to_owned(), ..DrainRequest::default() };
    wrapper.v1_client().await.drain(request).await.unwrap();
    fs::write(&ended, "").unwrap();
    for _ in 0..2 {
        wrapper.ended().await;
        wrapper = start(wrapper.into_folder());
        let status = wrapper.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert_eq!((status.state(), status.drain.unwrap().id.as_str()), (State::Stopped, "terraform"));
        wrapper.signal(Signal::TERM);
    }
    wrapper.ended().await;
    let mut wrapper = start(wrapper.into_folder());
    wrapper.v1_client().await.start(StartRequest {}).await.unwrap();
    wrapper.recorded("ready QUIT ready").await;
    // The drain is over: a restart starts another runner.
    wrapper.signal(Signal::TERM);
    wrapper.ended().await;
    let wrapper = start(wrapper.into_folder());
    wrapper.recorded("ready QUIT ready QUIT ready").await;
}

/// Faster than a service manager: the next wrapper starts while the kernel still closes the files of the previous one, or even
/// before it has exited.
#[tokio::test]
async fn next_wrapper_waits_for_previous_to_exit() {
    let tcp = format!("--grpc-listen=tcp://127.0.0.1:{}", crate::sockets::free_port());
    let flags = ["--start-grace=0s", tcp.as_str()];
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().to_owned();
    let mut wrapper = Start::again(folder).flags(&flags).child(&[]);
    wrapper.child_ready().await;
    let runner = wrapper.child_pid();
    for round in 0..grit_testkit::rounds(10, 40) {
        wrapper.signal(Signal::KILL);
        // Not reaped yet, and possibly still running.
        let (mut old, folder) = wrapper.into_parts();
        wrapper = Start::again(folder).flags(&flags).child(&[]);
        eventually("the runner is adopted", async || {
            let log = wrapper.read("log");
            assert!(wrapper.runs(), "round {round}: {log}");
            if log.matches("adopting the runner").count() == round + 1 { Ok(()) } else { Err(log) }
        })
        .await;
        old.wait().unwrap();
    }
    assert_eq!(runners(&socket), [runner]);
    assert_eq!(wrapper.record(), "ready");
}

/// Up to 200 wrappers, each killed at a different time: while it reads the state, creates the exec barrier, writes, releases the runner, or
/// supervises. After the first runner was seen, this runner keeps running, and no second one is started.
#[tokio::test]
async fn repeatedly_killed_wrappers_keep_one_runner() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut runner = None;
    for round in 0..grit_testkit::rounds(50_u64, 200) {
        let mut wrapper = Start::again(folder).flags(&["--start-grace=0s"]).child(&[]);
        if round == 10 && runner.is_none() {
            // On a busy machine no wrapper has run long enough so far.
            eventually("a runner", async || {
                let found = runners(wrapper.folder.path());
                if found.is_empty() { Err(found) } else { Ok(()) }
            })
            .await;
        } else {
            tokio::time::sleep(Duration::from_micros(round * 7919 % 40_000)).await;
        }
        let _gone = rustix::process::kill_process(pid(wrapper.pid()), Signal::KILL);
        wrapper.ended().await;
        folder = wrapper.into_folder();
        let found = runners(folder.path());
        assert!(found.len() <= 1, "round {round}: two runners: {found:?}");
        if runner.is_some() {
            assert_eq!(found.first().copied(), runner, "round {round}: the runner was lost");
        }
        runner = found.first().copied();
    }
    assert!(runner.is_some(), "a wrapper has started a runner");

    let last = Start::again(folder).flags(&["--start-grace=0s"]).child(&[]);
    let mut client = last.client().await;
    client.becomes(Status::Running).await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    eventually("no orphan", async || {
        let left = runners(last.folder.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(last.record(), "ready QUIT");
}
