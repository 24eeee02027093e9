//! A drain of three days: the provider's clock is paused and moved on, while sshd, the wrapper and the runner are real.

use crate::{fixture::Fixture, grit_wrapper::GritWrapper};
use grit_provider::testing::{
    client::{DrainRequest, RunnerStatus, Wrapper as _, WrapperClient},
    fleet::{
        Retry,
        drain::{self, DrainPolicy, Drained, Mode, OnLostJobs, OnTimeout, OnUnreachable, Until},
    },
};
use grit_testkit::rounds;
use grit_tests::{
    poll,
    provider_client::{Connector, SshOptions, Target},
};
use std::time::Duration;
use tokio::time::{Instant, advance};
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);

/// It handles SIGQUIT, and then has a job of unknown length.
const RUNNER: &str = "trap : QUIT; while :; do sleep 600 & wait $!; done";

#[tokio::test(start_paused = true)]
async fn drain_of_72_hours_keeps_its_connection() {
    // A paused clock advances by itself when all tasks wait, also for I/O, but not while a blocking task runs.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let _blocking = tokio::task::spawn_blocking(move || ended.recv());

    let fixture = Fixture::new();
    let socket = fixture.dir.path().join("grit.sock");
    let wrapper = GritWrapper::with(format!("unix://{}", socket.display()), &["sh", "-c", RUNNER]);
    poll::until("the wrapper listens", Duration::from_secs(60), || {
        std::os::unix::net::UnixStream::connect(&socket).map(drop)
    });
    // Nightly with the default interval of keepalives.
    let keepalive = rounds(HOUR / 6, Duration::from_secs(10));
    let options = SshOptions { keepalive_interval: Some(keepalive), ..fixture.options() };
    let target = Target { wrapper_address: wrapper.address.parse().unwrap(), ..fixture.target() };
    // They share a session.
    let connector = Connector::new(options);
    let (client, observer) = (connector.client(target.clone()), connector.client(target));

    let (policy, stop) = (policy(), CancellationToken::new());
    let drain = drain::run("mgr-1", &client, &policy, &stop);
    let time_passes = async {
        while status(&observer).await != RunnerStatus::InShutdown {
            tokio::task::yield_now().await;
        }
        let sessions = fixture.sshd.processes();
        assert!(sessions.len() > 1, "there is no session");
        let start = Instant::now();
        while start.elapsed() < 72 * HOUR {
            advance(keepalive).await;
            // sshd responds in order: when this response is here, so is that of the keepalive.
            assert_eq!(status(&observer).await, RunnerStatus::InShutdown, "after {:?}", start.elapsed());
        }
        assert_eq!(fixture.sshd.processes(), sessions, "the session was replaced");
        wrapper.kill_runner();
        // A change is read after a short delay.
        loop {
            advance(Duration::from_millis(10)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let outcome = tokio::select! {
        outcome = drain => outcome,
        () = time_passes => unreachable!("it has no end"),
    };
    assert!(matches!(outcome, Ok(Drained::Ended(_))), "{outcome:?}");
    assert!(policy.start.elapsed() >= 72 * HOUR);
    drop(end);
}

async fn status(client: &WrapperClient) -> RunnerStatus {
    client.read_status().await.unwrap().report.status
}

fn policy() -> DrainPolicy {
    DrainPolicy {
        until: Until::Exit,
        mode: Mode::Graceful,
        start: Instant::now(),
        timeout: 100 * HOUR,
        on_timeout: OnTimeout::Fail,
        on_unreachable: OnUnreachable::Fail,
        on_lost_jobs: OnLostJobs::Warn,
        request: DrainRequest { id: "three-days".to_owned(), ..DrainRequest::default() },
        retry: Retry { attempts: None },
    }
}
