//! grit-wrapper: starts, monitors and drains one `gitlab-runner`.
//!
//! Layers, each of which imports only the layers below it: [`cli`] has the command line and the operator's commands, [`daemon`] is
//! `grit-wrapper run`, [`runner`] knows GitLab Runner and probes it, [`supervise`] manages the child process, and [`text`] formats.
//!
//! Linux only, because process supervision uses pidfds and `/proc`.
#![cfg(target_os = "linux")]

pub mod cli;
pub mod daemon;
pub mod runner;
pub mod supervise;
#[doc(hidden)]
pub mod testing;
pub mod text;
