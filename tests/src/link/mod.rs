//! Links to a host that can be cut: without a packet that says so, as a network does that loses its way, and put back again.

mod namespace;
mod relay;

pub use namespace::Namespace;
pub use relay::Relay;
