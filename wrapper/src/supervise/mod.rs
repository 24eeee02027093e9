//! The supervisor: one child, one task that has it, and one transition table that decides.
//!
//! - [`state`] has the states, [`event`] the events, and [`table`] the transitions and their effects. They are pure: no clock, no process, no
//!   channel. [`stop_transitions`] and [`restart`] are parts of the table. [`stop`] has the request to stop, [`statistics`] what the metrics count.
//! - [`task`] has the child. It turns its exit, requests and time into events, and performs the effects, one at a time.
//! - [`record`] is the state file for the next wrapper, which adopts the child.
//! - [`handle`] has the requests of the other parts of the program.
//!
//! This module does not use tonic, hyper, clap or environment variables. `daemon` and `cli` use this module, and never the other way round.

mod blocking;
pub mod callback;
mod callback_queue;
pub(crate) mod clock;
mod end;
mod event;
mod handle;
pub mod journal;
pub(crate) mod lock_wait;
pub mod log_key;
mod observation;
mod observer;
mod policy;
pub mod process;
pub mod record;
mod restart;
mod state;
mod statistics;
mod stop;
mod stop_transitions;
mod table;
mod task;

#[cfg(test)]
mod random_event;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod refused_signal_tests;
#[cfg(test)]
mod request_gap_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod transition_tests;

pub use self::{
    callback_queue::{Callbacks, Completion, PendingCallback},
    end::End,
    event::{Answer, Refusal},
    handle::{Handle, HandleError},
    observation::Observation,
    policy::{Leftovers, Policy, Restart, RestartWhen},
    state::{ChildInfo, LastLines, PastStop, Phase, RefusedSignal, RunnerState, State, Supervision},
    statistics::{Counted, EndedStop, ExitReason},
    stop::{Mode, Stop, StopId, StopOutcome},
    task::{Outcome, Task},
};
