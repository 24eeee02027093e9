//! SIGUSR1: the wrapper executes its binary again. It stays the same process, with the same runner and sockets.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{DrainOutcome, DrainRequest, GetStatusRequest, StartRequest, State, Status as V1Status},
};
use rustix::process::Signal;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};

use crate::{
    callback::Hook,
    sockets::socket_inodes,
    support::{Start, Wrapper, eventually, is_alive, kill_group, tcp_client},
};

/// Upgrades the wrapper, and waits until the new program has opened its sockets.
pub(crate) async fn upgrade(wrapper: &Wrapper) {
    let count = |log: &str| log.matches("gRPC server listening").count();
    let before = count(&wrapper.read("log"));
    wrapper.signal(Signal::USR1);
    eventually("the new program runs", async || {
        let log = wrapper.read("log");
        if count(&log) > before { Ok(()) } else { Err(log) }
    })
    .await;
}

async fn ready(start: Start, habits: &[&str]) -> Wrapper {
    let wrapper = start.flags(&["--start-grace=0s"]).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

async fn status(wrapper: &Wrapper) -> V1Status {
    wrapper.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

async fn drained(wrapper: &Wrapper, id: &str) -> V1Status {
    let drain = DrainRequest { id: id.to_owned(), ..DrainRequest::default() };
    wrapper.v1_client().await.drain(drain).await.unwrap();
    wrapper.client().await.becomes(Status::Stopped).await;
    status(wrapper).await
}

/// A copy of the wrapper's binary, as the installed one. Another process writes it, so that no child of the test has it open for writing.
fn install(program: &Path, source: &Path) {
    let new = program.with_extension("new");
    assert!(Command::new("cp").args([source, &new]).status().unwrap().success());
    fs::rename(new, program).unwrap();
}

fn built() -> PathBuf {
    env!("CARGO_BIN_EXE_grit-wrapper").into()
}

fn runs(wrapper: &Wrapper, program: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    inode(Path::new(&format!("/proc/{}/exe", wrapper.pid()))) == inode(program)
}

/// The addresses of the log lines with this text.
fn bound(wrapper: &Wrapper, text: &str) -> Vec<String> {
    let log = wrapper.read("log");
    let lines = log.lines().filter(|line| line.contains(text) && line.contains("\"bound\":\"127"));
    let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| line["bound"].as_str().unwrap().to_owned()).collect()
}

/// Neither sockets nor variables nor blocked signals of the wrapper.
async fn assert_runner_inherits_nothing(wrapper: &Wrapper) {
    let (runner, ours) = (status(wrapper).await.pid.unwrap(), socket_inodes(wrapper.pid()));
    let read = |name: &str| {
        String::from_utf8_lossy(&fs::read(format!("/proc/{runner}/{name}")).unwrap()).into_owned()
    };
    assert!(!read("environ").contains("LISTEN_") && !read("environ").contains("GRIT_WRAPPER_"));
    assert!(read("status").contains("\nSigBlk:\t0000000000000000\n"), "{}", read("status"));
    assert!(socket_inodes(runner).iter().all(|socket| !ours.contains(socket)));
}

#[tokio::test]
async fn upgrade_keeps_pid_runner_and_sockets() {
    let start = Start::new().flags(&["--grpc-listen=tcp://127.0.0.1:0", "--http-listen=tcp://127.0.0.1:0"]);
    let program = start.folder_path().join("grit-wrapper");
    install(&program, &built());
    let mut wrapper = ready(start.program(&program), &[]).await;
    let (runner, socket) = (wrapper.child_pid(), fs::metadata(wrapper.path("w.sock")).unwrap().ino());
    for _ in 0..2 {
        install(&program, &built());
        assert!(!runs(&wrapper, &program));
        upgrade(&wrapper).await;
        assert!(runs(&wrapper, &program) && is_alive(runner));
        let status = status(&wrapper).await;
        assert_eq!((status.state(), status.pid), (State::Running, Some(runner)));
    }
    assert_eq!(fs::metadata(wrapper.path("w.sock")).unwrap().ino(), socket);
    for text in ["gRPC server listening", "HTTP server listening"] {
        eventually("all programs listen on the same address", async || match &bound(&wrapper, text)[..] {
            [first, second, third] if first == second && second == third => Ok(()),
            other => Err(other.to_vec()),
        })
        .await;
    }
    let mut tcp = tcp_client(&bound(&wrapper, "gRPC server")[0]).await.unwrap();
    assert_eq!(tcp.status().await.0, Status::Running);
    TcpStream::connect(&bound(&wrapper, "HTTP server")[0]).await.unwrap();
    let log = wrapper.read("log");
    assert_eq!(log.matches("upgraded: supervising the same runner").count(), 2, "{log}");
    assert_eq!(log.matches("\"action\":\"upgrade\"").count(), 2, "{log}");
    assert!(!log.contains("adopting the runner"), "{log}");

    // The next runner inherits nothing of the upgrade.
    assert_eq!(drained(&wrapper, "deploy-7").await.drain.unwrap().outcome(), DrainOutcome::Clean);
    wrapper.v1_client().await.start(StartRequest {}).await.unwrap();
    wrapper.recorded("ready QUIT ready").await;
    assert_runner_inherits_nothing(&wrapper).await;

    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(0));
    assert!(!wrapper.path("w.sock").exists(), "the socket was left behind");
}

#[tokio::test]
async fn changed_symbolic_link_is_followed() {
    let start = Start::new();
    let folder = start.folder_path();
    let (link, [old, new]) = (folder.join("grit-wrapper"), ["1", "2"].map(|version| folder.join(version)));
    install(&old, &built());
    symlink(&old, &link).unwrap();
    let wrapper = ready(start.program(&link), &[]).await;
    install(&new, &built());
    fs::remove_file(&link).unwrap();
    symlink(&new, &link).unwrap();
    upgrade(&wrapper).await;
    assert!(runs(&wrapper, &new));
}

/// The runner exits before, during and after the upgrade. Its exit code is known, because the wrapper stays its parent.
#[tokio::test]
async fn exit_code_during_upgrade_is_known() {
    let start = Start::new().flags(&["--request-gap-timeout=0s"]);
    let ended = start.folder_path().join("ended");
    let wrapper = ready(start, &["--jobs-until", ended.to_str().unwrap()]).await;
    for round in 0..grit_testkit::rounds(30_u64, 200) {
        let drain = DrainRequest { id: format!("deploy-{round}"), ..DrainRequest::default() };
        wrapper.v1_client().await.drain(drain).await.unwrap();
        let end = || fs::write(&ended, "").unwrap();
        let during = async {
            tokio::time::sleep(Duration::from_micros(round * 7919 % 200_000)).await;
            if round % 5 > 0 {
                end();
            }
        };
        tokio::join!(during, upgrade(&wrapper));
        end();
        wrapper.client().await.becomes(Status::Stopped).await;
        let status = status(&wrapper).await;
        let drain = status.drain.unwrap();
        assert_eq!(
            (drain.id, drain.outcome),
            (format!("deploy-{round}"), DrainOutcome::Clean.into()),
            "round {round}"
        );
        fs::remove_file(&ended).unwrap();
        wrapper.v1_client().await.start(StartRequest {}).await.unwrap();
        wrapper.client().await.becomes(Status::Running).await;
        eventually("the runner is ready", async || match wrapper.record().matches("ready").count() as u64 {
            count if count == round + 2 => Ok(()),
            _ => Err(wrapper.record()),
        })
        .await;
    }
    // At least those whose jobs end after the upgrade.
    let continued = wrapper.read("log").matches("upgraded: supervising the same runner").count();
    assert!(continued as u64 >= grit_testkit::rounds(6, 40), "{continued}");
}

/// Upgrades to a script that ends the runner by `end`, and executes the wrapper when the runner is a zombie. A shell would reap the runner.
async fn upgrade_beside_exit(wrapper: &Wrapper, program: &Path, end: &str) -> V1Status {
    let script = format!(
        "#!/usr/bin/env python3\nimport os, sys\nif sys.argv[1] == '--version': sys.exit()\n{end}\n\
         while ') Z ' not in open('/proc/{}/stat').read(): pass\n\
         os.execv({:?}, ['grit-wrapper'] + sys.argv[1:])\n",
        wrapper.child_pid(),
        built()
    );
    let new = program.with_extension("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(new, program).unwrap();
    upgrade(wrapper).await;
    wrapper.logged("upgraded: supervising the same runner").await;
    wrapper.client().await.becomes(Status::Stopped).await;
    status(wrapper).await
}

#[tokio::test]
async fn exit_code_of_runner_that_exits_during_exec_is_known() {
    let start = Start::new();
    let program = start.folder_path().join("grit-wrapper");
    install(&program, &built());
    let wrapper = ready(start.program(&program), &["--code", "3"]).await;
    let end = format!("os.kill({}, 15)", wrapper.child_pid());
    let status = upgrade_beside_exit(&wrapper, &program, &end).await;
    assert_eq!((status.state(), status.failure_reason.as_str()), (State::Failed, "exit status 3"));

    let start = Start::new();
    let folder = start.folder_path();
    let (program, ended) = (folder.join("grit-wrapper"), folder.join("ended"));
    install(&program, &built());
    let wrapper = ready(start.program(&program), &["--jobs-until", ended.to_str().unwrap()]).await;
    let drain = DrainRequest { id: "deploy-7".to_owned(), ..DrainRequest::default() };
    wrapper.v1_client().await.drain(drain).await.unwrap();
    wrapper.recorded("ready QUIT").await;
    let status = upgrade_beside_exit(&wrapper, &program, &format!("open({ended:?}, 'w')")).await;
    assert_eq!(status.drain.unwrap().outcome(), DrainOutcome::Clean);
}

#[tokio::test]
async fn exit_code_3_without_request_is_reported() {
    for round in 0..grit_testkit::rounds(10_u64, 50) {
        let after = (round * 7919 % 60 + 20).to_string();
        let wrapper = Start::new().child(&["--exit-after", &after, "--code", "3"]);
        wrapper.logged("runner started").await;
        upgrade(&wrapper).await;
        wrapper.client().await.becomes(Status::Stopped).await;
        let status = status(&wrapper).await;
        assert_eq!(
            (status.state(), status.failure_reason.as_str()),
            (State::Failed, "exit status 3"),
            "round {round}"
        );
    }
}

/// Until an upgrade succeeds, the old program goes on: with its sockets, its signals and its runner.
#[tokio::test]
async fn broken_binary_keeps_the_old_program() {
    let start = Start::new();
    let program = start.folder_path().join("grit-wrapper");
    install(&program, &built());
    let mut wrapper = ready(start.program(&program), &[]).await;
    let runner = wrapper.child_pid();
    let broken = wrapper.path("broken");
    let whole = fs::read(built()).unwrap();
    let check = "#!/bin/sh\n[ \"$1\" != --version ] || ";
    let bodies = [
        ("Permission denied", b"#!/bin/sh\n".to_vec(), 0o644),
        ("Exec format error", Vec::new(), 0o755),
        ("`--version` failed", whole[..100_000].to_vec(), 0o755),
        ("`--version` failed", format!("{check}exit 1\n").into_bytes(), 0o755),
        // It passes the check, and cannot be executed after it.
        ("Permission denied", format!("{check}chmod a-x \"$0\"\n").into_bytes(), 0o755),
        ("No such file", Vec::new(), 0),
    ];
    for (number, (error, body, mode)) in bodies.into_iter().enumerate() {
        fs::write(&broken, body).unwrap();
        fs::set_permissions(&broken, PermissionsExt::from_mode(mode)).unwrap();
        match mode {
            0 => fs::remove_file(&program).unwrap(),
            _ => fs::rename(&broken, &program).unwrap(),
        }
        wrapper.signal(Signal::USR1);
        eventually("the error", async || {
            let log = wrapper.read("log");
            let last =
                log.lines().rfind(|line| line.contains("\"upgrade failed; the old binary keeps running\""));
            let is_logged =
                log.matches("\"upgrade failed; the old binary keeps running\"").count() == number + 1;
            if is_logged && last.is_some_and(|line| line.contains(error)) {
                Ok(())
            } else {
                Err((number, log))
            }
        })
        .await;
        let status = status(&wrapper).await;
        assert_eq!((status.state(), status.pid), (State::Running, Some(runner)));
    }
    assert_eq!(drained(&wrapper, "deploy-7").await.drain.unwrap().outcome(), DrainOutcome::Clean);
    wrapper.v1_client().await.start(StartRequest {}).await.unwrap();
    wrapper.recorded("ready QUIT ready").await;
    assert_runner_inherits_nothing(&wrapper).await;
    install(&program, &built());
    upgrade(&wrapper).await;
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(0));
}

/// Waits for the first byte of the answer.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> std::io::Result<u8> {
    stream.write_all(request).await?;
    stream.read_u8().await
}

/// They wait in the backlog. A connection that the old program has accepted may be cut off.
#[tokio::test]
async fn clients_are_never_refused_during_upgrades() {
    let wrapper = ready(Start::new().flags(&["--http-listen=tcp://127.0.0.1:0"]), &[]).await;
    let (socket, http) = (wrapper.path("w.sock"), bound(&wrapper, "HTTP server").remove(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let unix = tokio::spawn(async move {
        // The beginning of each HTTP/2 connection: the preface and empty settings.
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let mut answered = 0;
        while !over.load(Ordering::Relaxed) {
            let stream = UnixStream::connect(&socket).await.unwrap();
            answered += usize::from(answer(stream, begin).await.is_ok());
        }
        answered
    });
    let over = Arc::clone(&is_over);
    let tcp = tokio::spawn(async move {
        let begin = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut answered = 0;
        while !over.load(Ordering::Relaxed) {
            let stream = TcpStream::connect(&http).await.unwrap();
            answered += usize::from(answer(stream, begin).await.is_ok());
        }
        answered
    });
    for _ in 0..20 {
        upgrade(&wrapper).await;
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(unix.await.unwrap() > 20 && tcp.await.unwrap() > 20);
    assert_eq!(wrapper.record(), "ready");
}

/// `systemctl stop` beside an upgrade: the signal comes to the old or to the new program, and is lost in none.
#[tokio::test]
async fn sigterm_during_upgrade_is_not_lost() {
    for round in 0..grit_testkit::rounds(20_u64, 100) {
        let mut wrapper = ready(Start::new(), &[]).await;
        wrapper.signal(Signal::USR1);
        tokio::time::sleep(Duration::from_micros(round * 7919 % 60_000)).await;
        wrapper.signal(Signal::TERM);
        let ended = wrapper.ended().await;
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "round {round}: {}", wrapper.read("log"));
        assert!(wrapper.record().starts_with("ready QUIT"), "round {round}: {}", wrapper.record());
    }
}

/// As if the package is upgraded during a deployment.
#[tokio::test]
async fn drain_continues_during_upgrades() {
    let hook = Hook::new(&["200 OK"]).await;
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    let wrapper = ready(Start::new().allow(&[&hook]), &["--jobs-until", ended.to_str().unwrap()]).await;
    let runner = wrapper.child_pid();
    let callback = ShutdownCallback { url: hook.url.clone(), ..ShutdownCallback::default() };
    wrapper.client().await.graceful_with(Some(callback)).await.unwrap();
    wrapper.recorded("ready QUIT").await;
    let address = format!("unix://{}", wrapper.path("w.sock").display());
    let mut waiting =
        Command::new(built()).args(["wait", "--for", "stopped", "--address", &address]).spawn().unwrap();
    for _ in 0..3 {
        upgrade(&wrapper).await;
        let status = status(&wrapper).await;
        assert_eq!((status.state(), status.pid), (State::Draining, Some(runner)));
    }
    assert_eq!(hook.heads(), [""; 0], "called before the runner has ended");
    fs::write(&ended, "").unwrap();
    wrapper.client().await.becomes(Status::Stopped).await;
    hook.called(1).await;
    assert_eq!(status(&wrapper).await.drain.unwrap().outcome(), DrainOutcome::Clean);
    let waited = eventually("the command ends", async || waiting.try_wait().unwrap().ok_or("waits")).await;
    assert!(waited.success(), "{waited}");
    assert_eq!(wrapper.record().matches("ready").count(), 1, "{}", wrapper.record());
}

/// A wrapper that is killed after an upgrade leaves its runner as any other.
#[tokio::test]
async fn runner_is_adopted_after_upgrade_and_kill() {
    let mut wrapper = ready(Start::new(), &[]).await;
    let runner = wrapper.child_pid();
    upgrade(&wrapper).await;
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let wrapper = Start::again(wrapper.into_folder()).child(&[]);
    wrapper.logged("adopting the runner of the previous wrapper").await;
    assert_eq!(status(&wrapper).await.pid, Some(runner));
    kill_group(runner).await;
}

/// As after a cleanup of `/run`.
#[tokio::test]
async fn runner_is_kept_by_upgrade_without_state_file() {
    let wrapper = ready(Start::new(), &[]).await;
    let runner = wrapper.child_pid();
    fs::remove_file(wrapper.path("w.sock.state")).unwrap();
    upgrade(&wrapper).await;
    assert_eq!(status(&wrapper).await.pid, Some(runner), "a second runner was started");
    assert!(is_alive(runner));
}

/// The path of the socket was removed: no client could reach the open socket.
#[tokio::test]
async fn removed_socket_is_created_by_upgrade() {
    let wrapper = ready(Start::new(), &[]).await;
    fs::remove_file(wrapper.path("w.sock")).unwrap();
    upgrade(&wrapper).await;
    wrapper.client().await.becomes(Status::Running).await;
}
