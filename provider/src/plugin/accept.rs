//! From the socket to authenticated byte streams.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::Connected;

/// A client that connects and stays silent is let go after this long.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Connections that wait to be served; Terraform makes one.
const BACKLOG: usize = 8;

/// After a failure to accept (too many open files) another try comes no sooner.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for ever, and hands on those of our own user that prove who they are. The task ends with the receiver.
pub(super) fn connections(
    listener: UnixListener,
    acceptor: Option<TlsAcceptor>,
) -> mpsc::Receiver<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        let own = rustix::process::geteuid().as_raw();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own => {}
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), "refused a client of another user");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "refused a client whose user cannot be told");
                    continue;
                }
            }
            tokio::spawn(introduce(stream, acceptor.clone(), sender.clone()));
        }
    });
    receiver
}

async fn introduce(
    stream: UnixStream,
    acceptor: Option<TlsAcceptor>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let connection = match acceptor {
        None => Connection::Plain(stream),
        Some(acceptor) => match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Connection::Tls(Box::new(stream)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "refused a client in the TLS handshake");
                return;
            }
            Err(_) => {
                tracing::warn!("refused a client that did not finish the TLS handshake in time");
                return;
            }
        },
    };
    // Fails when the server has ended meanwhile; so has the client's wish.
    let _ = sender.send(Ok(connection)).await;
}

/// A byte stream to a client that may be served.
pub(super) enum Connection {
    Plain(UnixStream),
    Tls(Box<TlsStream<UnixStream>>),
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
