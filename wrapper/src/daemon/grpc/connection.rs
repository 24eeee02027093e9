//! A connection that has one of its listener's places for as long as it is open, and is not open for nothing.
//!
//! Silence ends it: a peer that connects and says nothing would else hold one of a few places for ever. HTTP/2's own signs of life are
//! no help against that, since they begin when the peer has spoken. That its place is wanted ends it as well (see [`super::connection_limits`]).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::{authority::AnyAuthority, call_tracking::Peer, connection_limits::Place};

/// How long a peer may take to say its first word; a tunnel may be slow.
const FIRST_WORD: Duration = Duration::from_secs(30);

/// How long it may be silent then: twice what passes between two signs of life that it is asked for.
const SILENCE: Duration = Duration::from_secs(2 * super::server::KEEPALIVE.as_secs());

#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    authority: AnyAuthority,
    silent: Pin<Box<Sleep>>,
    wanted: Pin<Box<WaitForCancellationFutureOwned>>,
    place: Place,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S, place: Place) -> Self {
        let wanted = Box::pin(place.wanted());
        Self {
            stream,
            authority: AnyAuthority::default(),
            silent: Box::pin(sleep(FIRST_WORD)),
            wanted,
            place,
        }
    }
}

impl<S: Connected> Connected for Limited<S> {
    type ConnectInfo = Peer<S::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Peer { info: self.stream.connect_info(), seat: self.place.seat(), places: self.place.places() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.wanted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let this = &mut *self;
        match this.authority.poll_read(&mut this.stream, cx, buf) {
            Poll::Ready(read) => {
                this.silent.as_mut().reset(Instant::now() + SILENCE);
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.silent.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
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
        io::{AsyncReadExt, AsyncWriteExt},
        time::advance,
    };

    use super::*;
    use crate::daemon::grpc::connection_limits::{ALL, Guest, Places};

    /// A connection that has the last place.
    fn last<S>(places: &Places, stream: S) -> (Limited<S>, Vec<Place>) {
        let others = (1..ALL).map(|_| places.take(Guest::Unknown).unwrap()).collect();
        let limited = Limited::new(stream, places.take(Guest::Unknown).unwrap());
        assert!(places.take(Guest::Unknown).is_none());
        (limited, others)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_is_closed() {
        let places = Places::default();
        let (mut peer, stream) = tokio::io::duplex(64);
        let (mut limited, others) = last(&places, stream);
        let _calls: Vec<_> = others.iter().map(|place| place.seat().call()).collect();
        let begin = Instant::now();
        // Each word buys time.
        advance(FIRST_WORD - Duration::from_secs(1)).await;
        peer.write_all(b"x").await.unwrap();
        assert_eq!(limited.read_u8().await.unwrap(), b'x');
        let error = limited.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= FIRST_WORD - Duration::from_secs(1) + SILENCE);
        drop(limited);
        assert!(places.take(Guest::Unknown).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_first_byte_times_out() {
        let (_peer, stream) = tokio::io::duplex(64);
        let (mut limited, _others) = last(&Places::default(), stream);
        let begin = Instant::now();
        assert!(limited.read_u8().await.is_err());
        assert!(begin.elapsed() >= FIRST_WORD && begin.elapsed() < SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_closes_when_slot_is_needed() {
        let places = Places::default();
        let (mut peer, stream) = tokio::io::duplex(64);
        let (mut limited, others) = last(&places, stream);
        let _calls: Vec<_> = others.iter().map(|place| place.seat().call()).collect();
        peer.write_all(b"xy").await.unwrap();
        assert_eq!(limited.read_u8().await.unwrap(), b'x');
        advance(FIRST_WORD / 2).await;
        assert!(places.take(Guest::Unknown).is_some());
        let error = limited.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
