//! gRPC connections: accepts them within the limits of their listener, and closes those whose peer sends nothing.
//!
//! HTTP/2 keepalive ends a connection whose peer does not respond. It starts after the peer's first bytes, which have a time limit here.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::stream::{self, Stream};
use grit_authority::AnyAuthority;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Sleep, sleep},
};
use tokio_util::either::Either;
use tonic::transport::server::Connected;
use tracing::warn;

use super::{
    calls::Client,
    places::{Place, Places},
};
use crate::daemon::serve::{limits::LogRateLimiter, listen::Listener, requester::Requester};

/// The pause after a failed accept: the usual cause is that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time for the first byte; a tunnel may be slow.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(30);

/// An idle connection gets an HTTP/2 ping this often.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

type Socket = Either<UnixStream, TcpStream>;

/// The connections of one listener, without end. `is_read_only`: it is for the status only. A failed accept is retried. A connection beyond the limits is closed immediately.
pub(super) fn incoming(
    listener: Listener,
    is_read_only: bool,
) -> impl Stream<Item = io::Result<Connection<Socket>>> {
    let acceptor = Acceptor {
        listener,
        is_read_only,
        places: Places::default(),
        rejections: LogRateLimiter::per_minute(1),
        failures: LogRateLimiter::per_minute(1),
    };
    stream::unfold(acceptor, |mut acceptor| async move { Some((Ok(acceptor.next().await), acceptor)) })
}

#[derive(Debug)]
struct Acceptor {
    listener: Listener,
    is_read_only: bool,
    places: Places,
    rejections: LogRateLimiter,
    failures: LogRateLimiter,
}

impl Acceptor {
    async fn next(&mut self) -> Connection<Socket> {
        loop {
            match self.accept().await {
                Ok((socket, requester)) => {
                    if let Some(place) = self.places.take(requester) {
                        let client = Client { requester, is_read_only: self.is_read_only };
                        return Connection::new(socket, place, client);
                    }
                    if self.rejections.allow_log() {
                        warn!(peer = %requester, "connection rejected: too many connections are open");
                    }
                }
                Err(error) => {
                    if self.failures.allow_log() {
                        warn!(%error, "cannot accept a gRPC connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&mut self) -> io::Result<(Socket, Requester)> {
        match &mut self.listener {
            Listener::Unix(listener) => {
                let socket = listener.accept().await?;
                let peer = socket.peer_cred()?;
                let requester = Requester::Unix { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() };
                Ok((Either::Left(socket), requester))
            }
            Listener::Tcp(listener) => {
                let (socket, address) = listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok((Either::Right(socket), Requester::Tcp(address)))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    client: Client,
    authority: AnyAuthority,
    /// The time for the first byte, until it has arrived.
    silence: Option<Pin<Box<Sleep>>>,
    _place: Place,
}

impl<S> Connection<S> {
    fn new(stream: S, place: Place, client: Client) -> Self {
        Self {
            stream,
            client,
            authority: AnyAuthority::default(),
            silence: Some(Box::pin(sleep(FIRST_BYTE_LIMIT))),
            _place: place,
        }
    }
}

impl<S> Connection<S> {
    /// A connection of this client, for a simulation. `None`: the client has too many.
    pub(crate) fn of(stream: S, requester: Requester) -> Option<Self> {
        let place = Places::default().take(requester)?;
        Some(Self::new(stream, place, Client { requester, is_read_only: false }))
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match this.authority.poll_read(&mut this.stream, cx, buf) {
            Poll::Ready(read) => {
                this.silence = None;
                Poll::Ready(read)
            }
            Poll::Pending => match &mut this.silence {
                Some(silence) => {
                    ready!(silence.as_mut().poll(cx));
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                }
                None => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::{Instant, advance, timeout},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_without_first_byte_times_out() {
        let places = Places::default();
        let client = Client { requester: Requester::Signal("none"), is_read_only: false };
        let place = || places.take(client.requester).unwrap();
        let (_peer, stream) = duplex(64);
        let mut connection = Connection::new(stream, place(), client);
        let begin = Instant::now();
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= FIRST_BYTE_LIMIT && begin.elapsed() < 2 * FIRST_BYTE_LIMIT);
        drop(connection);

        let (mut peer, stream) = duplex(64);
        let mut connection = Connection::new(stream, place(), client);
        advance(FIRST_BYTE_LIMIT - Duration::from_secs(1)).await;
        peer.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        // From now on, the keepalive of HTTP/2 ends a connection whose peer does not respond.
        timeout(10 * FIRST_BYTE_LIMIT, connection.read_u8()).await.unwrap_err();
    }
}
