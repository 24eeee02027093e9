//! A TCP relay that can stop forwarding, and that can delay like a long distance.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use rustix::net::sockopt;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::{mpsc, watch},
    time::Instant,
};

/// Forwards connections to one address. Needs no privileges.
///
/// While it is cut, no data passes in either direction and no connection is closed: open connections are silent, and new ones are accepted
/// by the kernel without a response. After the restore, waiting data passes. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    passing: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl Relay {
    /// A relay on a free port of loopback.
    pub fn start(to: SocketAddr) -> anyhow::Result<Self> {
        Self::with_round_trip(to, Duration::ZERO)
    }

    /// The same, over a distance with this round-trip time. As with a real distance, a connection's setup takes one and a half round trips
    /// for the server and one for the client. Bandwidth is not limited, no
    /// packet is lost, and data is acknowledged at once: a sender with Nagle's algorithm waits for no round trip.
    pub fn with_round_trip(to: SocketAddr, round_trip: Duration) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("find a port for the relay")?;
        let address = listener.local_addr()?;
        let (passing, passes) = watch::channel(true);
        runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let _ = near.set_nodelay(true);
                tokio::spawn(forward(near, to, round_trip, passes.clone()));
            }
        });
        Ok(Self { address, passing, runtime: Some(runtime) })
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the link.
    pub fn cut(&self) {
        self.passing.send_replace(false);
    }

    /// Restores the link.
    pub fn restore(&self) {
        self.passing.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn forward(near: TcpStream, to: SocketAddr, round_trip: Duration, mut passes: watch::Receiver<bool>) {
    if passes.wait_for(|passes| *passes).await.is_err() {
        return;
    }
    let one_way = round_trip / 2;
    // The client's first data leaves when the client has the response to its connection request.
    tokio::time::sleep(round_trip).await;
    let (near_in, near_out) = near.into_split();
    let (client_sends, client_sent) = mpsc::channel(QUEUE);
    let from_client = receive(near_in, client_sends, one_way);
    let rest = async {
        tokio::time::sleep(one_way).await;
        // A refused connection looks like an immediate close from behind the relay.
        let Ok(far) = TcpStream::connect(to).await else { return };
        let _ = far.set_nodelay(true);
        let (far_in, far_out) = far.into_split();
        let (server_sends, server_sent) = mpsc::channel(QUEUE);
        tokio::join!(
            receive(far_in, server_sends, one_way),
            send(far_out, client_sent, passes.clone()),
            send(near_out, server_sent, passes)
        );
    };
    tokio::join!(from_client, rest);
}

/// Chunks of one direction in transit.
const QUEUE: usize = 1024;

/// Reads one direction to its end, which is an empty chunk, and notes when each chunk arrives at the other side.
async fn receive(mut from: OwnedReadHalf, to: mpsc::Sender<(Instant, Vec<u8>)>, one_way: Duration) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // A sender that waits for an acknowledgement would otherwise wait for up to 40 ms, with any round-trip time.
        let _ = sockopt::set_tcp_quickack(from.as_ref(), true);
        let chunk = buffer.get(..read).unwrap_or_default().to_vec();
        if to.send((Instant::now() + one_way, chunk)).await.is_err() || read == 0 {
            return;
        }
    }
}

/// Writes each chunk when it arrives, while the link is not cut.
async fn send(
    mut to: OwnedWriteHalf,
    mut from: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut passes: watch::Receiver<bool>,
) {
    while let Some((at, chunk)) = from.recv().await {
        tokio::time::sleep_until(at).await;
        // After the read: data in transit waits here while the link is cut.
        if passes.wait_for(|passes| *passes).await.is_err() {
            return;
        }
        if chunk.is_empty() {
            let _ = to.shutdown().await;
            return;
        }
        if to.write_all(&chunk).await.is_err() {
            return;
        }
    }
}
