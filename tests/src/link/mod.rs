//! Links to a host that can be cut without a closing packet, as in a network outage, and restored.

mod namespace;
mod relay;

pub use namespace::Namespace;
pub use relay::Relay;
