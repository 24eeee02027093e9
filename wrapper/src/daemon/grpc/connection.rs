//! A gRPC connection: it closes when the peer is silent for too long, or when its slot is needed (see [`super::connection_limits`]).
//!
//! HTTP/2 keepalive does not cover silence: it starts after the peer's first bytes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::http::Extensions;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::{authority::AnyAuthority, connection_limits::Slot};

/// The time for the first byte; a tunnel may be slow.
const FIRST_BYTE: Duration = Duration::from_secs(30);

/// An idle connection gets an HTTP/2 ping this often.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

/// The time for each further byte.
const SILENCE: Duration = Duration::from_secs(2 * KEEPALIVE.as_secs());

#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    info: Extensions,
    authority: AnyAuthority,
    silence: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: Slot,
}

impl<S> Connection<S> {
    /// `info` is added to the extensions of each request.
    pub(super) fn new(stream: S, slot: Slot, mut info: Extensions) -> Self {
        info.insert(slot.id.clone());
        Self {
            stream,
            info,
            authority: AnyAuthority::default(),
            silence: Box::pin(sleep(FIRST_BYTE)),
            evicted: Box::pin(slot.evicted.clone().cancelled_owned()),
            _slot: slot,
        }
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Extensions;

    fn connect_info(&self) -> Extensions {
        self.info.clone()
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
                this.silence.as_mut().reset(Instant::now() + SILENCE);
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
    use crate::daemon::grpc::connection_limits::{Call, Connections, MAX_CONNECTIONS, Peer};

    /// A peer and its connection. All other connections are open, and have open calls.
    fn last(open: &Connections) -> (DuplexStream, Connection<DuplexStream>, Vec<(Call, Slot)>) {
        let others = (1..MAX_CONNECTIONS).map(|_| {
            let slot = open.open(Peer::Unknown).unwrap();
            (slot.id.begin_call(false).unwrap(), slot)
        });
        let others: Vec<_> = others.collect();
        let (peer, stream) = duplex(64);
        let connection = Connection::new(stream, open.open(Peer::Unknown).unwrap(), Extensions::new());
        assert!(open.open(Peer::Unknown).is_none());
        (peer, connection, others)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_times_out_and_frees_its_slot() {
        let open = Connections::default();
        let (mut peer, mut connection, _others) = last(&open);
        let begin = Instant::now();
        // Each byte restarts the time.
        advance(FIRST_BYTE - Duration::from_secs(1)).await;
        peer.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= FIRST_BYTE - Duration::from_secs(1) + SILENCE);
        drop(connection);
        assert!(open.open(Peer::Unknown).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_first_byte_times_out() {
        let (_peer, mut connection, _others) = last(&Connections::default());
        let begin = Instant::now();
        assert!(connection.read_u8().await.is_err());
        assert!(begin.elapsed() >= FIRST_BYTE && begin.elapsed() < SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_closes_when_slot_is_needed() {
        let open = Connections::default();
        let (mut peer, mut connection, _others) = last(&open);
        peer.write_all(b"xy").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        advance(FIRST_BYTE / 2).await;
        assert!(open.open(Peer::Unknown).is_some());
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
