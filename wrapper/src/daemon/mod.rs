//! `grit-wrapper run`: supervises a runner, and serves its clients and systemd.

pub mod access;
pub(crate) mod audit;
pub mod callback;
pub mod control;
pub mod counters;
pub(crate) mod duration;
pub mod grpc;
pub mod health;
pub mod http;
mod limits;
pub mod listen;
pub mod logging;
pub(crate) mod names;
pub mod run;
pub mod settings;
pub mod signals;
mod state_path;
pub mod status;
pub mod systemd;
mod tasks;
mod upgrade;
pub(crate) mod version;
pub mod visible;
