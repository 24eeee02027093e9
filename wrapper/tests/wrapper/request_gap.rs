//! A drain waits for a gap between the runner's job requests, which the runner reports in its metrics.

use std::time::{Duration, Instant};

use grit_proto::wrapper_v1::{
    Drain, DrainOutcome, DrainRequest, GetStatusRequest, State, Status, wrapper_client::WrapperClient,
};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::{
    health_levels::{CONFIG, Runner, VERSION, polls},
    operator::{json, operator},
    support::{Start, Wrapper, eventually},
};

/// Sorted by name, as the runner sorts them.
fn page(before: &str, sections: &[(&str, u64, u64)]) -> String {
    let requests: String = sections.iter().map(|(name, _, ended)| polls(name, 204, *ended)).collect();
    let gauge = |(name, open, _): &(&str, u64, u64)| {
        format!(
            "gitlab_runner_request_concurrency{{runner=\"{name}\",system_id=\"s_0123456789ab\"}} {open}\n"
        )
    };
    let gauges: String = sections.iter().map(gauge).collect();
    format!("{requests}{before}{gauges}{VERSION}")
}

impl Runner {
    fn has_open(&self, open: u64) {
        self.says("/metrics", 200, &page("", &[("aaaaaaaaa", open, 7), ("bbbbbbbbb", 0, 3)]));
    }
}

fn start(folder: TempDir, runner: &Runner, flags: &[&str], habits: &[&str]) -> Wrapper {
    let config = folder.path().join("config.toml");
    std::fs::write(&config, CONFIG).unwrap();
    Start::again(folder)
        .flags(&["--start-grace=0s", "--probe-interval=100ms"])
        .flags(flags)
        .env("CONFIG_FILE", config.to_str().unwrap())
        .runner(runner)
        .child(habits)
}

/// A wrapper whose runner has one open job request.
async fn with_open_request(flags: &[&str], habits: &[&str]) -> (Runner, Wrapper, WrapperClient<Channel>) {
    let runner = Runner::new().await;
    runner.has_open(1);
    let wrapper = start(tempfile::tempdir().unwrap(), &runner, flags, habits);
    let client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    runner.listens().await;
    (runner, wrapper, client)
}

async fn status(client: &WrapperClient<Channel>) -> Status {
    client.clone().get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

async fn drain(client: &WrapperClient<Channel>) {
    let request = DrainRequest { id: "d".to_owned(), ..DrainRequest::default() };
    client.clone().drain(request).await.unwrap();
}

/// Waits until the status shows the open requests of a drain that has sent no signal.
async fn waits(client: &WrapperClient<Channel>, open: u32) -> Status {
    let status = shows(client, open).await;
    assert!(!status.drain.as_ref().unwrap().signalled, "{status:?}");
    status
}

async fn shows(client: &WrapperClient<Channel>, open: u32) -> Status {
    eventually("the drain waits", async || {
        let status = status(client).await;
        let drain = status.drain.clone().unwrap_or_default();
        let reason = status.health.as_ref().and_then(|health| health.reasons.first()).cloned();
        let text = format!("the runner is draining: waiting until no job request is open ({open} open)");
        let waits = drain.open_requests == Some(open) && reason == Some(text);
        if waits { Ok(status) } else { Err(status) }
    })
    .await
}

async fn ended(client: &WrapperClient<Channel>) -> Drain {
    eventually("the runner exits", async || {
        let status = status(client).await;
        let is_over = matches!(status.state(), State::Stopped | State::Failed);
        if is_over { Ok(status.drain.unwrap()) } else { Err(status) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigquit_is_sent_when_no_request_is_open() {
    let (runner, wrapper, client) = with_open_request(&[], &[]).await;
    drain(&client).await;
    let waiting = waits(&client, 1).await;
    assert_eq!(waiting.state(), State::Draining);
    let text = String::from_utf8(operator(&wrapper, &["status"]).stdout).unwrap();
    assert!(text.contains("waiting until no job request is open (1 open)"), "{text}");
    assert_eq!(wrapper.record(), "ready");
    runner.has_open(0);
    let drain = ended(&client).await;
    assert_eq!((drain.outcome(), drain.open_requests), (DrainOutcome::Clean, Some(0)));
    assert_eq!(wrapper.record(), "ready QUIT");
    let log = wrapper.read("log");
    assert!(log.contains("delaying SIGQUIT until no job request is open"), "{log}");
}

/// GitLab holds a request (long polling), and responds to it without a job. The probes have read it for as long as it is open.
#[tokio::test]
async fn request_that_gitlab_holds_does_not_delay_sigquit() {
    let (_runner, wrapper, client) = with_open_request(&[], &[]).await;
    // The first probe reads it later than this.
    let opened = Instant::now();
    drain(&client).await;
    let drain_now = ended(&client).await;
    assert!(opened.elapsed() >= Duration::from_secs(4), "the request may have been new");
    assert_eq!((drain_now.outcome(), drain_now.open_requests), (DrainOutcome::Clean, Some(0)));
    assert_eq!(wrapper.record(), "ready QUIT");

    let (_runner, wrapper, client) = with_open_request(&[], &[]).await;
    tokio::time::sleep_until((Instant::now() + Duration::from_secs(6)).into()).await;
    let begin = Instant::now();
    drain(&client).await;
    wrapper.recorded("ready QUIT").await;
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

/// A job ends just after the last read before SIGQUIT, and the runner requests the next one: GitLab assigns a job that nobody runs.
#[tokio::test]
async fn request_that_sigquit_cancels_is_in_the_outcome() {
    let runner = Runner::new().await;
    let state = |state: &str| format!("gitlab_runner_process_state_info{{state=\"{state}\"}} 1\n");
    let jobs = "gitlab_runner_jobs{state=\"running\"} 3\n".to_owned();
    let section: [(&str, u64, u64); 1] = [("aaaaaaaaa", 0, 7)];
    runner.says("/metrics", 200, &page(&(jobs.clone() + &state("running")), &section));
    let habits = ["--ignore-quit", "--exit-after", "8000"];
    let wrapper = start(tempfile::tempdir().unwrap(), &runner, &[], &habits);
    let client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    runner.listens().await;
    drain(&client).await;
    wrapper.recorded("ready QUIT").await;
    let signalled = status(&client).await.drain.unwrap();
    assert_eq!((signalled.signalled, signalled.open_requests), (true, None), "not confirmed");
    let cancelled = polls("aaaaaaaaa", 204, 1).replace("204", "-1");
    runner.says("/metrics", 200, &page(&(cancelled + &jobs + &state("graceful-shutdown")), &section));
    let drain = ended(&client).await;
    assert_eq!((drain.outcome(), drain.open_requests), (DrainOutcome::OpenRequests, Some(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_open_at_the_timeout_are_reported() {
    let (runner, wrapper, client) = with_open_request(&["--request-gap-timeout=3s"], &[]).await;
    runner.has_open(2);
    let drained = operator(&wrapper, &["drain", "--wait", "--json"]);
    assert_eq!(drained.status.code(), Some(4), "{drained:?}");
    let last = String::from_utf8(drained.stdout).unwrap().lines().last().unwrap().to_owned();
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["drain"]["open_requests"], &last["drain"]["outcome"]),
        (&2.into(), &"open_requests".into())
    );
    assert_eq!(ended(&client).await.outcome(), DrainOutcome::OpenRequests);
    let log = wrapper.read("log");
    assert!(log.contains("the runner cancels its open job requests"), "{log}");
}

/// An older runner, a runner without an HTTP server, and the flag: what SIGQUIT at once cancels is unknown if the runner could report it.
#[tokio::test]
async fn runner_without_the_gauge_is_not_waited_for() {
    let runner = Runner::new().await;
    runner.says("/metrics", 200, &(polls("aaaaaaaaa", 204, 7) + VERSION));
    let old = start(tempfile::tempdir().unwrap(), &runner, &[], &[]);
    runner.listens().await;
    let without = Start::new().flags(&["--start-grace=0s"]).child(&[]);
    let (_busy, at_once, client) = with_open_request(&["--request-gap-timeout=0s"], &[]).await;
    eventually("a probe has read the gauge", async || {
        let health = status(&client).await.health.unwrap_or_default();
        if health.runner_version.is_some() { Ok(()) } else { Err(health) }
    })
    .await;
    for (wrapper, outcome) in
        [(old, DrainOutcome::Clean), (without, DrainOutcome::Clean), (at_once, DrainOutcome::Unknown)]
    {
        let client = wrapper.v1_client().await;
        wrapper.child_ready().await;
        drain(&client).await;
        let drain = ended(&client).await;
        assert_eq!((drain.outcome(), drain.open_requests), (outcome, None));
    }
}

/// The metrics come in many parts. `control::large_runner_is_probed_and_drained` has 20 MB of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_is_found_in_large_metrics() {
    let (runner, wrapper, client) = with_open_request(&[], &[]).await;
    let bucket = |at: u32| {
        format!(
            "gitlab_runner_job_queue_duration_seconds_bucket{{project_jobs_running=\"{at}\",runner=\"short-token\",system_id=\"s_0123456789ab\",le=\"1\"}} {at}\n"
        )
    };
    let buckets: String = (0..8_000).map(bucket).collect();
    let large = |open| {
        let after = buckets.replace("job_queue", "zzz");
        page(&buckets, &[("aaaaaaaaa", open, 7)]) + &after
    };
    runner.says("/metrics", 200, &large(1));
    drain(&client).await;
    waits(&client, 1).await;
    runner.says("/metrics", 200, &large(0));
    let drain = ended(&client).await;
    assert_eq!((drain.outcome(), drain.open_requests), (DrainOutcome::Clean, Some(0)));
    assert_eq!(wrapper.record(), "ready QUIT");
}

#[tokio::test]
async fn registrations_are_reported_without_a_runner() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let section =
        |url: &str, id: &str| format!("[[runners]]\nurl = \"{url}\"\ntoken = \"glrt-s3cret\"\n{id}\n");
    let sections = [
        section("https://gitlab.example/sub", "id = 7"),
        section("https://user:s3cret@gitlab.example", "id = 8"),
        section("https://gitlab.example", ""),
        section("http://other.example:8080", "id = 7"),
    ];
    std::fs::write(&config, sections.concat()).unwrap();
    std::fs::write(folder.path().join(".runner_system_id"), "s_0123456789ab").unwrap();
    let start =
        Start::again(folder).flags(&["--start-grace=0s"]).env("CONFIG_FILE", config.to_str().unwrap());
    let wrapper = start.child(&[]);
    let client = wrapper.v1_client().await;
    wrapper.child_ready().await;
    drain(&client).await;
    ended(&client).await;
    let found = eventually("registrations", async || {
        let status = status(&client).await;
        if status.registrations.is_empty() { Err(status) } else { Ok(status.registrations) }
    })
    .await;
    let of = |at: usize| {
        let found = &found[at];
        let system_id = found.system_id.as_deref().unwrap();
        (found.url.as_str(), system_id, found.runner_ids.as_slice(), found.sections_without_id)
    };
    assert_eq!(found.len(), 2);
    assert_eq!(of(0), ("https://gitlab.example", "s_0123456789ab", &[7, 8][..], 1));
    assert_eq!(of(1), ("http://other.example:8080", "s_0123456789ab", &[7][..], 0));
    let shown = json(&operator(&wrapper, &["status", "--json"]));
    assert_eq!(shown["registrations"][0]["runner_ids"], serde_json::json!([7, 8]));
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
}
