//! Accepts and authenticates connections.

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

/// The time limit of a TLS handshake.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepted connections that are not served yet; Terraform opens one.
const ACCEPT_BACKLOG: usize = 8;

/// The delay after a failure to accept, for example because of too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections of this user that pass the TLS handshake, until the receiver is dropped.
pub(super) fn connections(
    listener: UnixListener,
    acceptor: Option<TlsAcceptor>,
) -> mpsc::Receiver<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(ACCEPT_BACKLOG);
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
                    tracing::warn!(error = %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own => {}
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), "rejected a client that runs as another user");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(error = %error, "rejected a client: cannot determine its user");
                    continue;
                }
            }
            tokio::spawn(complete_handshake(stream, acceptor.clone(), sender.clone()));
        }
    });
    receiver
}

async fn complete_handshake(
    stream: UnixStream,
    acceptor: Option<TlsAcceptor>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let connection = match acceptor {
        None => Connection::Plain(stream),
        Some(acceptor) => match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Connection::Tls(Box::new(stream)),
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "rejected a client: TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::warn!("rejected a client: TLS handshake timed out");
                return;
            }
        },
    };
    // Fails only if the server has ended.
    let _ = sender.send(Ok(connection)).await;
}

/// An authenticated byte stream.
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

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, time::Instant};

    use super::*;
    use crate::process::{socket::Socket, tls::Identity};

    /// Any certificate will do for a client that never shows one.
    fn acceptor() -> TlsAcceptor {
        let key = rcgen::KeyPair::generate().unwrap();
        let client =
            rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        Identity::new(&pem(client.der())).unwrap().acceptor
    }

    fn pem(der: &[u8]) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
    }

    #[tokio::test(start_paused = true)]
    async fn silent_client_is_disconnected_after_limit() {
        let parent = tempfile::tempdir().unwrap();
        let (socket, listener) = Socket::bind(&[parent.path().to_owned()], "unit").unwrap();
        let mut connections = connections(listener, Some(acceptor()));
        let start = Instant::now();
        let mut silent = UnixStream::connect(socket.path()).await.unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "the server hangs up");
        assert_eq!(start.elapsed().as_secs(), TLS_HANDSHAKE_TIMEOUT.as_secs());
        assert!(connections.try_recv().is_err());
    }

    #[tokio::test]
    async fn same_user_is_accepted_without_tls() {
        let parent = tempfile::tempdir().unwrap();
        let (socket, listener) = Socket::bind(&[parent.path().to_owned()], "unit").unwrap();
        let mut connections = connections(listener, None);
        let _client = UnixStream::connect(socket.path()).await.unwrap();
        assert!(matches!(connections.recv().await, Some(Ok(Connection::Plain(_)))));
    }
}
