//! The pure core of the supervisor: everything that happens is an [`Event`], everything that is done is an [`Effect`], and
//! [`Supervision::on`] decides. A transition reads no clock, process, file or channel, so that a simulation can drive it on a virtual clock.
//!
//! - [`state`] has the states, each with its data. [`transition`] and [`stopping`] have the transitions, [`continuation`] what the next wrapper makes of a
//!   state. A rule about stopping a child is in [`stopping`].
//! - [`stop`] has the request to stop and its outcome, [`policy`] the durations and choices.

mod callback;
mod continuation;
mod end;
mod event;
mod moment;
mod observation;
mod policy;
mod state;
mod stop;
mod stopping;
mod transition;

#[cfg(test)]
mod lost_results_tests;
#[cfg(test)]
mod refused_signal_tests;
#[cfg(test)]
mod request_gap_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod transition_tests;
#[cfg(test)]
mod unit_tests;

pub(crate) use self::moment::{monotonic, use_virtual_wall_clock};
pub use self::{
    callback::{Callback, CallbackError},
    end::End,
    event::{Answer, Cancel, Context, Effect, Event, Refusal},
    moment::Moment,
    observation::{Observation, RequestsCancelled, RequestsRead},
    policy::Policy,
    state::{ChildInfo, PastStop, Phase, Restarts, RunnerState, State, Supervision},
    stop::{Cancelled, EndedStop, Mode, Stop, StopId, StopOutcome},
    transition::Step,
};
