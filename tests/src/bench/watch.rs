//! Time between a change on the host and the return of the provider's call: the runner exits, and the provider receives the state.
//!
//! With grit-wrapper the change arrives in a watch stream over an open tunnel. With upstream's API the wrapper is polled with growing delays, so
//! the polled row uses drains that have reached the longest delay. The polled runners exit at different
//! times within that delay.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::provider_client::Connector;
use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use grit_proto::runner_wrapper::{
    CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
    InitGracefulShutdownRequest, InitGracefulShutdownResponse, Status as State,
    process_wrapper_server::{ProcessWrapper, ProcessWrapperServer},
};
use grit_provider::testing::{
    client::{DrainRequest, RunnerStatus, Snapshot, Wrapper as _, WrapperClient},
    fleet::{
        Retry, WithoutPeers,
        drain::{self, DrainPolicy, Drained, Mode, OnLostJobs, OnTimeout, OnUnreachable, Until},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{Request, Response, Status};

use super::{Row, Settings, median, milliseconds, quantile, site::Site};

const BENCH: &str = "watch";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(&[])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rows = runtime.block_on(told(*settings, &site))?;
    rows.extend(runtime.block_on(polled(*settings, &site))?);
    Ok(rows)
}

/// The runner of grit-wrapper is killed and restarted.
async fn told(settings: Settings, site: &Site) -> anyhow::Result<Vec<Row>> {
    let client = Connector::new(site.options()).client(site.target(0, &site.wrapper.unix_address())?);
    let (mut delays, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..settings.samples(300) {
        let status = until(&client, |status| runner(status).is_some()).await?;
        let runner = runner(&status).context("no runner")?;
        let start = Instant::now();
        client.check_status().await?;
        calls.push(milliseconds(start.elapsed()));

        // Until the stream is open and has sent the current state.
        settled(&client).await;
        let waiting = until(&client, |status| status.report.status == RunnerStatus::Stopped);
        let killing = async {
            let start = Instant::now();
            kill_process(runner, Signal::KILL).map(|()| start)
        };
        let (stopped, start) = tokio::join!(waiting, killing);
        stopped?;
        delays.push(milliseconds(start.context("kill the runner")?.elapsed()));
        client.start().await?;
    }
    let call = median(&calls);
    let row = |what: &str, value| {
        Row::new(BENCH, format!("told by our wrapper, {what}"), value, "ms")
            .against(format!("one call, {call:.1} ms"), call)
    };
    Ok(vec![row("p50", median(&delays)), row("p99", quantile(&delays, 0.99)).budget(20.0)])
}

fn runner(status: &Snapshot) -> Option<Pid> {
    let running = status.report.status == RunnerStatus::Running;
    status.detail.as_deref().filter(|_| running)?.pid.and_then(|pid| Pid::from_raw(pid.cast_signed()))
}

/// Reads the status at each change until the condition holds.
async fn until(client: &WrapperClient, so: impl Fn(&Snapshot) -> bool) -> anyhow::Result<Snapshot> {
    let work = async {
        loop {
            let status = client.read_status().await?;
            if so(&status) {
                return Ok(status);
            }
            client.changed().await;
        }
    };
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done,
        Err(_) => bail!("a change was not told within {LIMIT:?}"),
    }
}

/// Waits until no change arrives for a short time.
async fn settled(client: &WrapperClient) {
    while tokio::time::timeout(Duration::from_millis(20), client.changed()).await.is_ok() {}
}

/// Many drains wait at the same time for runners behind wrappers with upstream's API.
async fn polled(settings: Settings, site: &Site) -> anyhow::Result<Vec<Row>> {
    let (drains, first_end) =
        if settings.quick { (2, Duration::from_millis(500)) } else { (60, Duration::from_secs(11)) };
    let connector = Connector::new(site.options());
    let start = Instant::now();
    let waits = (0..drains).map(|number| {
        let ends = start + first_end + Duration::from_secs(1) * number / drains;
        let connector = &connector;
        async move {
            let path = site.dir.path().join(format!("upstream-{number}.sock"));
            let wrapper = Upstream::start(&path)?;
            // The same number for all, so that they share a session.
            let client = connector.client(site.target(0, &format!("unix://{}", path.display()))?);
            let ending = async {
                tokio::time::sleep_until(ends.into()).await;
                let now = Instant::now();
                wrapper.status.store(State::Stopped as i32, Ordering::SeqCst);
                now
            };
            let (policy, stop) = (policy(), CancellationToken::new());
            let (drained, ended) = tokio::join!(
                async { (drain::run("mgr", &client, &policy, &WithoutPeers, &stop).await, Instant::now()) },
                ending
            );
            match drained {
                (Ok(Drained::Ended(_)), at) => {
                    ensure!(at >= ended, "the drain ended before the runner");
                    Ok(milliseconds(at - ended))
                }
                (other, _) => bail!("not a drain that ended: {other:?}"),
            }
        }
    });
    let delays = try_join_all(waits).await?;
    let waited = first_end.as_secs_f64();
    let row =
        |what: &str, value| Row::new(BENCH, format!("polled, {waited} s into a drain, {what}"), value, "ms");
    Ok(vec![row("p50", median(&delays)).budget(250.0), row("p99", quantile(&delays, 0.99))])
}

fn policy() -> DrainPolicy {
    DrainPolicy {
        until: Until::Exit,
        mode: Mode::Graceful,
        start: tokio::time::Instant::now(),
        timeout: LIMIT,
        on_timeout: OnTimeout::Fail,
        on_unreachable: OnUnreachable::Fail,
        on_lost_jobs: OnLostJobs::Warn,
        request: DrainRequest::default(),
        retry: Retry {
            attempts: None,
            min_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(1),
        },
    }
}

/// A wrapper with only upstream's API, in this process.
struct Upstream {
    status: Arc<AtomicI32>,
    _server: AbortOnDropHandle<()>,
}

impl Upstream {
    fn start(path: &Path) -> anyhow::Result<Upstream> {
        let status = Arc::new(AtomicI32::new(State::Running as i32));
        let incoming = UnixListenerStream::new(UnixListener::bind(path).context("bind a socket")?);
        let service = ProcessWrapperServer::new(Service(Arc::clone(&status)));
        let serving = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
        let server = tokio::spawn(async move {
            // If it ends early, the drains fail with an error.
            let _ = serving.await;
        });
        Ok(Upstream { status, _server: AbortOnDropHandle::new(server) })
    }
}

#[derive(Clone)]
struct Service(Arc<AtomicI32>);

#[tonic::async_trait]
impl ProcessWrapper for Service {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        let status = self.0.load(Ordering::SeqCst);
        Ok(Response::new(CheckStatusResponse { status, failure_reason: String::new() }))
    }

    async fn init_graceful_shutdown(
        &self,
        _: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        // Unless it has exited.
        let (running, draining) = (State::Running as i32, State::InShutdown as i32);
        let was = self.0.compare_exchange(running, draining, Ordering::SeqCst, Ordering::SeqCst);
        let status = was.map_or_else(|status| status, |_| draining);
        Ok(Response::new(InitGracefulShutdownResponse { status, failure_reason: String::new() }))
    }

    async fn init_forceful_shutdown(
        &self,
        _: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        Err(Status::unimplemented("not used by this benchmark"))
    }
}
