//! The provider.

pub mod client;
pub mod explain;
pub mod transport;
