//! Byte streams, and the recording of their first bytes.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for S {}

/// A [`ByteStream`] of any kind.
pub type BoxStream = Box<dyn ByteStream>;

/// The first bytes of a stream, and whether the peer has closed it. Clones share the record.
#[derive(Clone, Default)]
pub(crate) struct Transcript {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Seen {
    first: Vec<u8>,
    closed: bool,
}

impl Transcript {
    /// Enough for the response of a web server, or the message of a server that rejects the connection.
    const LIMIT: usize = 512;

    /// The first received bytes, at most [`Self::LIMIT`].
    pub(crate) fn first(&self) -> Vec<u8> {
        self.seen.lock().first.clone()
    }

    /// Whether reading has ended or failed, or the stream was dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.seen.lock().closed
    }

    /// Waits until data was received, or the stream was closed.
    pub(crate) async fn changed(&self) {
        let mut changed = std::pin::pin!(self.changed.notified());
        changed.as_mut().enable();
        if self.first().is_empty() && !self.is_closed() {
            changed.await;
        }
    }

    /// Adds bytes. Returns whether more are recorded.
    fn add(&self, bytes: &[u8]) -> bool {
        let mut seen = self.seen.lock();
        let room = Self::LIMIT.saturating_sub(seen.first.len());
        seen.first.extend(bytes.iter().take(room));
        drop(seen);
        self.changed.notify_waiters();
        room > bytes.len()
    }

    fn close(&self) {
        self.seen.lock().closed = true;
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transcript({})", self.first().escape_ascii())
    }
}

/// A stream that records its first bytes and ends when its token is cancelled.
///
/// The token interrupts a read or write that waits for another task. `shutdown` never fails: russh discards the reason of a session's end
/// if the shutdown after it fails.
pub(crate) struct RecordingStream<S> {
    inner: S,
    transcript: Transcript,
    recording: bool,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> RecordingStream<S> {
    /// Wraps a stream; `end` ends it.
    pub(crate) fn new(inner: S, transcript: Transcript, end: CancellationToken) -> Self {
        Self { inner, transcript, recording: true, ended: Box::pin(end.cancelled_owned()) }
    }

    /// Fails a pending operation when the token is cancelled.
    fn or_ended<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Pending if self.ended.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection has ended")))
            }
            polled => polled,
        }
    }
}

impl<S> Drop for RecordingStream<S> {
    fn drop(&mut self) {
        self.transcript.close();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RecordingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let polled = self.or_ended(cx, polled);
        let received = buffer.filled().get(before..).unwrap_or_default();
        match &polled {
            Poll::Ready(Ok(())) if !received.is_empty() => {
                self.recording = self.recording && self.transcript.add(received);
            }
            Poll::Ready(_) => self.transcript.close(),
            Poll::Pending => {}
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RecordingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0)); // russh's channels call it an error
        }
        let polled = match Pin::new(&mut self.inner).poll_write(cx, bytes) {
            // The peer has closed the stream. The next read reports this, after the data that the peer sent before, such as the error
            // message of a command.
            Poll::Ready(Err(error))
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Poll::Ready(Ok(bytes.len()))
            }
            polled => polled,
        };
        self.or_ended(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.or_ended(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.or_ended(cx, polled).map(|_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn first_512_bytes_are_recorded() {
        let (near, mut far) = tokio::io::duplex(4096);
        let first = Transcript::default();
        let mut tap = RecordingStream::new(near, first.clone(), CancellationToken::new());
        far.write_all(&[b'x'; 700]).await.unwrap();
        let mut buffer = [0; 700];
        tap.read_exact(&mut buffer).await.unwrap();
        assert_eq!(first.first(), [b'x'; 512]);
    }

    #[tokio::test]
    async fn pending_data_is_read_after_peer_closed() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        let mut tap = RecordingStream::new(near, Transcript::default(), CancellationToken::new());
        far.write_all(b"Please log in first.").await.unwrap();
        drop(far);
        tap.write_all(b"SSH-2.0-test\r\n").await.unwrap();
        let mut heard = [0; 20];
        tap.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"Please log in first.");
        assert_eq!(tap.read(&mut heard).await.ok(), Some(0), "and then the end");
    }

    #[tokio::test]
    async fn cancelled_token_ends_blocked_read_and_write() {
        let (near, _far) = tokio::io::duplex(4);
        let end = CancellationToken::new();
        let (mut reader, mut writer) =
            tokio::io::split(RecordingStream::new(near, Transcript::default(), end.clone()));
        let (read, written, ()) =
            tokio::join!(reader.read_u8(), async { writer.write_all(&[0; 64]).await }, async {
                tokio::task::yield_now().await;
                end.cancel();
            });
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
