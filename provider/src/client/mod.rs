//! The client of a wrapper.
//!
//! Only this module uses tonic's generated types.

mod any;
mod channel;
mod connect;
mod contacts;
mod drain_info;
mod error;
mod level;
mod limits;
mod request;
mod snapshot;
mod wrapper;
mod wrapper_client;

pub(crate) use any::Client;
pub use any::Clients;
pub use connect::Connect;
pub(crate) use contacts::{Contact, Contacts, Offer, Waiting};
pub(crate) use drain_info::{CancelledDrain, DrainInfo};
pub use error::ClientError;
#[cfg(test)]
pub(crate) use error::example_route;
pub(crate) use level::Level;
pub use request::DrainRequest;
pub(crate) use request::{MAX_DRAIN_ID, MAX_REASON, Start};
pub(crate) use snapshot::{Detail, Registration, RunnerEvidence};
pub use snapshot::{RunnerStatus, Snapshot, StatusReport};
pub use wrapper::Wrapper;
pub use wrapper_client::WrapperClient;
