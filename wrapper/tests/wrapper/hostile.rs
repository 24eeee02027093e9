//! Local peers that mean harm: what they can take from others, and what they cannot.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::{CheckStatusRequest, Status, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::WatchRequest,
};
use tempfile::TempDir;

use crate::{
    support::{
        STRANGER, Start, Wrapper, as_user, crowd, eventually, is_root, not_covered, unix_channel, unix_client,
    },
    web::{ask, ready_with},
};

/// As many as one address has places.
const PLACES: usize = 64;

/// Many connections of another user; they go with this value.
struct Crowd {
    process: Child,
    _output: BufReader<ChildStdout>,
    _program: TempDir,
    served: usize,
}

impl Crowd {
    fn new(user: &str, socket: &Path, count: usize) -> Self {
        let (mut command, program) = as_user(user, &crowd());
        command.arg(socket).arg(count.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let served = line.trim().parse().unwrap();
        Self { process, _output: output, _program: program, served }
    }
}

impl Drop for Crowd {
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

/// They answer all that HTTP/2 asks, and their calls never end.
#[tokio::test]
async fn one_user_cannot_lock_the_others_out() {
    if !is_root() {
        return not_covered("that one user cannot lock the others out", "only root can be several users");
    }
    let (wrapper, url) = ready_with(&["--socket-mode=0666"], &[]).await;
    wrapper.open_folder();
    let socket = wrapper.path("w.sock");
    let eve = Crowd::new(STRANGER, &socket, 100);
    assert_eq!(eve.served, 16);
    assert!(!status_as(STRANGER, &wrapper), "more than a share");
    assert!(status_as("4243", &wrapper), "another user is locked out");
    let others = [Crowd::new("4243", &socket, 100), Crowd::new("4244", &socket, 100)];
    assert_eq!(others.each_ref().map(|crowd| crowd.served), [16, 16]);
    // Three of them together can keep a fourth out, and never root.
    assert!(!status_as("4245", &wrapper));
    let mut ours = Vec::new();
    for _ in 0..16 {
        let mut client = unix_client(&socket).await.unwrap();
        assert_eq!(client.status().await.0, Status::Running);
        ours.push(client);
    }
    let (_, page) = ask(&url, "/metrics", &[], None).await;
    let refused =
        page.lines().find_map(|line| line.strip_prefix("grit_wrapper_rpc_connections_refused_total "));
    assert!(refused.unwrap().parse::<usize>().unwrap() >= 3 * 84, "{refused:?}");
    let log = wrapper.read("log");
    assert_eq!(log.matches("all places that its user can have").count(), 1, "the log is filled: {log}");

    drop(eve);
    let freed = "the places are free again";
    eventually(freed, async || if status_as(STRANGER, &wrapper) { Ok(()) } else { Err(()) }).await;
}

/// The peers are well behaved, answer pings, and ask nothing.
#[tokio::test]
async fn who_asks_nothing_makes_room_for_who_does() {
    let wrapper = Start::new().child(&[]);
    let socket = wrapper.path("w.sock");
    wrapper.client().await.becomes(Status::Running).await;
    let mut watch = wrapper.own().await.watch(WatchRequest {}).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    let mut hogs = Vec::new();
    eventually("all places are taken", async || match unix_channel(&socket).await {
        Ok(channel) => {
            let asked = ProcessWrapperClient::new(channel.clone()).check_status(CheckStatusRequest {}).await;
            hogs.push(channel);
            if asked.is_ok() { Err(hogs.len()) } else { Ok(()) }
        }
        Err(_) => Ok(()),
    })
    .await;
    assert!(hogs.len() >= PLACES - 5, "{} got in", hogs.len());
    let begin = Instant::now();
    assert!(status(&socket).await.is_err(), "there is no limit");
    assert!(begin.elapsed() < Duration::from_secs(5), "it was not told at once");
    // Within the time in which one that is silent for long would not be closed yet.
    let answer = eventually("a place", async || status(&socket).await).await;
    assert_eq!(answer, Status::Running);
    assert!(begin.elapsed() < Duration::from_secs(60), "it came for another reason");
    // The call that was there before is there still.
    eventually("a drain", async || wrapper.client().await.graceful_with(None).await).await;
    watch.message().await.unwrap().unwrap();
}
