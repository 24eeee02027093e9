//! The texts of all diagnostics: from typed errors to sentences for users.
//!
//! A summary is a short title. A detail contains what happened, with actual values, then the next step. Its last line is `Code: …`, a
//! stable identifier for pipelines. A manager is always named by its key in the map.

mod channel;
mod code;
mod command;
mod connection;
pub(crate) mod deployment;
pub(crate) mod drain;
mod failure;
pub(crate) mod health;
mod host_key;
mod login;
mod phrases;
pub(crate) mod plan;
pub(crate) mod protocol;
pub(crate) mod receipt;
#[cfg(test)]
mod samples;
pub(crate) mod shutdown;
pub(crate) mod start_drains;
pub(crate) mod values;
mod wrapper;

pub(crate) use connection::cause;
pub use connection::explain;
pub(crate) use failure::{failure, invalid_manager};
