//! The supervisor: one child, one task that has it, and one pure core that decides.
//!
//! - [`core`] decides: states, events, transitions and their effects.
//! - [`task`] has the child. It turns its exit, requests and time into events, and performs the effects, one at a time.
//! - [`process`] starts, signals, adopts and finds processes. [`journal`] reads the log of the child.
//! - [`record`] is the state file for the next wrapper, which adopts the child.
//! - [`handle`] has the requests of the other parts of the program, and [`surroundings`] what the supervisor needs of them.
//!
//! This module does not use tonic, hyper, clap or settings from environment variables. `daemon` and `cli` use this module, and never the other way round.

use std::time::Duration;

pub(crate) mod blocking;
pub mod core;
mod handle;
pub mod journal;
pub(crate) mod lock_wait;
pub mod process;
pub mod record;
mod surroundings;
mod task;

#[cfg(test)]
mod task_tests;

pub use self::{
    core::*,
    handle::{Handle, HandleError, Paused},
    surroundings::{Completion, Surroundings},
    task::Task,
};

/// The longest time in which the supervisor handles no request: it reaps a runner, ends the processes that are left of that, and starts the next one.
pub(crate) const LONGEST_STEP: Duration =
    process::REAP_LIMIT.saturating_add(process::KILL_LIMIT).saturating_add(process::EXEC_LIMIT);
