//! A crowd of connections, for the wrapper's tests, which start it as another user. It stays until its stdin ends.

use std::{io::Read, path::PathBuf, process::ExitCode};

use clap::Parser;
use grit_proto::wrapper_v1::{WatchRequest, wrapper_client::WrapperClient};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

#[derive(Debug, Parser)]
struct Crowd {
    /// The wrapper's socket.
    socket: PathBuf,
    /// Number of connections. Each starts a watch and never reads its messages.
    count: usize,
}

/// Writes how many of the connections were served.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
#[expect(clippy::print_stdout, reason = "the test reads it")]
async fn main() -> ExitCode {
    let crowd = Crowd::parse();
    let mut watches = Vec::new();
    for _ in 0..crowd.count {
        if let Ok(channel) = connect(crowd.socket.clone()).await
            && let Ok(watch) = WrapperClient::new(channel.clone()).watch(WatchRequest {}).await
        {
            watches.push((channel, watch.into_inner()));
        }
    }
    println!("{}", watches.len());
    // Connections stay open in parallel: they respond to HTTP/2 control frames.
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let ended = matches!(end.await, Ok(Ok(0)));
    drop(watches);
    if ended { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn connect(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://wrapper").connect_with_connector(connect).await
}
