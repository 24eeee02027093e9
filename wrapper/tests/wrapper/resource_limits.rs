//! Hostile local clients cannot block other clients or the wrapper.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::{CheckStatusRequest, Status, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::{WatchRequest, wrapper_client::WrapperClient},
};
use tempfile::TempDir;

use crate::{
    support::{
        Start, UNRELATED_USER, Wrapper, as_user, eventually, is_root, kill_group, many_clients, unix_channel,
        unix_client,
    },
    web::{ask, ready_with},
};

/// The connection limit of one address.
const PLACES: usize = 64;

/// The limit of connections with watches for one user.
const WATCHES: usize = 12;

/// Many connections of another user. Dropping this value closes them.
struct ManyClients {
    process: Child,
    _output: BufReader<ChildStdout>,
    _program: TempDir,
    served: usize,
}

impl ManyClients {
    fn new(user: &str, socket: &Path, count: usize) -> Self {
        let (mut command, program) = as_user(user, &many_clients());
        command.arg(socket).arg(count.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let served = line.trim().parse().unwrap();
        Self { process, _output: output, _program: program, served }
    }
}

impl Drop for ManyClients {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _reaped = self.process.wait();
    }
}

async fn status(socket: &Path) -> Result<Status, String> {
    let channel = unix_channel(socket).await.map_err(|error| error.to_string())?;
    let answer = ProcessWrapperClient::new(channel).check_status(CheckStatusRequest {}).await;
    answer.map(|answer| answer.into_inner().status()).map_err(|status| status.to_string())
}

fn status_as(user: &str, wrapper: &Wrapper) -> bool {
    let (mut command, _program) = as_user(user, Path::new(env!("CARGO_BIN_EXE_grit-wrapper")));
    let address = format!("unix://{}", wrapper.path("w.sock").display());
    command.args(["status", "--address", &address]).output().unwrap().status.success()
}

/// They respond to all HTTP/2 control frames, and their calls never end.
#[tokio::test]
async fn one_user_cannot_block_other_users() {
    if !is_root() {
        return grit_testkit::not_covered(
            "that one user cannot lock the others out",
            "only root can be several users",
        );
    }
    let (wrapper, url) = ready_with(&["--socket-mode=0666"], &[]).await;
    wrapper.open_folder();
    let socket = wrapper.path("w.sock");
    let first_user = ManyClients::new(UNRELATED_USER, &socket, 100);
    assert_eq!(first_user.served, WATCHES);
    assert!(status_as(UNRELATED_USER, &wrapper), "no connection is left for a call");
    assert!(status_as("4243", &wrapper), "another user is locked out");
    let others = ["4243", "4244", "4245"].map(|user| ManyClients::new(user, &socket, 100));
    // Together they leave connection slots for another user, and for root.
    assert_eq!(others.each_ref().map(|clients| clients.served), [WATCHES, WATCHES, 8]);
    assert!(status_as("4246", &wrapper));
    let mut allowed = Vec::new();
    for _ in 0..16 {
        let mut client = unix_client(&socket).await.unwrap();
        assert_eq!(client.status().await.0, Status::Running);
        allowed.push(client);
    }
    let (_, page) = ask(&url, "/metrics", &[], None).await;
    let refused =
        page.lines().find_map(|line| line.strip_prefix("grit_wrapper_grpc_connections_rejected_total "));
    assert!(refused.is_some(), "{page}");
    let log = wrapper.read("log");
    assert!(log.matches("connection rejected").count() <= 1, "the log is filled: {log}");

    drop(first_user);
    eventually("the places are free again", async || {
        let again = ManyClients::new(UNRELATED_USER, &socket, WATCHES).served;
        // One of the other users keeps some of the slots.
        if again >= 8 { Ok(()) } else { Err(again) }
    })
    .await;
}

/// A user who reaches the limit of waits can still stop the runner.
#[tokio::test]
async fn watches_leave_slots_for_forceful_drain() {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).child(&[]);
    wrapper.child_ready().await;
    let socket = wrapper.path("w.sock");
    let mut watches = Vec::new();
    let refusal = eventually("no further watch is served", async || {
        let mut client = WrapperClient::new(unix_channel(&socket).await.unwrap());
        match client.watch(WatchRequest {}).await {
            Ok(watch) => {
                watches.push((client, watch));
                Err(watches.len())
            }
            Err(status) => Ok(status),
        }
    })
    .await;
    assert_eq!(watches.len(), PLACES - 4);
    assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
    assert!(refusal.message().contains("limit of 60 connections"), "{refusal}");

    let address = format!("unix://{}", socket.display());
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_grit-wrapper"));
        command.args(arguments).args(["--address", &address]).output().unwrap()
    };
    let waits = run(&["wait", "--for", "stopped", "--timeout", "20s"]);
    assert_eq!(waits.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&waits.stderr).contains("60 connections"), "{waits:?}");
    let not_drained = run(&["drain", "--wait"]);
    assert_eq!(not_drained.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&not_drained.stderr).contains("60 connections"), "{not_drained:?}");
    assert_eq!(wrapper.client().await.status().await.0, Status::Running, "drained without a wait");
    let drained = run(&["drain", "--force"]);
    assert!(drained.status.success(), "{drained:?}");
    wrapper.client().await.becomes(Status::Stopped).await;
}

/// The clients respond to pings, and send no requests.
#[tokio::test]
async fn idle_connections_are_evicted_for_new_clients() {
    let wrapper = Start::new().child(&[]);
    let socket = wrapper.path("w.sock");
    wrapper.client().await.becomes(Status::Running).await;
    let mut watch = wrapper.v1_client().await.watch(WatchRequest {}).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    let mut hogs = Vec::new();
    eventually("all places are taken", async || match unix_channel(&socket).await {
        Ok(channel) => {
            let answer = ProcessWrapperClient::new(channel.clone()).check_status(CheckStatusRequest {}).await;
            hogs.push(channel);
            if answer.is_ok() { Err(hogs.len()) } else { Ok(()) }
        }
        Err(_) => Ok(()),
    })
    .await;
    assert!(hogs.len() >= PLACES - 5, "{} got in", hogs.len());
    let begin = Instant::now();
    assert!(status(&socket).await.is_err(), "there is no limit");
    assert!(begin.elapsed() < Duration::from_secs(5), "it was not reported at once");
    // Before the idle timeout of a connection.
    let answer = eventually("a place", async || status(&socket).await).await;
    assert_eq!(answer, Status::Running);
    assert!(begin.elapsed() < Duration::from_secs(60), "it came for another reason");
    // The earlier call is still open.
    eventually("a drain", async || wrapper.client().await.graceful_with(None).await).await;
    watch.message().await.unwrap().unwrap();
}

/// As in a container with a low limit: connections take no descriptor that the wrapper needs for its runner and its state.
#[tokio::test]
async fn connections_leave_file_descriptors_for_runner() {
    let tcp = "--grpc-listen=tcp://127.0.0.1:0";
    let flags = ["--start-grace=0s", "--restart=always", "--restart-delay=50ms", tcp];
    let http = "--http-listen=tcp://127.0.0.1:0";
    let wrapper =
        Start::new().through(&["prlimit", "--nofile=48:48"]).flags(&flags).flags(&[http]).child(&[]);
    wrapper.child_ready().await;
    let bound = |text: &str| {
        let log = wrapper.read("log");
        let line = log.lines().find(|line| line.contains(text)).unwrap().to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["bound"].as_str().unwrap().to_owned()
    };
    let addresses = [bound("\"gRPC server listening\",\"address\":\"tcp"), bound("HTTP server listening")];
    let socket = wrapper.path("w.sock");
    let mut connections = Vec::new();
    for _ in 0..30 {
        for address in &addresses {
            connections.push(std::os::fd::OwnedFd::from(std::net::TcpStream::connect(address).unwrap()));
        }
        connections.push(std::os::unix::net::UnixStream::connect(&socket).unwrap().into());
    }
    wrapper.logged("file descriptors nearly exhausted").await;
    let open = || std::fs::read_dir(format!("/proc/{}/fd", wrapper.pid())).unwrap().count();
    assert!((28..40).contains(&open()), "{} descriptors are open", open());

    let first = wrapper.child_pid();
    kill_group(first).await;
    wrapper.recorded("ready ready").await;
    assert!(!wrapper.read("log").contains("Too many open files"), "{}", wrapper.read("log"));
    drop(connections);
    // The wrapper may still be starting the runner, which has recorded that it is ready.
    eventually("a running runner", async || match status(&socket).await {
        Ok(Status::Running) => Ok(()),
        other => Err(other),
    })
    .await;
}

/// The parts of HTTP/2 that a hostile client needs.
pub(crate) mod frames {
    pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    pub(crate) const END_HEADERS: u8 = 4;

    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// The head of a call, with literal names and values.
    pub(crate) fn head(path: &str) -> Vec<u8> {
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        .map(|(name, value)| field(name, value))
        .concat()
    }

    pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
        [&[0][..], &text(name), &text(value)].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 127, "needs a longer form");
        [&[length], text.as_bytes()].concat()
    }
}

fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// For all input, the wrapper serves other clients without delay, and its memory does not grow.
#[tokio::test]
async fn garbage_traffic_leaves_the_wrapper_responsive() {
    use frames::{CONTINUATION, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, head};
    let wrapper = Start::new().child(&[]);
    wrapper.client().await.becomes(Status::Running).await;
    let socket = wrapper.path("w.sock");
    let watch = head("/grit.wrapper.v1.Wrapper/Watch");
    let big = [watch.clone(), frames::field("x", &"x".repeat(126)).repeat(100)].concat();
    let resets = |stream: u32| {
        let stream = 2 * stream + 1;
        [frame(HEADERS, END_HEADERS, stream, &watch), frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    // The first bytes, and the bytes that follow without end.
    type Endless<'a> = Box<dyn Fn(u32) -> Vec<u8> + 'a>;
    let cases: [(&str, Vec<u8>, Endless<'_>); 8] = [
        ("HTTP/1.1", b"GET /metrics HTTP/1.1\r\n".to_vec(), Box::new(|at| format!("X-{at}: y\r\n").into())),
        ("no HTTP", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Box::new(|at| vec![at as u8; 1000])),
        (
            "headers",
            [PREFACE, &frame(HEADERS, 0, 1, &big)].concat(),
            Box::new(|_| frame(CONTINUATION, 0, 1, &big[500..])),
        ),
        (
            "empty headers",
            [PREFACE, &frame(HEADERS, 0, 1, &watch)].concat(),
            Box::new(|_| frame(CONTINUATION, 0, 1, &[])),
        ),
        ("pings", PREFACE.to_vec(), Box::new(|_| frame(PING, 0, 0, b"12345678"))),
        ("settings", PREFACE.to_vec(), Box::new(|_| frame(SETTINGS, 0, 0, &[]))),
        ("resets", PREFACE.to_vec(), Box::new(resets)),
        ("calls", PREFACE.to_vec(), Box::new(|at| frame(HEADERS, END_HEADERS, 2 * at + 1, &watch))),
    ];
    let before = resident(wrapper.pid());
    let mut open = Vec::new();
    for (what, first, then) in cases {
        let mut peer = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        // The client never reads, so a wrapper that responds to everything must stop reading.
        peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        peer.write_all(&first).unwrap();
        let ended = (0..50_000).find_map(|at| peer.write_all(&then(at)).err());
        assert!(ended.is_some(), "{what}: all of it was taken");
        assert_eq!(status(&socket).await, Ok(Status::Running), "{what}");
        open.push(peer);
    }
    let grown = resident(wrapper.pid()).saturating_sub(before);
    assert!(grown < 8_000, "the wrapper has grown by {grown} kB");
    let log = wrapper.read("log");
    assert!(log.lines().count() < 20, "the log is filled: {log}");
}

/// Messages that are announced and never completed, over more connections than one user can have.
#[tokio::test]
async fn unfinished_messages_use_little_memory() {
    use frames::{DATA, END_HEADERS, HEADERS, PREFACE, WINDOW_UPDATE, frame, head};
    let wrapper = Start::new().child(&[]);
    wrapper.client().await.becomes(Status::Running).await;
    let socket = wrapper.path("w.sock");
    let before = resident(wrapper.pid());
    let call = head("/grit.wrapper.v1.Wrapper/Drain");
    let message = [&[0][..], &65_000_u32.to_be_bytes(), &[b'x'; 60_000]].concat();
    let mut open = Vec::new();
    for _ in 0..50 {
        let mut peer = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        peer.write_all(PREFACE).unwrap();
        // Data beyond the flow-control window ends the connection.
        let (mut heard, mut byte) = (Vec::new(), [0]);
        while !heard.ends_with(&frame(WINDOW_UPDATE, 0, 0, &[])[3..]) {
            peer.read_exact(&mut byte).unwrap();
            heard.extend(byte);
        }
        for stream in 0..16 {
            let stream = 2 * stream + 1;
            peer.write_all(&frame(HEADERS, END_HEADERS, stream, &call)).unwrap();
            for part in message.chunks(16_000) {
                peer.write_all(&frame(DATA, 0, stream, part)).unwrap();
            }
        }
        open.push(peer);
    }
    assert_eq!(status(&socket).await, Ok(Status::Running));
    let grown = resident(wrapper.pid()).saturating_sub(before);
    assert!(grown < 50_000, "the wrapper has grown by {grown} kB");
}
