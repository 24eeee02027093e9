//! `grit-wrapper run`: supervises a runner, and serves its clients and systemd.
//!
//! - [`run`] is the story. [`control`] has each operation once: parse, check, audit, send. [`status`] makes the status.
//! - [`serve`] has the addresses, the rights of the peers, gRPC and HTTP.
//! - [`host`] has the signals, systemd and the log.

pub(crate) mod audit;
pub mod callback;
pub mod control;
pub mod counters;
pub mod host;
pub mod run;
pub mod serve;
pub mod settings;
mod state_path;
pub mod status;
mod tasks;
pub mod unit_files;
pub(crate) mod version;
