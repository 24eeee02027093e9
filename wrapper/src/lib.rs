//! grit-wrapper: starts, monitors and drains one `gitlab-runner`.
//!
//! Three layers, each of which imports only the layers below it: [`cli`] has the command line and the operator's commands, [`daemon`] is
//! `grit-wrapper run`, and [`supervise`] manages the child process.
//!
//! Linux only, because process supervision uses pidfds and `/proc`.
#![cfg(target_os = "linux")]

pub mod cli;
pub mod daemon;
pub mod supervise;

/// The function that the fuzz target `authority` in `tests/fuzz/` calls.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz {
    pub use crate::daemon::grpc::fuzz::authority;
}
