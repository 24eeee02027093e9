//! gRPC connections: accepts them within the limits of their listener, and closes those whose peer is silent for too long, or whose slot is
//! needed (see [`super::connection_limits`]).
//!
//! HTTP/2 keepalive does not cover silence: it starts after the peer's first bytes.

use std::{
    io,
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::stream::{self, Stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Instant, Sleep, sleep},
};
use tokio_util::{either::Either, sync::WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tracing::warn;

use super::{
    authority::AnyAuthority,
    connection_limits::{ConnectionId, Connections, Peer, Slot},
};
use crate::{
    daemon::{
        access::{self, Requester},
        counters::Counters,
        limits::{LogRateLimiter, uses_reserved_fd},
        listen::Listener,
    },
    supervise::log_key as key,
};

/// The pause after a failed accept: the usual cause is that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time for the first byte; a tunnel may be slow.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(30);

/// An idle connection gets an HTTP/2 ping this often.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

/// The time for each further byte.
const SILENCE_LIMIT: Duration = Duration::from_secs(2 * KEEPALIVE.as_secs());

type Socket = Either<UnixStream, TcpStream>;

/// The connections of one listener, without end. A failed accept is retried. A connection beyond the limits is closed immediately.
pub(super) fn incoming(
    listener: Listener,
    counters: Arc<Counters>,
) -> impl Stream<Item = io::Result<Connection<Socket>>> {
    let acceptor = Acceptor {
        listener,
        counters,
        open: Connections::default(),
        rejections: LogRateLimiter::per_minute(1),
        failures: LogRateLimiter::per_minute(1),
    };
    stream::unfold(acceptor, |mut acceptor| async move { Some((Ok(acceptor.next().await), acceptor)) })
}

#[derive(Debug)]
struct Acceptor {
    listener: Listener,
    counters: Arc<Counters>,
    open: Connections,
    rejections: LogRateLimiter,
    failures: LogRateLimiter,
}

impl Acceptor {
    async fn next(&mut self) -> Connection<Socket> {
        loop {
            let (socket, requester) = match self.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if self.failures.allow_log() {
                        warn!({ key::ERROR } = %error, "cannot accept a gRPC connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let peer = match requester {
                Requester::Unix { uid, .. } if access::is_privileged(uid) => Peer::Privileged,
                Requester::Unix { uid, .. } => Peer::User(uid),
                _ => Peer::Unknown,
            };
            let descriptor = match &socket {
                Either::Left(socket) => socket.as_fd(),
                Either::Right(socket) => socket.as_fd(),
            };
            let reason = if uses_reserved_fd(&descriptor) {
                "file descriptors nearly exhausted (LimitNOFILE)"
            } else if let Some(slot) = self.open.open(peer) {
                return Connection::new(socket, slot, requester);
            } else {
                "connection limit of this user reached"
            };
            self.counters.rejected_connections.add();
            if self.rejections.allow_log() {
                warn!({ key::PEER } = ?peer, { key::REASON } = reason, "connection rejected");
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

/// The client of a connection, among the extensions of each of its requests.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) requester: Requester,
    pub(super) connection: ConnectionId,
}

#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    client: Client,
    authority: AnyAuthority,
    silence: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: Slot,
}

impl<S> Connection<S> {
    fn new(stream: S, slot: Slot, requester: Requester) -> Self {
        Self {
            stream,
            client: Client { requester, connection: slot.id.clone() },
            authority: AnyAuthority::default(),
            silence: Box::pin(sleep(FIRST_BYTE_LIMIT)),
            evicted: Box::pin(slot.evicted.clone().cancelled_owned()),
            _slot: slot,
        }
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.evicted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let this = &mut *self;
        match this.authority.poll_read(&mut this.stream, cx, buf) {
            Poll::Ready(read) => {
                this.silence.as_mut().reset(Instant::now() + SILENCE_LIMIT);
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.silence.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
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
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::advance,
    };

    use super::*;
    use crate::daemon::grpc::connection_limits::{Call, MAX_CONNECTIONS};

    /// A peer and its connection. All other connections are open, and have open calls.
    fn last(open: &Connections) -> (DuplexStream, Connection<DuplexStream>, Vec<(Call, Slot)>) {
        let others = (1..MAX_CONNECTIONS).map(|_| {
            let slot = open.open(Peer::Unknown).unwrap();
            (slot.id.begin_call(false).unwrap(), slot)
        });
        let others: Vec<_> = others.collect();
        let (peer, stream) = duplex(64);
        let connection =
            Connection::new(stream, open.open(Peer::Unknown).unwrap(), Requester::Signal("none"));
        assert!(open.open(Peer::Unknown).is_none());
        (peer, connection, others)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_times_out_and_frees_its_slot() {
        let open = Connections::default();
        let (mut peer, mut connection, _others) = last(&open);
        let begin = Instant::now();
        // Each byte restarts the time.
        advance(FIRST_BYTE_LIMIT - Duration::from_secs(1)).await;
        peer.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= FIRST_BYTE_LIMIT - Duration::from_secs(1) + SILENCE_LIMIT);
        drop(connection);
        assert!(open.open(Peer::Unknown).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_first_byte_times_out() {
        let (_peer, mut connection, _others) = last(&Connections::default());
        let begin = Instant::now();
        assert!(connection.read_u8().await.is_err());
        assert!(begin.elapsed() >= FIRST_BYTE_LIMIT && begin.elapsed() < SILENCE_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_closes_when_slot_is_needed() {
        let open = Connections::default();
        let (mut peer, mut connection, _others) = last(&open);
        peer.write_all(b"xy").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        advance(FIRST_BYTE_LIMIT / 2).await;
        assert!(open.open(Peer::Unknown).is_some());
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
