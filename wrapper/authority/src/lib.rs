//! Accepts connections whose requests have any `:authority`.
//!
//! HTTP/2's `:authority` names the server of a request. Over a unix socket, or through a custom dialer, a gRPC client has no host name and
//! sends other values: the path of the socket (grpc-java), the percent-encoded path (gRPC C-core 1.57 and later, so Python, Ruby, PHP and
//! C++), the whole of `tcp://localhost:7777` (grpc-go with a custom dialer, as in upstream's client), or nothing (older grpcurl). None of these
//! is a valid authority (RFC 3986), so h2, which tonic uses, resets such a call with `PROTOCOL_ERROR` before the wrapper's code sees it. h2
//! 0.4.20 has no setting for this (hyperium/h2#487 is open). The wrapper does not need the value, so each request gets a valid one.

mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hpack;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use self::frames::Rewriter;

/// Size of one read.
const CHUNK: usize = 4096;

/// Reads an HTTP/2 connection and replaces the authority of its requests. Other protocols pass unchanged.
#[derive(Debug, Default)]
pub struct AnyAuthority {
    rewriter: Rewriter,
    ready: Vec<u8>,
    /// Number of bytes of `ready` that were already returned.
    given: usize,
}

impl AnyAuthority {
    /// As `stream.poll_read`. Always call it with the same stream.
    pub fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // An incomplete frame returns no bytes yet.
        while self.given == self.ready.len() {
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ready.clear();
            self.given = 0;
            self.rewriter.push(chunk.filled(), &mut self.ready);
        }
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let part = rest.get(..rest.len().min(buf.remaining())).unwrap_or_default();
        buf.put_slice(part);
        self.given += part.len();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn small_read_buffer_gets_all_bytes() {
        let (mut peer, mut stream) = tokio::io::duplex(16);
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(10_000).collect();
        let sent = text.clone();
        let writing = tokio::spawn(async move { peer.write_all(&sent).await });
        let mut filter = AnyAuthority::default();
        let mut read = Vec::new();
        loop {
            let mut little = [0; 3];
            let mut little = ReadBuf::new(&mut little);
            poll_fn(|cx| filter.poll_read(&mut stream, cx, &mut little)).await.unwrap();
            if little.filled().is_empty() {
                break;
            }
            read.extend_from_slice(little.filled());
        }
        writing.await.unwrap().unwrap();
        assert_eq!(read, text, "no HTTP/2, so nothing is touched");
    }
}
