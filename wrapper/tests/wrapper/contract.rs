//! Upstream's contract: a client generated from upstream's service definition receives the correct statuses over the whole lifecycle.

use std::{path::Path, sync::Arc};

use grit_proto::runner_wrapper::Status;
use grit_wrapper::{
    daemon::{
        callback::AllowedUrls,
        control::Control,
        serve::{
            grpc::{self, Api},
            listen::{self, Listener, Rules},
        },
    },
    runner::{self, Health, Prober, Source},
    supervise::{
        Mode, Policy, Stop, Task,
        owner::Child,
        process::{CommandLine, Spawner},
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{Client, Start, eventually, misbehaving_child, tcp_client, unix_channel, unix_client};

/// The parts of a wrapper; the test controls the steps between them.
struct Parts {
    supervisor: grit_wrapper::supervise::Handle,
    tcp: String,
    stop: CancellationToken,
}

async fn serve(folder: &Path, habits: &[&str]) -> Parts {
    let mut words = vec![misbehaving_child().into_os_string()];
    words.extend(["--lives-with".into(), std::process::id().to_string().into()]);
    words.extend(habits.iter().map(Into::into));
    let policy = Policy {
        start_grace: std::time::Duration::ZERO,
        request_gap_timeout: std::time::Duration::ZERO,
        ..Policy::default()
    };
    let command = CommandLine::new(words, Some("/usr/bin:/bin".into())).unwrap();
    let (task, supervisor) = Task::new(policy, Child::new(Spawner::new(command)), ());
    tokio::spawn(task.run());

    let unix = format!("unix://{}", folder.join("w.sock").display()).parse().unwrap();
    let unix = listen::bind(&unix, &Rules::default()).await.unwrap();
    let tcp = listen::bind(&"tcp://localhost:0".parse().unwrap(), &Rules::default()).await.unwrap();
    let Listener::Tcp(listener) = &tcp else { panic!("{tcp:?}") };
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let settings =
        runner::Settings { source: Source::new(&[], |_| None), interval: runner::Settings::INTERVAL };
    let (_, health) = tokio::sync::watch::channel(Health::default());
    let control = Control::new(supervisor.clone(), health, Prober::new(settings), AllowedUrls::default());
    let api = Api::new(control, Arc::default());
    tokio::spawn(grpc::serve(vec![unix, tcp], None, api, stop.clone()));
    Parts { supervisor, tcp: address, stop }
}

async fn whole_life(mut client: Client, other: &mut Client, parts: &Parts) {
    assert_eq!(client.status().await, (Status::Unknown, String::new()));
    parts.supervisor.boot().await.unwrap();
    assert_eq!(client.status().await, (Status::Running, String::new()));
    assert_eq!(client.graceful().await, Status::InShutdown);
    assert_eq!(other.status().await, (Status::InShutdown, String::new()));
    client.becomes(Status::Stopped).await;
    assert_eq!(client.status().await, (Status::Stopped, String::new()));
    // A final status does not change with further requests.
    assert_eq!(client.graceful().await, Status::Stopped);
    assert_eq!(client.forceful().await, Status::Stopped);
    assert_eq!(other.status().await, (Status::Stopped, String::new()));
    parts.stop.cancel();
}

#[tokio::test]
async fn upstream_api_reports_full_lifecycle_over_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let parts = serve(folder.path(), &["--jobs-take", "1000"]).await;
    let client = unix_client(&folder.path().join("w.sock")).await.unwrap();
    whole_life(client, &mut tcp_client(&parts.tcp).await.unwrap(), &parts).await;
}

#[tokio::test]
async fn upstream_api_reports_full_lifecycle_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let parts = serve(folder.path(), &["--jobs-take", "1000"]).await;
    let client = tcp_client(&parts.tcp).await.unwrap();
    whole_life(client, &mut unix_client(&folder.path().join("w.sock")).await.unwrap(), &parts).await;
}

#[tokio::test]
async fn shutdown_before_child_start_is_kept() {
    for forceful in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        let parts = serve(folder.path(), &["--record", record.to_str().unwrap()]).await;
        let mut client = tcp_client(&parts.tcp).await.unwrap();
        let status = if forceful { client.forceful().await } else { client.graceful().await };
        assert_eq!(status, Status::Stopped);
        parts.supervisor.boot().await.unwrap();
        assert_eq!(client.status().await, (Status::Stopped, String::new()));
        assert!(!record.exists(), "the child was started");

        // A `start` call starts it.
        parts.supervisor.start().await.unwrap();
        assert_eq!(client.status().await.0, Status::Running);
        parts.supervisor.stop(Stop::new("test", Mode::Forceful)).await.unwrap();
        client.becomes(Status::Stopped).await;
    }
}

#[tokio::test]
async fn grpc_health_service_has_levels() {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).child(&[]);
    let mut client = wrapper.client().await;
    wrapper.child_ready().await;
    let channel = unix_channel(&wrapper.path("w.sock")).await.unwrap();
    let health = HealthClient::new(channel);
    let check = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.clone().check(request).await.map(|answer| answer.into_inner().status())
    };
    let becomes = async |service: &str, wanted| {
        eventually(service, async || match check(service).await {
            Ok(found) if found == wanted => Ok(()),
            other => Err(other),
        })
        .await;
    };
    becomes("process", ServingStatus::Serving).await;
    for service in ["ready", "polling", "working"] {
        assert_eq!(
            check(service).await.unwrap(),
            ServingStatus::NotServing,
            "it has no HTTP server: {service}"
        );
    }
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    becomes("process", ServingStatus::NotServing).await;
    for service in ["", "gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper"] {
        assert_eq!(check(service).await.unwrap(), ServingStatus::Serving, "the wrapper serves: {service}");
    }
    assert_eq!(check("great").await.unwrap_err().code(), Code::NotFound);
}

/// Time advances while no task is active.
#[tokio::test(start_paused = true)]
async fn call_without_body_times_out() {
    use crate::resource_limits::frames::{END_HEADERS, HEADERS, PREFACE, frame, head};
    let folder = tempfile::tempdir().unwrap();
    let _parts = serve(folder.path(), &[]).await;
    let mut peer = tokio::net::UnixStream::connect(folder.path().join("w.sock")).await.unwrap();
    let call = head("/gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper/InitForcefulShutdown");
    peer.write_all(PREFACE).await.unwrap();
    peer.write_all(&frame(HEADERS, END_HEADERS, 1, &call)).await.unwrap();
    let begin = tokio::time::Instant::now();
    loop {
        let (mut frame, mut content) = ([0; 9], Vec::new());
        peer.read_exact(&mut frame).await.unwrap();
        let [a, b, c, kind, ..] = frame;
        content.resize(u32::from_be_bytes([0, a, b, c]).try_into().unwrap(), 0);
        peer.read_exact(&mut content).await.unwrap();
        if kind == HEADERS {
            break;
        }
    }
    // The longest step of the supervisor, and 10 s.
    assert!(begin.elapsed() >= std::time::Duration::from_secs(42), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn oversized_message_is_rejected() {
    let wrapper = Start::new().child(&[]);
    let mut client = wrapper.client().await;
    let callback = grit_proto::runner_wrapper::ShutdownCallback {
        url: format!("http://localhost/{}", "x".repeat(100_000)),
        ..Default::default()
    };
    let refused = client.graceful_with(Some(callback)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    assert_eq!(client.status().await.0, Status::Running);
}
