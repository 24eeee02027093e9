//! Drains that lose jobs although the runner exits with code 0: another process sends SIGTERM to the runner, which then aborts its jobs, or the
//! runner gives up reporting the end of a job to GitLab.

use grit_proto::wrapper_v1::{
    self as v1, DrainOutcome, DrainRequest, GetStatusRequest, StartRequest, State,
    wrapper_client::WrapperClient,
};
use rustix::process::{Signal, kill_process};
use tonic::transport::Channel;

use crate::{
    health_levels::{Runner, VERSION},
    support::{Start, Wrapper, eventually, pid},
};

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

#[tokio::test]
async fn sigterm_of_another_process_is_found_in_the_log() {
    let (wrapper, mut client) = with_jobs(Start::new()).await;
    drain(&mut client).await;
    kill_process(pid(wrapper.child_pid()), Signal::TERM).unwrap();
    let status = ended(&mut client).await;
    assert_eq!(outcome(&status), DrainOutcome::JobsAborted, "{status:?}");
    assert_eq!(status.exit.unwrap().how, Some(v1::exit::How::Code(0)));
    wrapper.logged("another process sent SIGTERM or SIGINT to it").await;

    // The message of an earlier runner does not count.
    std::fs::remove_file(wrapper.path("jobs")).unwrap();
    client.start(StartRequest {}).await.unwrap();
    eventually("the next runner is ready", async || {
        let ready = wrapper.read("log").matches("the runner is ready").count();
        if ready == 2 { Ok(()) } else { Err(ready) }
    })
    .await;
    drain(&mut client).await;
    let status = ended(&mut client).await;
    assert_eq!(outcome(&status), DrainOutcome::Clean, "{status:?}");
}

#[tokio::test]
async fn sigterm_to_adopted_runner_is_found_in_the_log() {
    let (mut first, mut client) = with_jobs(Start::new()).await;
    drain(&mut client).await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    let second = supervise(Start::again(first.into_folder()));
    let mut client = second.v1_client().await;
    kill_process(pid(runner), Signal::TERM).unwrap();
    let status = ended(&mut client).await;
    // Older kernels do not report the exit code of an adopted runner.
    assert!([DrainOutcome::JobsAborted, DrainOutcome::Unknown].contains(&outcome(&status)), "{status:?}");
}

/// The message is in the log before the next wrapper starts, or in a file that log rotation has renamed.
#[tokio::test]
async fn abort_between_two_wrappers_or_in_rotated_log_is_found() {
    let runner = r#"trap : QUIT
        trap 'echo "WARNING: Starting forceful shutdown" >&2; until test -e "$0"; do sleep 0.02; done; exit 0' TERM
        echo "the runner is ready" >&2
        while :; do sleep 0.02; done"#;
    for is_rotated in [false, true] {
        let supervise = |start: Start| {
            let end = start.folder_path().join("end");
            start.flags(&["--start-grace=0s"]).command(&["sh", "-c", runner, end.to_str().unwrap()])
        };
        let mut first = supervise(Start::new());
        first.logged("the runner is ready").await;
        drain(&mut first.v1_client().await).await;
        let runner = first.child_pid();
        first.signal(Signal::KILL);
        first.ended().await;
        if is_rotated {
            std::fs::rename(first.path("log"), first.path("log.1")).unwrap();
        } else {
            kill_process(pid(runner), Signal::TERM).unwrap();
            first.logged("Starting forceful shutdown").await;
        }
        let second = supervise(Start::again(first.into_folder()));
        let mut client = second.v1_client().await;
        if is_rotated {
            // The wrapper has found the log.
            client.get_status(GetStatusRequest {}).await.unwrap();
            kill_process(pid(runner), Signal::TERM).unwrap();
        }
        std::fs::write(second.path("end"), "").unwrap();
        let status = ended(&mut client).await;
        // Older kernels do not report the exit code of an adopted runner.
        assert!([DrainOutcome::JobsAborted, DrainOutcome::Unknown].contains(&outcome(&status)), "{status:?}");
    }
}

/// The runner has closed its HTTP server before the next wrapper starts, and its log does not show the abort.
#[tokio::test]
async fn abort_that_a_killed_wrapper_has_seen_is_not_forgotten() {
    let metrics = Runner::new().await;
    let page = "gitlab_runner_process_state_info{state=\"forceful-shutdown\"} 1\n";
    metrics.says("/metrics", 200, &(VERSION.to_owned() + page));
    let (mut first, mut client) = with_jobs(Start::new().env("LISTEN_ADDRESS", &metrics.address)).await;
    drain(&mut client).await;
    eventually("the abort is saved", async || {
        let state = first.read("w.sock.state");
        if state.contains(r#""aborts_jobs":true"#) { Ok(()) } else { Err(state) }
    })
    .await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    let second = supervise(Start::again(first.into_folder()));
    let mut client = second.v1_client().await;
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let reasons = status.health.unwrap().reasons.join("; ");
    assert!(reasons.contains("the runner aborts its jobs"), "{reasons}");
    std::fs::remove_file(second.path("jobs")).unwrap();
    kill_process(pid(runner), Signal::QUIT).unwrap();
    let status = ended(&mut client).await;
    // Older kernels do not report the exit code of an adopted runner.
    assert!([DrainOutcome::JobsAborted, DrainOutcome::Unknown].contains(&outcome(&status)), "{status:?}");
}

/// The messages are GitLab Runner's, as text and as JSON.
#[tokio::test]
async fn lost_result_of_a_job_is_found_in_the_log() {
    let text = r#"ERROR: Job trace termination "Success" failed    error=received invalid job update response job=7"#;
    let json = r#"{"job":7,"level":"error","msg":"Job trace termination \"Fail\" failed"}"#;
    let success = "Job succeeded    job=7";
    for (message, wanted) in
        [(text, DrainOutcome::ResultsLost), (json, DrainOutcome::ResultsLost), (success, DrainOutcome::Clean)]
    {
        let start = Start::new().flags(&["--start-grace=0s"]);
        let path = start.folder_path().join("message");
        std::fs::write(&path, format!("{message}\n")).unwrap();
        let runner = r#"trap 'cat "$0" >&2; exit 0' QUIT
            echo "the runner is ready" >&2
            while :; do sleep 0.02; done"#;
        let wrapper = start.command(&["sh", "-c", runner, path.to_str().unwrap()]);
        wrapper.logged("the runner is ready").await;
        let mut client = wrapper.v1_client().await;
        drain(&mut client).await;
        let status = ended(&mut client).await;
        assert_eq!(outcome(&status), wanted, "{message}: {status:?}");
    }
}

/// The output of a runner to a pipe cannot be read back. Without its metrics the abort is not seen.
#[tokio::test]
async fn unreadable_log_without_metrics_hides_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start =
        Start::again(folder).through(&["sh", "-c", r#""$@" 2>&1 | cat >>"$0""#, log.to_str().unwrap()]);
    let (wrapper, mut client) = with_jobs(start).await;
    drain(&mut client).await;
    kill_process(pid(wrapper.child_pid()), Signal::TERM).unwrap();
    assert_eq!(outcome(&ended(&mut client).await), DrainOutcome::Clean);
}
