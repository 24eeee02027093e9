//! How the provider reaches a wrapper, over the real sshd. One binary, so that all of it runs side by side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod contract;
mod embedded;
mod fake;
mod faults;
mod sessions;
mod stub;
mod ways;
mod world;
