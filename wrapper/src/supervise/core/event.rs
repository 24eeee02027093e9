//! The input of a transition, its effects, and the answer to a request.

use std::{sync::Arc, time::Duration};

use thiserror::Error;

use super::{
    callback::Callback,
    moment::Moment,
    observation::{Observation, RequestsCancelled, RequestsRead},
    policy::Policy,
    state::ChildInfo,
    stop::{EndedStop, Stop, StopId},
};
use crate::supervise::process::{Exit, Signal};

/// Everything that happens to a supervision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request to start the first child. It has no effect after any other request, so that an earlier stop is kept.
    Boot,
    /// A request to start a child after a stop.
    Start,
    /// This process is the child now.
    Spawned(ChildInfo),
    /// No child could be started.
    SpawnFailed(Arc<str>),
    Exited(Exit),
    /// systemd has started this process.
    Appeared(ChildInfo),
    /// systemd does not restart the child that has exited, or has none to start.
    NotRestarted,
    /// This request, after [`Effect::Look`] has found no child.
    Looked(Box<Self>),
    /// The signal of an effect was sent.
    SignalSent(Signal),
    /// The kernel refused to send this signal.
    SignalRefused(Signal, Arc<str>),
    /// Time has passed.
    /// [`Supervision::due`](super::state::Supervision::due) is the next instant at which time matters.
    Tick,
    /// A probe of this child has shown this.
    Observed(ChildInfo, Observation),
    /// A read of this child's metrics has shown its job requests.
    JobRequests(ChildInfo, RequestsRead),
    /// Reads after SIGQUIT have shown the job requests that this child has cancelled.
    RequestsCancelled(ChildInfo, RequestsCancelled),
    /// A request to stop the child.
    Stop(Stop),
    /// A request to cancel a stop whose signal was not sent yet.
    Cancel(Cancel),
    /// A request to pass SIGHUP on.
    Reload,
    /// A request to stop the child and then end the supervisor.
    Leave(Stop),
    /// A callback succeeded, or failed after all retries.
    CallbackFinished(Callback),
    /// The last error in the log of the failed child.
    LogRead(Arc<str>),
    /// The state file has this state, or could not be written for this reason.
    Saved(Option<Arc<str>>),
}

impl Event {
    /// Whether it is a request of a client to stop the child, after which only a client can start another one.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Self::Stop(stop) | Self::Leave(stop) if stop.id != StopId::Signal)
    }
}

/// A request to cancel a stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancel {
    /// `None`: any stop.
    pub id: Option<StopId>,
    /// The user and the transport of the client, as text.
    pub by: Arc<str>,
}

/// The answer to an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The request changes nothing: its effect was there before.
    Already,
    /// The stop joined the stop with this id, which was in progress.
    Joined(StopId),
}

impl Answer {
    pub fn joined_id(&self) -> Option<String> {
        match self {
            Self::Done | Self::Already => None,
            Self::Joined(id) => Some(id.to_string()),
        }
    }
}

/// Why a request was rejected. Nothing has changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("the runner is being started; retry")]
    Starting,
    #[error("the runner is stopping; start it after it has exited")]
    Stopping,
    #[error("the wrapper is exiting")]
    Leaving,
    #[error("no drain is in progress")]
    NotStopping,
    #[error("another drain is in progress")]
    OtherStop,
    #[error(
        "SIGQUIT was already sent to the runner, so the drain cannot be cancelled; start the runner after \
         it has exited"
    )]
    TooLate,
    #[error("systemd does not show whether the runner runs; retry, and see the wrapper's log")]
    OwnerSilent,
    #[error("too many callbacks for one shutdown; the limit is {max}", max = Stop::MAX_CALLBACKS)]
    TooManyCallbacks,
}

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write the state to the state file, for the next wrapper.
    Save,
    /// [`Event::Spawned`] or [`Event::SpawnFailed`] follows. No other event comes before it.
    Spawn,
    /// Look whether systemd has started a child. [`Event::Appeared`] may follow, and the request again, or [`Event::Looked`] with it.
    Look(Box<Event>),
    /// [`Event::SignalSent`] or [`Event::SignalRefused`] follows.
    Signal(Signal),
    Callback(Callback),
    /// Read the log of this child. [`Event::LogRead`] may follow.
    ReadLog(ChildInfo),
    Count(EndedStop),
    /// The child has exited, at the end of this stop or without one.
    Exited(Exit, Option<Arc<Stop>>),
    /// The supervisor's work is done.
    Leave,
}

/// The input of one transition besides its event, and the effects so far.
#[derive(Debug)]
pub struct Context<'a> {
    pub now: Moment,
    pub policy: &'a Policy,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Context<'a> {
    pub fn new(now: Moment, policy: &'a Policy) -> Self {
        Self { now, policy, effects: Vec::new() }
    }

    /// The time between SIGTERM and SIGKILL for a child with this limit for its cleanup.
    pub(super) fn termination_timeout(&self, observed: Observation) -> Duration {
        self.policy.termination_timeout(observed.shutdown_timeout)
    }

    pub(super) fn add(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
