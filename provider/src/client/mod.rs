//! The client of a wrapper.
//!
//! Only this module uses tonic's generated types.

mod channel;
mod error;
mod snapshot;
mod wrapper;
mod wrapper_client;

pub use error::ClientError;
#[cfg(test)]
pub(crate) use snapshot::{Detail, DrainInfo};
pub use snapshot::{DrainRequest, RunnerStatus, ShutdownCallback, Snapshot, StatusReport};
pub(crate) use snapshot::{Level, RunnerEvidence, Start};
pub use wrapper::Wrapper;
pub use wrapper_client::WrapperClient;
