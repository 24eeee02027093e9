//! Connections of the provider to a wrapper over the real sshd. One binary, so that all tests run in parallel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod commands;
mod contract;
mod credentials;
mod deploy_user;
mod embedded;
mod faults;
mod fixture;
mod grit_wrapper;
mod guide;
mod host_keys_guide;
mod jump_hosts;
mod local_routes;
mod long_drain;
mod methods;
mod phase_timeouts;
mod recipes;
mod recovery;
mod scripted_server;
mod secrets;
mod server_channels;
mod sessions;
mod stub;
mod trust;
