//! Hostile local clients cannot block other clients or the wrapper.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use grit_proto::{
    runner_wrapper::{CheckStatusRequest, Status, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::{CancelRequest, DrainRequest, Mode, StartRequest},
};
use tempfile::TempDir;

use crate::{
    support::{Start, UNRELATED_USER, as_user, eventually, is_root, many_clients, unix_channel, unix_client},
    web::ready_with,
};

/// The connections of one user.
const PLACES: usize = 16;

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

/// They respond to all HTTP/2 control frames, and their calls never end.
#[tokio::test]
async fn users_cannot_block_root() {
    if !is_root() {
        return grit_testkit::not_covered(
            "that other users cannot lock out root",
            "only root can be several users",
        );
    }
    let (wrapper, _url) = ready_with(&["--socket-mode=0666"], &[]).await;
    wrapper.open_folder();
    let socket = wrapper.path("w.sock");
    let user = ManyClients::new(UNRELATED_USER, &socket, 100);
    assert!((PLACES - 2..=PLACES).contains(&user.served), "{}", user.served);
    // Another user is not locked out.
    let other = ManyClients::new("4343", &socket, 4);
    assert_eq!(other.served, 4);
    let mut roots = Vec::new();
    for _ in 0..16 {
        let mut client = unix_client(&socket).await.unwrap();
        assert_eq!(client.status().await.0, Status::Running);
        roots.push(client);
    }
    wrapper.logged("connection rejected").await;
    let log = wrapper.read("log");
    assert_eq!(log.matches("connection rejected").count(), 1, "the log is filled: {log}");

    drop(user);
    eventually("the places are free again", async || {
        let again = ManyClients::new(UNRELATED_USER, &socket, PLACES).served;
        if again >= PLACES - 2 { Ok(()) } else { Err(again) }
    })
    .await;
}

/// Each of these calls is rejected, or changes nothing.
#[tokio::test]
async fn repeated_calls_do_not_fill_the_log() {
    let (wrapper, _url) = ready_with(&[], &["--ignore-quit"]).await;
    let client = wrapper.v1_client().await;
    let drain = async |id: &str, mode: Mode| {
        let reason = "x".repeat(900);
        let request =
            DrainRequest { id: id.to_owned(), reason, mode: mode.into(), ..DrainRequest::default() };
        client.clone().drain(request).await.is_ok()
    };
    assert!(drain("deploy-7", Mode::Graceful).await);
    for _ in 0..100 {
        assert!(drain("deploy-7", Mode::Graceful).await, "joins");
        assert!(!drain("signal", Mode::Graceful).await, "a reserved id");
        client.clone().start(StartRequest {}).await.unwrap_err();
        client.clone().cancel(CancelRequest { id: "other".to_owned() }).await.unwrap_err();
    }
    // What changes something is always in the audit log.
    assert!(drain("deploy-8", Mode::Forceful).await);
    wrapper.logged("deploy-8").await;
    let log = wrapper.read("log");
    let count = |text: &str| log.matches(text).count();
    let lines = count("request rejected") + count("change accepted");
    assert!((2..=22).contains(&lines), "{lines}");
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
