//! The supervisor: one child, one task that has it, and one pure core that decides.
//!
//! - [`core`] decides: states, events, transitions and their effects.
//! - [`owner`] owns the process of the child: this wrapper as its parent, or systemd through a unit.
//! - [`task`] has the owner. It turns news of the child, requests and time into events, and performs the effects, one at a time.
//! - [`process`] starts and finds processes. [`journal`] reads the log of the child.
//! - [`record`] is the state file for the next wrapper, which continues.
//! - [`handle`] has the requests of the other parts of the program, and [`surroundings`] what the supervisor needs of them.
//!
//! This module does not use tonic, hyper, clap or settings from environment variables. `daemon` and `cli` use this module, and never the other way round.

use std::time::Duration;

pub(crate) mod blocking;
pub mod core;
mod handle;
pub mod journal;
pub(crate) mod lock_wait;
pub mod owner;
pub mod process;
pub mod record;
mod surroundings;
mod task;

#[cfg(test)]
mod task_tests;

pub use self::{
    core::*,
    handle::{Handle, HandleError},
    owner::{Owner, Unit, UnitName},
    surroundings::{Completion, Surroundings},
    task::{Observer, Task},
};

/// The longest time in which the supervisor handles no request: it learns how a runner ended, ends the processes that are left of it, and starts the
/// next one.
pub(crate) const LONGEST_STEP: Duration = owner::LONGEST_EXIT.saturating_add(owner::LONGEST_START);
