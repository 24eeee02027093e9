//! Connections whose peers may call us what they like.
//!
//! HTTP/2's `:authority` says whom a request is for. Over a unix socket, or through a dialer of its own, a gRPC client has no host to name and
//! sends what it has: the path of the socket (grpc-java), percent-encoded (gRPC C-core 1.57 and later, so Python, Ruby, PHP and C++), the whole of
//! `tcp://localhost:7777` (grpc-go with a dialer of its own, as in upstream's client), or nothing (older grpcurl). None of these is an
//! authority in the sense of RFC 3986, and h2 below tonic resets such a call, `PROTOCOL_ERROR`, before any code of ours sees it. Whom a
//! request is for means nothing here, so each gets a name that h2 takes.

mod frames;
mod hpack;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use self::frames::Rewriter;

/// So much is read at once.
const CHUNK: usize = 4096;

/// A connection of HTTP/2 whose requests come with an authority that is one. What is no HTTP/2 comes as it is.
#[derive(Debug)]
pub(super) struct AnyAuthority<S> {
    stream: S,
    rewriter: Rewriter,
    ready: Vec<u8>,
    /// How much of `ready` was given away.
    given: usize,
}

impl<S> AnyAuthority<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, rewriter: Rewriter::default(), ready: Vec::new(), given: 0 }
    }
}

impl<S: Connected> Connected for AnyAuthority<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnyAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Bytes that are only a part of something give nothing away yet.
        while this.given == this.ready.len() {
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.ready.clear();
            this.given = 0;
            this.rewriter.push(chunk.filled(), &mut this.ready);
        }
        let rest = this.ready.get(this.given..).unwrap_or_default();
        let part = rest.get(..rest.len().min(buf.remaining())).unwrap_or_default();
        buf.put_slice(part);
        this.given += part.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<S> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_reader_with_little_room_gets_everything_in_its_time() {
        let (mut peer, stream) = tokio::io::duplex(16);
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(10_000).collect();
        let sent = text.clone();
        let writing = tokio::spawn(async move { peer.write_all(&sent).await });
        let mut stream = AnyAuthority::new(stream);
        let mut read = Vec::new();
        let mut little = [0; 3];
        loop {
            match stream.read(&mut little).await.unwrap() {
                0 => break,
                count => read.extend_from_slice(&little[..count]),
            }
        }
        writing.await.unwrap().unwrap();
        assert_eq!(read, text, "no HTTP/2, so nothing is touched");
    }
}
