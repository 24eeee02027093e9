//! The wrapper: supervises one `gitlab-runner`, tells the truth about it, and stops it gracefully.
//!
//! Three floors, each of which imports only what stands below it: [`cli`] has the command line and the operator's commands, [`daemon`] is
//! `grit-wrapper run`, and [`supervise`] holds the child.
//!
//! Linux only: what it promises about processes rests on pidfds and `/proc`.
#![cfg(target_os = "linux")]

pub mod cli;
pub mod daemon;
pub mod supervise;
