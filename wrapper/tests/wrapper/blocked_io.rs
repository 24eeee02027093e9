//! Supervision continues while the reader of the log, the runner's configuration or the disk hangs or is full.

use std::{
    io::{self, BufRead as _},
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainRequest, GetStatusRequest, wrapper_client::WrapperClient},
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat},
    pipe::PipeFlags,
    process::{Resource, Rlimit, Signal, prlimit},
};
use tonic::transport::Channel;

use crate::support::{Start, Wrapper, eventually, is_alive, pid};

/// The write end of a full pipe whose reader does not read. A write to it blocks.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    while rustix::io::write(&writer, b"x").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// After this call, each write of the process to a file fails, as on a full disk.
fn fill_the_disk(process: u32) {
    let nothing = Rlimit { current: Some(0), maximum: None };
    prlimit(Some(pid(process)), Resource::Fsize, nothing).unwrap();
}

/// Starts a wrapper with a runner that only SIGKILL ends.
fn start(start: Start, config: &Path) -> Wrapper {
    start
        .env("CONFIG_FILE", config.to_str().unwrap())
        .flags(&["--start-grace=0s", "--log-level=trace", "--process-termination-timeout=2s"])
        .child(&["--ignore-quit", "--ignore-term"])
}

/// A drain with a deadline, and joining drains with more log lines than the queue of the log has places.
async fn drain(client: &mut WrapperClient<Channel>) {
    let deadline = Some(Duration::from_secs(2).try_into().unwrap());
    let request = DrainRequest { id: "deploy-7".to_owned(), deadline, ..DrainRequest::default() };
    client.drain(request.clone()).await.unwrap();
    for _ in 0..1200 {
        client.drain(DrainRequest { deadline: None, ..request.clone() }).await.unwrap();
    }
}

/// How long both processes are still alive, from now on.
async fn lifetimes(processes: [u32; 2]) -> [Duration; 2] {
    let begin = Instant::now();
    let mut lifetimes = [None; 2];
    eventually("both runners are killed", async || {
        for (process, lifetime) in processes.iter().zip(&mut lifetimes) {
            if lifetime.is_none() && !is_alive(*process) {
                *lifetime = Some(begin.elapsed());
            }
        }
        match lifetimes {
            [Some(first), Some(second)] => Ok([first, second]),
            _ => Err(lifetimes),
        }
    })
    .await
}

/// Compared with a wrapper that does the same at the same time and is not blocked, so that a busy machine does not matter.
#[tokio::test]
async fn blocked_log_config_and_disk_do_not_delay_deadline() {
    let (reader, writer) = full_pipe();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    mknodat(CWD, &config, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut wrapper = start(Start::again(folder).stderr(writer), &config);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "").unwrap();
    let free = start(Start::again(folder), &config);
    wrapper.recorded("ready").await;
    free.recorded("ready").await;
    let (mut client, mut free_client) = (wrapper.v1_client().await, free.v1_client().await);
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let free_status = free_client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    fill_the_disk(wrapper.pid());

    let runners = [status.pid.unwrap(), free_status.pid.unwrap()];
    let ((), (), [took, free_took]) =
        tokio::join!(drain(&mut client), drain(&mut free_client), lifetimes(runners));
    // SIGQUIT, SIGTERM after 2 s, SIGKILL after 2 s more.
    let least = Duration::from_secs(4);
    assert!(took >= least && free_took >= least, "{took:?} {free_took:?}");
    assert!(took <= free_took + Duration::from_secs(1), "{took:?}, and {free_took:?} without a fault");
    let reason = wrapper.client().await.becomes(Status::Stopped).await;
    assert!(reason.contains("killed"), "{reason}");
    assert_eq!(wrapper.record(), "ready QUIT TERM");

    // It also exits, although its last lines are not read.
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(137));
    let log = io::read_to_string(std::fs::File::from(reader)).unwrap();
    assert!(log.trim_start_matches('x').is_empty(), "the pipe was not full: {log}");
}

#[tokio::test]
async fn dropped_log_lines_are_reported_when_they_can_be_written() {
    let (reader, writer) = full_pipe();
    let wrapper = Start::new().stderr(writer).flags(&["--log-level=trace"]).child(&["--ignore-quit"]);
    wrapper.recorded("ready").await;
    drain(&mut wrapper.v1_client().await).await;
    let lines = io::BufReader::new(std::fs::File::from(reader)).lines();
    let read = tokio::task::spawn_blocking(move || {
        let mut lines = lines.map(Result::unwrap);
        lines.any(|line| {
            line.contains("\"level\":\"WARN\"") && line.contains(" log lines were dropped, because")
        })
    });
    assert!(read.await.unwrap());
}
