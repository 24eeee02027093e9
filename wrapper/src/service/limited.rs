//! A connection that counts against its listener's limit for as long as it is open, and is not open for nothing.
//!
//! Silence ends it: a peer that connects and says nothing would else hold one of a few places for ever. HTTP/2's own signs of life are
//! no help against that, since they begin when the peer has spoken.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};
use tonic::transport::server::Connected;

/// How long a peer may take to say its first word; a tunnel may be slow.
const FIRST_WORD: Duration = Duration::from_secs(30);

/// How long it may be silent then: twice what passes between two signs of life that it is asked for.
const SILENCE: Duration = Duration::from_secs(2 * super::server::KEEPALIVE.as_secs());

#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    silent: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self { stream, silent: Box::pin(sleep(FIRST_WORD)), _place: place }
    }
}

impl<S: Connected> Connected for Limited<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.silent.as_mut().reset(Instant::now() + SILENCE);
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(self.silent.as_mut().poll(cx));
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
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Semaphore,
        time::advance,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_loses_the_place() {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let (mut peer, stream) = tokio::io::duplex(64);
        let mut limited = Limited::new(stream, place);
        let begin = Instant::now();
        // Each word buys time.
        advance(FIRST_WORD - Duration::from_secs(1)).await;
        peer.write_all(b"x").await.unwrap();
        assert_eq!(limited.read_u8().await.unwrap(), b'x');
        let error = limited.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= FIRST_WORD - Duration::from_secs(1) + SILENCE);
        drop(limited);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_word_has_its_time() {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (_peer, stream) = tokio::io::duplex(64);
        let begin = Instant::now();
        assert!(Limited::new(stream, place).read_u8().await.is_err());
        assert!(begin.elapsed() >= FIRST_WORD && begin.elapsed() < SILENCE);
    }
}
