//! A wrapper with upstream's API in this process, on a unix socket or a TCP port.

use grit_proto::runner_wrapper::{
    CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
    InitGracefulShutdownRequest, InitGracefulShutdownResponse, Status as RunnerStatus,
    process_wrapper_server::{ProcessWrapper, ProcessWrapperServer},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{Request, Response, Status};

/// The responses of the wrapper, and the received requests.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) status: i32,
    pub(crate) failure_reason: String,
    pub(crate) delay: Duration,
    pub(crate) refuse: Option<Status>,
    pub(crate) graceful: Vec<InitGracefulShutdownRequest>,
    pub(crate) forceful: usize,
}

/// A running wrapper. Dropping it ends it with all connections.
pub(crate) struct Wrapper {
    pub(crate) script: Arc<Mutex<Script>>,
    /// As a manager's `wrapper_address`.
    pub(crate) address: String,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    listens: Listens,
}

enum Listens {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

#[derive(Clone)]
struct Service(Arc<Mutex<Script>>);

impl Wrapper {
    pub(crate) fn unix(path: &Path) -> Self {
        Self::new(format!("unix://{}", path.display()), Listens::Unix(path.to_owned()))
    }

    /// On an address that no other server uses while it is stopped.
    pub(crate) fn tcp() -> Self {
        let address = grit_tests::sshd::free_address().unwrap();
        Self::new(format!("tcp://{address}"), Listens::Tcp(address))
    }

    fn new(address: String, listens: Listens) -> Self {
        let script = Script { status: RunnerStatus::Running as i32, ..Script::default() };
        let mut wrapper = Self { script: Arc::new(Mutex::new(script)), address, server: None, listens };
        wrapper.start();
        wrapper
    }

    /// Starts it again on its address.
    pub(crate) fn start(&mut self) {
        let service = ProcessWrapperServer::new(Service(Arc::clone(&self.script)));
        let server = tonic::transport::Server::builder().add_service(service);
        let (stop, stopped) = oneshot::channel::<()>();
        let closing = async { drop(stopped.await) };
        // Dropping the server task alone would leave connections to tonic's tasks.
        let task = match &self.listens {
            Listens::Unix(path) => {
                let _ = std::fs::remove_file(path);
                let incoming = UnixListenerStream::new(UnixListener::bind(path).unwrap());
                tokio::spawn(async move {
                    server.serve_with_incoming_shutdown(incoming, closing).await.unwrap();
                })
            }
            Listens::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address).unwrap();
                listener.set_nonblocking(true).unwrap();
                let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
                tokio::spawn(async move {
                    server.serve_with_incoming_shutdown(incoming, closing).await.unwrap();
                })
            }
        };
        self.server = Some((stop, task));
    }

    /// Ends it with all connections, and waits for the end.
    pub(crate) async fn stop(&mut self) {
        if let Some((stop, task)) = self.server.take() {
            drop(stop);
            let _ = task.await;
        }
    }

    /// As before the first start of a wrapper.
    pub(crate) fn remove_socket(&self) {
        if let Listens::Unix(path) = &self.listens {
            let _ = std::fs::remove_file(path);
        }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }
}

impl Service {
    async fn act(&self, note: impl FnOnce(&mut Script)) -> Result<(i32, String), Status> {
        let (delay, refuse, answer) = {
            let mut script = self.0.lock().unwrap();
            note(&mut script);
            (script.delay, script.refuse.clone(), (script.status, script.failure_reason.clone()))
        };
        tokio::time::sleep(delay).await;
        refuse.map_or(Ok(answer), Err)
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Service {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        let (status, failure_reason) = self.act(|_| {}).await?;
        Ok(Response::new(CheckStatusResponse { status, failure_reason }))
    }

    async fn init_graceful_shutdown(
        &self,
        request: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        let (status, failure_reason) = self.act(|it| it.graceful.push(request.into_inner())).await?;
        Ok(Response::new(InitGracefulShutdownResponse { status, failure_reason }))
    }

    async fn init_forceful_shutdown(
        &self,
        _: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        let (status, failure_reason) = self.act(|it| it.forceful += 1).await?;
        Ok(Response::new(InitForcefulShutdownResponse { status, failure_reason }))
    }
}
