//! A TCP relay that can stop forwarding.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::watch,
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
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("find a port for the relay")?;
        let address = listener.local_addr()?;
        let (passing, passes) = watch::channel(true);
        runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let _ = near.set_nodelay(true);
                tokio::spawn(forward(near, to, passes.clone()));
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

async fn forward(near: TcpStream, to: SocketAddr, mut passes: watch::Receiver<bool>) {
    if passes.wait_for(|passes| *passes).await.is_err() {
        return;
    }
    // A refused connection looks like an immediate close from behind the relay.
    let Ok(far) = TcpStream::connect(to).await else { return };
    let _ = far.set_nodelay(true);
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(copy(near_in, far_out, passes.clone()), copy(far_in, near_out, passes));
}

/// Forwards one direction to its end. Data that was read before a cut waits here.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut passes: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if passes.wait_for(|passes| *passes).await.is_err() {
            return;
        }
        let chunk = buffer.get(..read).unwrap_or_default();
        if chunk.is_empty() {
            let _ = to.shutdown().await;
            return;
        }
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}
