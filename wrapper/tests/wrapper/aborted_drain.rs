//! Drains that lose jobs although the runner exits with code 0: another process sends SIGTERM to the runner, which then aborts its jobs.

use grit_proto::wrapper_v1::{
    self as v1, DrainOutcome, DrainRequest, GetStatusRequest, State, wrapper_client::WrapperClient,
};
use rustix::process::{Signal, kill_process};
use tonic::transport::Channel;

use crate::support::{Start, Wrapper, eventually, pid};

/// Has jobs for as long as the file `jobs` exists. Its messages are GitLab Runner's.
const RUNNER: &str = r#"
    trap 'test -e "$0" || exit 0' QUIT
    trap 'echo "WARNING: Starting forceful shutdown   StopSignal=terminated" >&2
        i=0; while [ $i -lt 100 ]; do i=$((i + 1)); echo "WARNING: job $i is aborted" >&2; done; exit 0' TERM
    echo "the runner is ready" >&2
    while :; do sleep 0.02; done"#;

/// A wrapper whose runner has jobs and handles signals.
async fn with_jobs(start: Start) -> (Wrapper, WrapperClient<Channel>) {
    let jobs = start.folder_path().join("jobs");
    std::fs::write(&jobs, "").unwrap();
    let wrapper = supervise(start);
    wrapper.logged("the runner is ready").await;
    let client = wrapper.v1_client().await;
    (wrapper, client)
}

fn supervise(start: Start) -> Wrapper {
    let jobs = start.folder_path().join("jobs");
    start.flags(&["--start-grace=0s"]).command(&["sh", "-c", RUNNER, jobs.to_str().unwrap()])
}

async fn drain(client: &mut WrapperClient<Channel>) {
    let request = DrainRequest { id: "deploy-7".to_owned(), ..DrainRequest::default() };
    client.drain(request).await.unwrap();
    eventually("SIGQUIT is sent", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.drain.as_ref().is_some_and(|drain| drain.signalled) { Ok(()) } else { Err(status) }
    })
    .await;
}

/// The state in which the runner has exited. No earlier status may have another outcome.
async fn ended(client: &mut WrapperClient<Channel>) -> v1::Status {
    eventually("the runner exits", async || {
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        if status.state() == State::Stopped { Ok(status) } else { Err(status) }
    })
    .await
}

fn outcome(status: &v1::Status) -> DrainOutcome {
    status.drain.as_ref().unwrap().outcome()
}

/// `docs/wrapper/draining.md`, "Outcome of a drain".
#[tokio::test]
async fn abort_is_not_seen_without_metrics() {
    let (wrapper, mut client) = with_jobs(Start::new()).await;
    drain(&mut client).await;
    kill_process(pid(wrapper.child_pid()), Signal::TERM).unwrap();
    assert_eq!(outcome(&ended(&mut client).await), DrainOutcome::Clean);
}
