//! The next wrapper after one that was killed: its runner gets SIGQUIT from the kernel, and drains. Drains and callbacks of clients continue, and no
//! second runner is started beside the first one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{DrainOutcome, DrainRequest, GetStatusRequest, StartRequest, State},
};
use rustix::process::Signal;
use tokio::{io::AsyncReadExt, net::TcpListener};

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

pub(crate) async fn ready(habits: &[&str]) -> Wrapper {
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

/// The record, in which several SIGQUIT are one: the kernel sends it for each thread of the wrapper that dies, and the next wrapper sends it again.
fn record(wrapper: &Wrapper) -> String {
    let record = wrapper.record();
    let mut words: Vec<_> = record.split(' ').collect();
    words.dedup_by(|next, word| word == next && *word == "QUIT");
    words.join(" ")
}

/// The runners of this directory. A process before its exec is not a runner yet.
pub(crate) fn runners(folder: &Path) -> Vec<u32> {
    let is_runner = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"misbehaving_child"))
    };
    processes_of(folder).into_iter().filter(is_runner).collect()
}

/// Each round begins without a state file. The wrapper is killed during the start of its runner, or just after it.
#[tokio::test]
async fn wrapper_killed_during_start_leaves_one_runner() {
    let mut folder = tempfile::tempdir().unwrap();
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
        // The kernel ends a runner of the first wrapper, which has no jobs yet.
        let mut client = second.v1_client().await;
        let known = eventually("one runner, which is known", async || {
            let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
            match (status.state(), status.pid, runners(second.folder.path())) {
                (State::Running, Some(pid), found) if found == [pid] => Ok(pid),
                found => Err(found),
            }
        })
        .await;
        folder = killed(second).await;
        eventually("it has ended", async || if is_alive(known) { Err(known) } else { Ok(()) }).await;
        for name in ["log", "record", "w.sock.state"] {
            let _none = fs::remove_file(folder.path().join(name));
        }
    }
}

#[tokio::test]
async fn runner_of_killed_wrapper_drains_and_is_replaced() {
    let jobs = tempfile::tempdir().unwrap();
    let ended = jobs.path().join("ended");
    let habits = ["--jobs-until", ended.to_str().unwrap()];
    let first = ready(&habits).await;
    let runner = first.child_pid();
    let folder = killed(first).await;
    let second = start(folder, &habits);
    second.logged("\"signal\":\"SIGQUIT\"").await;
    eventually("SIGQUIT by the kernel", async || match record(&second) {
        record if record == "ready QUIT" => Ok(()),
        record => Err(record),
    })
    .await;
    let mut client = second.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.pid), (State::Draining, Some(runner)));
    let drain = status.drain.unwrap();
    assert_eq!(
        (drain.id.as_str(), drain.reason.as_str()),
        ("signal", "the wrapper of this runner was killed")
    );
    assert_eq!(runners(second.folder.path()), [runner], "a second runner");
    fs::write(&ended, "").unwrap();
    eventually("the next runner", async || match record(&second) {
        record if record == "ready QUIT ready" => Ok(()),
        record => Err(record),
    })
    .await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.last_drain.unwrap().outcome(), DrainOutcome::Unknown);
    assert!(!is_alive(runner) && runners(second.folder.path()).len() == 1);
}

/// As while the program is replaced.
#[tokio::test]
async fn runner_of_killed_wrapper_needs_no_command() {
    let first = ready(&["--ignore-quit"]).await;
    let runner = first.child_pid();
    let second = Start::again(killed(first).await)
        .flags(&["--start-grace=0s"])
        .command(&["/nonexistent/gitlab-runner"]);
    second.logged("no runner can be started after the exit of the present one").await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.pid), (State::Draining, Some(runner)));
    kill_group(runner).await;
    second.client().await.becomes(Status::Stopped).await;
}

#[tokio::test]
async fn drain_and_callback_survive_wrapper_kill() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/done", listener.local_addr().unwrap());
    let habits = ["--jobs-take", "5000"];
    let flags = ["--start-grace=0s", &format!("--allow-callback={url}")];
    let first = Start::new().flags(&flags).child(&habits);
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

    let second = Start::again(killed(first).await).flags(&flags).child(&habits);
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

/// As when a container is started again while Terraform waits for the drain, and after it.
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

/// The next wrapper starts while the kernel still closes the files of the previous one, or even before it has exited.
#[tokio::test]
async fn next_wrapper_waits_for_previous_to_exit() {
    let tcp = format!("--grpc-listen=tcp://127.0.0.1:{}", crate::sockets::free_port());
    let flags = ["--start-grace=0s", tcp.as_str()];
    let habits = ["--ignore-quit"];
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().to_owned();
    let mut wrapper = Start::again(folder).flags(&flags).child(&habits);
    wrapper.child_ready().await;
    let runner = wrapper.child_pid();
    for round in 0..grit_testkit::rounds(10, 40) {
        wrapper.signal(Signal::KILL);
        // Not reaped yet, and possibly still running.
        let (mut old, folder) = wrapper.into_parts();
        wrapper = Start::again(folder).flags(&flags).child(&habits);
        eventually("the runner is found", async || {
            let log = wrapper.read("log");
            assert!(wrapper.runs(), "round {round}: {log}");
            let found = log.matches("the runner of a killed wrapper is running").count();
            if found == round + 1 { Ok(()) } else { Err(log) }
        })
        .await;
        old.wait().unwrap();
    }
    assert_eq!(runners(&socket), [runner]);
    assert_eq!(wrapper.record().matches("ready").count(), 1);
}

/// In the same directory, with another address: it needs a state file of its own.
#[tokio::test]
async fn wrappers_with_tcp_addresses_do_not_share_a_state_file() {
    let listen = |port| format!("--grpc-listen=tcp://127.0.0.1:{port}");
    let (own, other) = (listen(crate::sockets::free_port()), listen(crate::sockets::free_port()));
    let first = Start::new().without_socket().flags(&[&own]).child(&[]);
    first.child_ready().await;
    let folder = first.path("");
    let mut neighbour = Start::new()
        .without_socket()
        .env("RUNTIME_DIRECTORY", folder.to_str().unwrap())
        .flags(&[&other])
        .child(&[]);
    assert_eq!(neighbour.ended().await.code(), Some(125));
    let log = neighbour.read("log");
    assert!(
        log.contains(&format!("in use by process {}", first.pid())) && log.contains("--state-file"),
        "{log}"
    );
    assert_eq!(neighbour.record(), "");
    // Without a directory, drains and callbacks are lost with the wrapper.
    let without = Start::new().without_socket().flags(&[&other]).env("RUNTIME_DIRECTORY", "").child(&[]);
    without.logged("no state file, because the wrapper has no unix socket").await;
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
            assert_eq!(runners(second.folder.path()), [0; 0], "round {round}: an orphan");
            let record = second.record();
            assert_eq!(record.matches("ready").count(), 1, "round {round}: another runner: {record}");
            assert!(!record.contains("TERM"), "round {round}: {record}");
            ended += usize::from(second.read("log").contains("the runner of a killed wrapper has exited"));
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
    eventually("it drains", async || if is_alive(runner) { Err(runner) } else { Ok(()) }).await;
    let path = folder.path().join("w.sock.state");
    let state = fs::read_to_string(&path).unwrap();
    let changed = state.replace(&format!("\"pid\":{runner},"), &format!("\"pid\":{},", unrelated.id()));
    assert_ne!(state, changed, "the file has another form");
    fs::write(&path, changed).unwrap();

    let second = start(folder, &[]);
    second.client().await.becomes(Status::Running).await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_ne!(status.pid, Some(unrelated.id()));
    second.client().await.forceful().await;
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(unrelated.try_wait().unwrap(), None, "an unrelated process was signalled");
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}
