//! The client of a wrapper.
//!
//! Only this module uses tonic's generated types.

mod channel;
mod connection;
mod error;
mod snapshot;
mod upstream;
mod v1;
mod wrapper;

pub use connection::WrapperClient;
pub use error::ClientError;
#[cfg(test)]
pub(crate) use snapshot::{Detail, DrainInfo};
pub use snapshot::{DrainRequest, RunnerStatus, ShutdownCallback, Snapshot, StatusReport};
pub(crate) use snapshot::{Level, RunnerEvidence, Start};
pub use wrapper::Wrapper;
