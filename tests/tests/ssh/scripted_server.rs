//! Servers that are not SSH servers: each connection gets some bytes, and then no data or the end.

use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

/// The action after the bytes.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    Close,
    Hang,
    /// Sends the bytes again at this interval.
    Repeat(Duration),
}

impl ScriptedServer {
    pub(crate) async fn new(bytes: &'static [u8], then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    loop {
                        if stream.write_all(bytes).await.is_err() {
                            return;
                        }
                        match then {
                            Then::Repeat(pause) => tokio::time::sleep(pause).await,
                            Then::Hang => break,
                            Then::Close => {
                                // Closing with unread data would reset the connection and lose the sent bytes.
                                let mut sink = [0; 1024];
                                let _ =
                                    tokio::time::timeout(Duration::from_millis(100), stream.read(&mut sink))
                                        .await;
                                return;
                            }
                        }
                    }
                    let mut sink = Vec::new();
                    let _ = stream.read_to_end(&mut sink).await;
                });
            }
        });
        Self { address, task }
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
