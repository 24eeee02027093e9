//! The network between the provider and the hosts.

pub(super) mod errors;
mod failure;
mod line;

use std::time::Duration;

pub(super) use failure::Failure;
pub(super) use line::{LateRequest, Line, Request};
use tokio::time::Instant;

use super::world::Inner;

/// What is wrong with the network to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing answers.
    Silent,
    /// The request arrives, and the connection breaks before the response.
    CutAfterRequest,
    /// The request arrives, and the response never does.
    NoResponse,
    /// The connection breaks, and the request arrives later: after later ones of other connections.
    Late,
    /// A request arrives, and a second copy of it later, from an earlier connection.
    Duplicated,
    /// The stream of changes is open, and reports nothing.
    HalfOpen,
    Slow,
    /// Each call has this error.
    Fails(Failure),
}

impl Fault {
    pub(super) const OTHERS: [Self; 7] = [
        Self::Silent,
        Self::CutAfterRequest,
        Self::NoResponse,
        Self::Late,
        Self::Duplicated,
        Self::HalfOpen,
        Self::Slow,
    ];
}

impl Inner {
    pub(super) fn fault(&self, address: &str) -> Option<Fault> {
        self.faults.get(address).filter(|(_, end)| Instant::now() < *end).map(|(fault, _)| *fault)
    }

    fn latency(&mut self, address: &str) -> Duration {
        match self.fault(address) {
            Some(Fault::Slow) => self.random.millis(500, 5_000),
            _ => self.random.millis(1, 40),
        }
    }
}
