//! Serves the provider until the process ends.
//!
//! | event                          | running calls                            | process                                     |
//! |--------------------------------|------------------------------------------|---------------------------------------------|
//! | StopProvider                   | stop token cancelled                     | continues: Terraform reads the results      |
//! | SIGTERM, SIGHUP                | stop token cancelled                     | continues, for the same reason              |
//! | SIGINT                         | none: Terraform receives it and decides  | continues                                   |
//! | Shutdown                       | stop token cancelled                     | ends after the calls, at most 1.8 s later   |
//! | exit of Terraform              | stop token cancelled                     | ends after the calls, at most 30 s later    |
//! | SIGINT, SIGTERM with `--debug` | stop token cancelled                     | as with Shutdown                            |
//!
//! Before the process ends, the provider cleans up ([`Registry::at_exit`]), until the end of the 1.8 s. After the exit of Terraform, these
//! 1.8 s begin after the calls.

use std::{io, time::Duration};

use grit_proto::{
    goplugin::{
        grpc_broker_server::GrpcBrokerServer, grpc_controller_server::GrpcControllerServer,
        grpc_stdio_server::GrpcStdioServer,
    },
    tfplugin6::provider_server::ProviderServer,
};
use thiserror::Error;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::JoinError,
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::{
    accept::{self, Connection},
    announce,
    launch::{Caller, Launch},
    parent::Parent,
    services::GoPlugin,
    socket::{Socket, SocketError},
    tls::{Identity, TlsError},
};
use crate::{Registry, server::Service};

/// The limit of Go's servers. One message contains the prior and the planned state of a resource.
const MAX_MESSAGE_SIZE: usize = 256 << 20;

/// Larger messages need a round trip per window.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// go-plugin kills a process 2 s after Shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(1800);

/// Time for calls to complete after Terraform has exited.
const ORPHAN_GRACE: Duration = Duration::from_secs(30);

/// Why the provider cannot serve.
#[derive(Debug, Error)]
pub(super) enum ServeError {
    #[error("cannot start the async runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot write to stdout")]
    Announce(#[source] io::Error),
    #[error("the gRPC server failed")]
    Server(#[source] tonic::transport::Error),
    #[error("the gRPC server panicked")]
    Lost(#[source] JoinError),
}

/// Serves until Terraform exits; with `--debug`, until a signal.
///
/// # Cancellation
///
/// Dropping the future removes the socket. The runtime ends connections and calls.
pub(super) async fn serve(mut registry: Registry, launch: Launch) -> Result<(), ServeError> {
    let parent = Parent::of_this_process();
    let signals = Signals::new().map_err(ServeError::Signals)?;
    let (socket, listener) = Socket::bind(&launch.folders, registry.name())?;
    let identity = match &launch.caller {
        Caller::Terraform { certificate: Some(certificate) } => Some(Identity::new(certificate)?),
        Caller::Terraform { certificate: None } | Caller::Developer => None,
    };
    let line = match launch.caller {
        Caller::Terraform { .. } => announce::handshake(
            socket.path(),
            identity.as_ref().map(|identity| identity.certificate.as_slice()),
        ),
        Caller::Developer => announce::reattach(registry.address(), socket.path()),
    };

    let at_exit = registry.process.at_exit.take();
    let service = Service::new(registry);
    let shutdown = CancellationToken::new();
    let debugging = launch.caller == Caller::Developer;
    tokio::spawn(signals.handle(service.clone(), debugging.then(|| shutdown.clone())));
    let connections = accept::connections(listener, identity.map(|identity| identity.acceptor));
    let mut server = tokio::spawn(grpc(service.clone(), connections, shutdown.clone()));
    announce::print(&line).map_err(ServeError::Announce)?;

    let (result, deadline) = tokio::select! {
        ended = &mut server => (joined(ended), Instant::now() + SHUTDOWN_GRACE),
        () = shutdown.cancelled() => {
            let deadline = Instant::now() + SHUTDOWN_GRACE;
            service.stop();
            let end = async {
                service.idle().await;
                joined(server.await)
            };
            let result = tokio::time::timeout_at(deadline, end).await.unwrap_or_else(|_| {
                tracing::warn!("exiting while calls are running");
                Ok(())
            });
            (result, deadline)
        }
        () = parent.gone(), if !debugging => {
            tracing::warn!("Terraform exited without a Shutdown call");
            service.stop();
            match tokio::time::timeout(ORPHAN_GRACE, service.idle()).await {
                Ok(()) => tracing::info!("all calls completed"),
                Err(_) => tracing::warn!("exiting while calls are running"),
            }
            (Ok(()), Instant::now() + SHUTDOWN_GRACE)
        }
    };
    if let Some(clean_up) = at_exit {
        clean_up(deadline).await;
    }
    result
}

async fn grpc(
    service: Service,
    connections: mpsc::Receiver<io::Result<Connection>>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("plugin", tonic_health::ServingStatus::Serving).await;
    let go_plugin = GoPlugin { shutdown: shutdown.clone() };
    let provider = ProviderServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_service(health)
        .add_service(GrpcControllerServer::new(go_plugin.clone()))
        .add_service(GrpcStdioServer::new(go_plugin.clone()))
        .add_service(GrpcBrokerServer::new(go_plugin))
        .add_service(provider)
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), shutdown.cancelled_owned())
        .await
}

fn joined(ended: Result<Result<(), tonic::transport::Error>, JoinError>) -> Result<(), ServeError> {
    ended.map_err(ServeError::Lost)?.map_err(ServeError::Server)
}

/// The signals that would end the process during a call.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Handles the signals. `shutdown`: signals end the process.
    async fn handle(mut self, service: Service, shutdown: Option<CancellationToken>) {
        loop {
            let interrupted = tokio::select! {
                _ = self.interrupt.recv() => true,
                _ = self.terminate.recv() => false,
                _ = self.hang_up.recv() => false,
            };
            match &shutdown {
                Some(shutdown) => shutdown.cancel(),
                None if interrupted => tracing::debug!("ignoring SIGINT; Terraform sends StopProvider"),
                None => service.stop(),
            }
        }
    }
}
