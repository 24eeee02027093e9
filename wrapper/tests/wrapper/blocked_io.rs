//! Supervision continues while the reader of the log, the runner's configuration or the disk hangs or is full.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainRequest, GetStatusRequest},
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat},
    pipe::PipeFlags,
    process::{Resource, Rlimit, Signal, prlimit},
};

use crate::support::{Start, eventually, is_alive, pid};

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

#[tokio::test]
async fn blocked_log_config_and_disk_do_not_delay_deadline() {
    let (reader, writer) = full_pipe();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    mknodat(CWD, &config, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut wrapper = Start::again(folder)
        .stderr(writer)
        .env("CONFIG_FILE", config.to_str().unwrap())
        .flags(&["--start-grace=0s", "--log-level=trace", "--process-termination-timeout=2s"])
        .child(&["--ignore-quit", "--ignore-term"]);
    wrapper.recorded("ready").await;
    let mut client = wrapper.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let runner = status.pid.unwrap();
    fill_the_disk(wrapper.pid());

    let begin = Instant::now();
    let deadline = Some(Duration::from_secs(2).try_into().unwrap());
    client
        .drain(DrainRequest { id: "deploy-7".to_owned(), deadline, ..DrainRequest::default() })
        .await
        .unwrap();
    // SIGQUIT, SIGTERM after 2 s, SIGKILL after 2 s more.
    eventually("the runner is killed", async || if is_alive(runner) { Err(runner) } else { Ok(()) }).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
    // One second in the wrapper, and additional time for a busy machine.
    assert!(took < Duration::from_secs(9), "{took:?}");
    let reason = wrapper.client().await.becomes(Status::Stopped).await;
    assert!(reason.contains("killed"), "{reason}");
    assert_eq!(wrapper.record(), "ready QUIT TERM");

    // It also exits, although its last lines are not read.
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(137));
    let log = io::read_to_string(std::fs::File::from(reader)).unwrap();
    assert!(log.trim_start_matches('x').is_empty(), "the pipe was not full: {log}");
}
