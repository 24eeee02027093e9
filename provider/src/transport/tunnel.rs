//! A tunnel to a wrapper: a byte stream, and a monitor that knows why it closed.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::transport::{
    error::{Cause, Phase, Route, TransportError},
    stream::{BoxStream, Transcript},
};

/// A stream to a wrapper, and its monitor.
pub(crate) struct Tunnel {
    pub(crate) stream: BoxStream,
    pub(crate) monitor: Arc<dyn TunnelMonitor>,
}

/// Watches a tunnel, keeps what carries it alive, and tells afterwards why it broke.
///
/// gRPC knows only that its stream has ended; the reason is with the session, the command, or in the first bytes received.
#[async_trait]
pub(crate) trait TunnelMonitor: Send + Sync {
    /// Why the tunnel broke, or none when it did not. May wait a moment for the reason to arrive.
    async fn close_reason(&self) -> Option<TransportError>;

    /// What it means that a call was not answered within its limit, where that is known better than "the wrapper does not answer".
    fn no_answer(&self, _limit: Duration) -> Option<TransportError> {
        None
    }

    /// How much longer than its limit a call may take now, because the way to the wrapper is not open yet.
    fn extra_time(&self) -> Duration {
        Duration::ZERO
    }

    /// What was received from the wrapper.
    fn transcript(&self) -> &Transcript;

    /// Where it leads.
    fn route(&self) -> &Route;
}

/// What the wrapper's side of a standing tunnel tells: that it was closed, or that it is no gRPC server.
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

/// Every HTTP/2 server begins with a SETTINGS frame on stream 0: length (3 bytes), type 4, flags, stream (4 bytes).
fn begins_http2(received: &[u8]) -> bool {
    received.iter().skip(3).zip([4, 0, 0, 0, 0, 0]).all(|(byte, expected)| *byte == expected)
}

/// What carries an SSH session: it lives as long as the session does, and can know more about its end.
#[async_trait]
pub(crate) trait ParentTransport: Send + Sync {
    /// Adds what the parent knows to an error that its session met.
    async fn enrich(&self, error: TransportError) -> TransportError;
}
