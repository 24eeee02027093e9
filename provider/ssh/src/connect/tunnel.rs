//! A tunnel to a wrapper: a byte stream and its monitor.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    error::{Cause, TransportError},
    route::{Phase, Route},
    stream::{BoxStream, Transcript},
};

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

    /// The error of a call that timed out, if it is not an error of the wrapper.
    fn no_answer(&self, _limit: Duration) -> Option<TransportError> {
        None
    }

    /// Additional time for a call while the tunnel is still being opened.
    fn extra_time(&self) -> Duration {
        Duration::ZERO
    }

    fn transcript(&self) -> &Transcript;

    fn route(&self) -> &Route;
}

/// Whether the wrapper closed an open tunnel, or is not a gRPC server.
pub(crate) fn wrapper_side(transcript: &Transcript, route: &Route) -> Option<TransportError> {
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
