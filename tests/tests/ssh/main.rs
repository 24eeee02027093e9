//! How the provider reaches a wrapper, over the real sshd. One binary, so that all of it runs side by side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod commands;
mod contract;
mod credentials;
mod embedded;
mod fake;
mod faults;
mod guide;
mod hops;
mod own_wrapper;
mod phases;
mod recipes;
mod russh_log;
mod secrets;
mod sessions;
mod stub;
mod time;
mod trust;
mod ways;
mod world;
