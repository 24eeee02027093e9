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

use tokio::io::{AsyncRead, ReadBuf};

use self::frames::Rewriter;

/// So much is read at once.
const CHUNK: usize = 4096;

/// Reads an HTTP/2 connection so that its requests have an authority that is one. What is no HTTP/2 comes as it is.
#[derive(Debug, Default)]
pub(super) struct AnyAuthority {
    rewriter: Rewriter,
    ready: Vec<u8>,
    /// How much of `ready` was given away.
    given: usize,
}

impl AnyAuthority {
    /// As `stream.poll_read`, always with the same stream.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Bytes that are only a part of something give nothing away yet.
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
