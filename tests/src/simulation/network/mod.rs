//! The network between the provider and the hosts.

pub(super) mod errors;
mod failure;
mod line;
mod proxy;
mod wire;

use std::time::Duration;

pub(super) use failure::Failure;
pub(super) use line::Lines;
use tokio::time::Instant;
pub(super) use wire::Wire;

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
    /// The stream of changes is open, and reports nothing.
    HalfOpen,
    Slow,
    /// Each call has this error.
    Fails(Failure),
}

/// SSH notices after this time that nothing answers: three keepalives.
const KEEPALIVE: Duration = Duration::from_secs(45);

/// The number of the first connection: no user of a host has it.
const FIRST: u32 = 1_000_000;

impl Fault {
    pub(super) const OTHERS: [Self; 6] =
        [Self::Silent, Self::CutAfterRequest, Self::NoResponse, Self::Late, Self::HalfOpen, Self::Slow];
}

impl Inner {
    pub(super) fn fault(&self, address: &str) -> Option<Fault> {
        self.fault_until(address).map(|(fault, _)| fault)
    }

    /// The fault, and its end.
    fn fault_until(&self, address: &str) -> Option<(Fault, Instant)> {
        self.faults.get(address).filter(|(_, end)| Instant::now() < *end).copied()
    }

    /// The number of a new connection.
    fn next_connection(&mut self) -> u32 {
        FIRST + u32::try_from(self.connections.len()).unwrap_or_default()
    }

    fn latency(&mut self, address: &str) -> Duration {
        match self.fault(address) {
            Some(Fault::Slow) => self.random.millis(500, 5_000),
            _ => self.random.millis(1, 40),
        }
    }
}
