//! The supervisor: one child, one task that owns it, one table that decides.
//!
//! - [`state`] has the states, and [`table`] what a moment's state and one event lead to, and what has to be done about it. It is pure: no
//!   clock, no process, no channel. Whatever must never happen is ruled out there and tested there. [`stop`] and [`restart`] are parts of
//!   it: how a child is ended, and what follows an end that nobody asked for.
//! - [`task`] owns the child. It turns the child's end, commands and the passing of time into events, and effects into deeds, one
//!   at a time; so nobody else can change the state between a decision and its deed. [`state_writer`] writes the state file for it, and
//!   [`pending_callback`] is what makes a stop's callbacks.
//! - [`drain_outcome`] is what a stop came to. [`statistics`] tells what happened between two states, for the metrics.
//! - [`handle`] is how the rest of the program talks to that task; [`command`] is what may be said.
//!
//! It is not a process manager: one child, and no knowledge of what the child does beyond its signals.

pub mod callback;
pub(crate) mod clock;
pub mod command;
mod drain_outcome;
mod handle;
pub(crate) mod lock;
pub(crate) mod lock_wait;
pub mod output;
mod pending_callback;
mod policy;
pub mod process;
mod restart;
mod state;
pub mod state_file;
mod state_writer;
mod statistics;
mod stop;
mod table;
mod task;
pub(crate) mod trusted_dir;

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod task_tests;

pub use self::{
    command::{Answer, Mode, Refusal, Stop},
    drain_outcome::DrainOutcome,
    handle::{Handle, HandleError},
    pending_callback::{Callbacks, Made, Owed},
    policy::{Leftovers, Policy, Restart, RestartWhen},
    state::{ChildInfo, End, LastLines, PastStop, Phase, State, Supervision},
    state_writer::Keep,
    statistics::{DrainResult, Drained, ExitReason, Happened},
    task::{Outcome, Task},
};
