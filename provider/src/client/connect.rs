//! What a client opens its connections with.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use grit_ssh::{Connector, Target, TransportError, Tunnel};
use tokio::time::Instant;

use super::{error::ClientError, snapshot::Snapshot};

/// Opens tunnels to wrappers: over SSH, or in a simulation.
pub trait Connect: Send + Sync {
    /// As [`Connector::open`].
    fn open<'a>(
        &'a self,
        target: &'a Target,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Tunnel, TransportError>>;

    /// The time limit of a call.
    fn call_limit(&self) -> Duration;

    /// The result of a call, with the status if that is its result. A simulation checks what the provider does then.
    fn called(&self, _: &Target, _: Result<Option<&Snapshot>, &ClientError>) {}
}

impl Connect for Connector {
    fn open<'a>(
        &'a self,
        target: &'a Target,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Tunnel, TransportError>> {
        Self::open(self, target, deadline).boxed()
    }

    fn call_limit(&self) -> Duration {
        self.limits().call
    }
}
