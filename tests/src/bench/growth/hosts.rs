//! The hosts of a fleet: each has an address, and a wrapper in this process behind a real sshd.
//!
//! All hosts share one sshd. A relay for each host gives it an address of loopback, so the provider treats them as different hosts, and the
//! relay counts the connections. The wrapper responds immediately, so that the measured work is that of the provider.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, stream};
use grit_proto::wrapper_v1::{
    self as v1,
    wrapper_server::{Wrapper, WrapperServer},
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
    runtime::Runtime,
    sync::watch,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    bench::site,
    sshd::{ClientKey, Sshd},
};

/// The environment of all fleets.
pub(super) struct Hosts {
    // The runtime ends first: its tasks use the sockets and the server.
    runtime: Runtime,
    pub(super) sshd: Sshd,
    pub(super) key: ClientKey,
    dir: TempDir,
    all: Vec<Arc<Host>>,
}

/// What the hosts counted during one command.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Calls of the wrappers.
    pub(super) requests: usize,
    pub(super) connections: usize,
    /// The maximum of connections to one host.
    pub(super) per_host: usize,
    /// The maximum of SSH handshakes at the same time, in the log of sshd.
    pub(super) handshakes: usize,
    /// The CPU time of sshd, in milliseconds.
    pub(super) sshd_cpu: f64,
}

/// One host with its wrapper.
#[derive(Debug)]
struct Host {
    requests: AtomicUsize,
    connections: AtomicUsize,
    called: AtomicBool,
    stopped: AtomicBool,
    boot: Arc<Boot>,
}

/// The hosts of one version are ready when all of them were called once. So the provider has a connection to each of them at the same time,
/// as during a boot.
#[derive(Debug)]
struct Boot {
    left: AtomicUsize,
    ready: watch::Sender<bool>,
}

impl Hosts {
    pub(super) fn start() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("growth-").tempdir().context("make a folder")?;
        let key = ClientKey::generate(dir.path(), "client", "ed25519", "")?;
        // Different hosts have different servers, so the limit of one server must not count here.
        let sshd = Sshd::builder().authorize(&key).config("MaxStartups 1000").start()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { runtime, sshd, key, dir, all: Vec::new() })
    }

    /// Adds `count` hosts of a version. Returns them as `runner_managers`.
    pub(super) fn add(&mut self, count: usize, version: usize) -> anyhow::Result<Json> {
        let boot = Arc::new(Boot { left: AtomicUsize::new(count), ready: watch::Sender::new(false) });
        let mut managers = BTreeMap::new();
        for number in 0..count {
            let host = Arc::new(Host {
                requests: AtomicUsize::new(0),
                connections: AtomicUsize::new(0),
                called: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
                boot: Arc::clone(&boot),
            });
            let socket = self.dir.path().join(format!("w{}.sock", self.all.len()));
            let address =
                self.runtime.block_on(serve(&host, &socket, self.all.len(), self.sshd.address()))?;
            self.all.push(host);
            let manager = json!({
                "instance_name": format!("manager-{number:04}-v{version}"),
                "address": address.to_string(),
                "wrapper_address": format!("unix://{}", socket.display()),
            });
            managers.insert(format!("manager-{number:04}"), manager);
        }
        Ok(json!(managers))
    }

    /// Runs a command, and counts what reaches the hosts. Waits until its sessions have ended.
    pub(super) fn count<T>(
        &self,
        command: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Counts)> {
        let log = self.sshd.log().len();
        let listener = self.sshd.listener();
        let cpu = || super::machine::cpu(listener) + super::machine::reaped_cpu(listener);
        let before = cpu();
        for host in &self.all {
            host.requests.store(0, Ordering::Relaxed);
            host.connections.store(0, Ordering::Relaxed);
        }
        let result = command()?;
        site::settle(&self.sshd)?;
        let connections = self.all.iter().map(|host| host.connections.load(Ordering::Relaxed));
        let counts = Counts {
            requests: self.all.iter().map(|host| host.requests.load(Ordering::Relaxed)).sum(),
            connections: connections.clone().sum(),
            per_host: connections.max().unwrap_or_default(),
            handshakes: handshakes(self.sshd.log().get(log..).unwrap_or_default()),
            sshd_cpu: super::milliseconds(cpu().saturating_sub(before)),
        };
        Ok((result, counts))
    }

    /// Fails if a wrapper of the latest `count` hosts still runs.
    pub(super) fn assert_stopped(&self, count: usize) -> anyhow::Result<()> {
        let last = self.all.iter().rev().take(count);
        let running = last.filter(|host| !host.stopped.load(Ordering::Relaxed)).count();
        ensure!(running == 0, "{running} of {count} runners were not drained");
        Ok(())
    }
}

/// The maximum number of connections that had not logged in yet.
fn handshakes(log: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for line in log.lines() {
        if line.contains("Connection from ") {
            open += 1;
            most = most.max(open);
        } else if line.contains("Accepted publickey ") {
            open = open.saturating_sub(1);
        }
    }
    most
}

/// Starts the wrapper and the relay of a host. Returns its address.
async fn serve(
    host: &Arc<Host>,
    socket: &Path,
    number: usize,
    sshd: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let incoming = UnixListenerStream::new(UnixListener::bind(socket).context("listen for the wrapper")?);
    let server = tonic::transport::Server::builder().add_service(WrapperServer::from_arc(Arc::clone(host)));
    tokio::spawn(server.serve_with_incoming(incoming));
    let number = u16::try_from(number).context("too many hosts")?;
    let [high, low] = number.to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, 77, high, low), 0)).await;
    let listener = listener.context("listen for the host")?;
    let address = listener.local_addr()?;
    let host = Arc::clone(host);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            host.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                // A failure looks to both sides like a lost connection.
                if let Ok(mut far) = TcpStream::connect(sshd).await {
                    let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
    Ok(address)
}

impl Host {
    fn status(&self, ready: bool) -> v1::Status {
        let stopped = self.stopped.load(Ordering::Relaxed);
        let level = if ready { v1::Level::Polling } else { v1::Level::Process };
        v1::Status {
            state: if stopped { v1::State::Stopped } else { v1::State::Running }.into(),
            pid: (!stopped).then_some(4711),
            exit: stopped.then_some(v1::Exit { how: Some(v1::exit::How::Code(0)), killed: false }),
            wrapper_version: env!("CARGO_PKG_VERSION").to_owned(),
            health: Some(v1::Health {
                level: level.into(),
                level_max: v1::Level::Polling.into(),
                runner_version: Some("19.2.0".to_owned()),
                jobs: Some(0),
                ..v1::Health::default()
            }),
            ..v1::Status::default()
        }
    }

    fn called(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if !self.called.swap(true, Ordering::Relaxed) && self.boot.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.boot.ready.send_replace(true);
        }
    }
}

#[tonic::async_trait]
impl Wrapper for Host {
    async fn get_status(&self, _: Request<v1::GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        self.called();
        Ok(Response::new(self.status(*self.boot.ready.borrow())))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        self.called();
        let mut ready = self.boot.ready.subscribe();
        let (now, then) = (self.status(*ready.borrow_and_update()), self.status(true));
        let later = stream::once(async move {
            // Fails only at the end of the benchmark.
            let _ = ready.changed().await;
            Ok(then)
        });
        Ok(Response::new(Box::pin(stream::iter([Ok(now)]).chain(later))))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainResponse>, Status> {
        self.called();
        self.stopped.store(true, Ordering::Relaxed);
        let drain = v1::Drain {
            id: request.into_inner().id,
            outcome: v1::DrainOutcome::Clean.into(),
            ..v1::Drain::default()
        };
        let status = v1::Status { drain: Some(drain), ..self.status(true) };
        Ok(Response::new(v1::DrainResponse { status: Some(status), ..v1::DrainResponse::default() }))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented("not used here"))
    }

    async fn start(&self, _: Request<v1::StartRequest>) -> Result<Response<v1::StartResponse>, Status> {
        Err(Status::unimplemented("not used here"))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        Err(Status::unimplemented("not used here"))
    }
}
