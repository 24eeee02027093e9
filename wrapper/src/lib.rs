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
