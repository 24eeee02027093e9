//! Prompt acknowledgements: sshd before 10.1 uses Nagle's algorithm for sessions that only forward.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use russh::client;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// How long a relayed session waits after the host keys of sshd, so that sshd has written the messages that follow. Measured without this
/// wait: the acknowledgement often releases only the next message, and the one after it, the response, is held back for 40 ms.
pub(super) const FOLLOWING: Duration = Duration::from_millis(2);

/// Sends a request without reply, so that the relay has data for the server.
///
/// sshd before 10.1 uses Nagle's algorithm: it holds back a message until the one before is acknowledged. The kernel of a jump host
/// delays an acknowledgement by 40 ms, except when it has data to send, and TCP_QUICKACK cannot be set there. Measured: without
/// this, the first response through a jump host takes 40 to 80 ms longer. SSH_MSG_IGNORE would be the usual message, but russh cannot
/// send it; sshd and other servers also ignore this request.
pub(super) fn prompt_acknowledgement(session: &mut client::Session) -> Result<(), russh::Error> {
    session.send_global_request(None, "keepalive@openssh.com", &[])
}

/// A TCP stream with immediate acknowledgements. Linux resets this option, so it is set after every read.
///
/// sshd before 10.1 uses Nagle's algorithm for sessions that only forward. With delayed acknowledgements, the first response takes 2 x 43
/// ms longer. Best effort: other systems, and errors, are ignored.
#[derive(Debug)]
pub(crate) struct QuickAck(TcpStream);

impl QuickAck {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    fn arm(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::net::sockopt::set_tcp_quickack(&self.0, true) {
            tracing::trace!(error = %error, "cannot set TCP_QUICKACK");
        }
    }
}

impl AsyncRead for QuickAck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.0).poll_read(cx, buffer);
        if polled.is_ready() {
            self.arm();
        }
        polled
    }
}

impl AsyncWrite for QuickAck {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
