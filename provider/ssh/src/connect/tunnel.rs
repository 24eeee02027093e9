//! A tunnel to a wrapper: a byte stream and its monitor.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    error::{Cause, TransportError},
    route::{Phase, Route},
    stream::{BoxStream, Transcript},
};

/// A connection to a wrapper's address.
///
/// It is open when the first byte was received: send what the protocol begins with, and then wait for [`TunnelMonitor::first_byte`].
pub struct Tunnel {
    pub stream: BoxStream,
    pub monitor: Arc<dyn TunnelMonitor>,
}

/// Keeps the session or command of a tunnel alive, and reports why the tunnel was closed.
///
/// gRPC reports only the end of the stream. The reason is an error of the session or of the command, or it is in the received data.
#[async_trait]
pub trait TunnelMonitor: Send + Sync {
    /// Why the tunnel was closed; none if it is open. May wait a moment for the reason.
    async fn close_reason(&self) -> Option<TransportError>;

    /// Waits until the tunnel is open: the first byte was received. Also returns when the tunnel was closed; [`Self::close_reason`] is the error
    /// then. The deadline of [`Connector::open`](crate::Connector::open) limits it.
    async fn first_byte(&self) -> Result<(), TransportError>;

    fn route(&self) -> &Route;
}

/// Whether the wrapper closed an open tunnel, or is not a gRPC server.
pub(crate) fn wrapper_error(transcript: &Transcript, route: &Route) -> Option<TransportError> {
    let received = transcript.first();
    let cause = if !received.is_empty() && !begins_http2(&received) {
        Cause::NotAWrapper
    } else if transcript.is_closed() {
        Cause::WrapperClosed
    } else {
        return None;
    };
    let mut error = TransportError::at(Phase::Call, route.clone(), cause);
    if matches!(error.cause, Cause::NotAWrapper) {
        error.evidence.received = received;
    }
    Some(error)
}

/// An HTTP/2 server sends a SETTINGS frame on stream 0 first: length (3 bytes), type 4, flags, stream (4 bytes).
fn begins_http2(received: &[u8]) -> bool {
    received.iter().skip(3).zip([4, 0, 0, 0, 0, 0]).all(|(byte, expected)| *byte == expected)
}
