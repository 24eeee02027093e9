//! The supervisor: one child, one task that owns it, one table that decides.
//!
//! - [`state`] has the states, and [`table`] what a moment's state and one event lead to, and what has to be done about it. It is pure: no
//!   clock, no process, no channel. Whatever must never happen is ruled out there and tested there. [`stop`] and [`restart`] are parts of
//!   it: how a child is ended, and what follows an end that nobody asked for.
//! - [`task`] owns the child. It turns the child's end, commands and the passing of time into events, and effects into deeds, one
//!   at a time; so nobody else can change the state between a decision and its deed. [`keeper`] writes the state file for it, and
//!   [`callbacks`] is what makes a stop's callbacks.
//! - [`outcome`] is what a stop came to. [`tally`] tells what happened between two states, for the metrics.
//! - [`handle`] is how the rest of the program talks to that task; [`command`] is what may be said.
//!
//! It is not a process manager: one child, and no knowledge of what the child does beyond its signals.

mod callbacks;
pub mod command;
mod handle;
mod keeper;
mod outcome;
mod policy;
mod restart;
mod state;
mod stop;
mod table;
mod tally;
mod task;

#[cfg(test)]
mod lives_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod task_tests;

pub use self::{
    callbacks::{Callbacks, Made, Owed},
    command::{Answer, Mode, Refusal, Stop},
    handle::{Handle, HandleError},
    keeper::Keep,
    outcome::DrainOutcome,
    policy::{Leftovers, Policy, Restart, RestartWhen},
    state::{ChildInfo, End, LastLines, PastStop, Phase, State, Supervision},
    tally::{DrainResult, Drained, ExitReason, Happened},
    task::{Outcome, Task},
};
