//! The input of a transition, its effects, and the answer to a request.

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tokio::time::Instant;

use super::{
    callback::Callback,
    observation::Observation,
    policy::Policy,
    process::{Exit, Signal},
    state::ChildInfo,
    statistics::Counted,
    stop::{Stop, StopId},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request to start the first child. It has no effect after any other request, so that an earlier stop is kept.
    Boot,
    /// A request to start a child after a stop.
    Start,
    /// A child with this PID was started.
    Spawned(u32),
    /// No child could be started.
    SpawnFailed(Arc<str>),
    Exited(Exit),
    /// The kernel refused to send this signal.
    SignalRefused(Signal, Arc<str>),
    /// Time has passed, the child handles SIGQUIT now, or an observation has changed.
    /// [`Supervision::due`](super::state::Supervision::due) is the next instant at which time matters.
    Tick,
    /// This child has so many open job requests; 0 only if SIGQUIT cancels none to which GitLab could assign a job. `None`: it does not report them.
    JobRequests(ChildInfo, Option<u32>),
    /// A request to stop the child.
    Stop(Stop),
    /// A request to cancel a stop whose signal was not sent yet: the stop with this id, or any stop.
    Cancel(Option<StopId>),
    /// A request to pass SIGHUP on.
    Reload,
    /// A request to stop the child and then end the supervisor.
    Leave(Stop),
    /// A callback succeeded, or failed after all retries.
    CallbackFinished(Callback),
    /// The last log lines of a failed child were read, or could not be read.
    LogRead(Arc<[String]>),
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
    #[error("without --state-file the next wrapper cannot adopt the runner")]
    NoStateFile,
    #[error(
        "the wrapper is process 1 of its PID namespace, so the kernel would kill the runner and its jobs with it"
    )]
    FirstProcess,
    #[error("the state file cannot be written, so the next wrapper would not learn of the latest changes")]
    StateNotSaved,
    #[error("too many callbacks with different URLs or methods for one shutdown; the limit is {max}", max = Stop::MAX_CALLBACKS)]
    TooManyCallbacks,
}

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Spawn,
    Signal(Signal),
    Callback(Callback),
    /// Read the log of the child with this PID, started at this instant. [`Event::LogRead`] follows.
    ReadLog {
        pid: u32,
        started: Instant,
    },
    Count(Counted),
    /// The supervisor's work is done.
    Leave,
}

/// The input of one transition, and the effects so far.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) policy: &'a Policy,
    /// The child is known to catch SIGQUIT.
    pub(super) handles_quit: bool,
    pub(super) observation: Observation,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Context<'a> {
    pub(super) fn new(now: Instant, policy: &'a Policy, handles_quit: bool) -> Self {
        Self { now, policy, handles_quit, observation: Observation::default(), effects: Vec::new() }
    }

    /// The time between SIGTERM and SIGKILL.
    pub(super) fn termination_timeout(&self) -> Duration {
        self.policy.termination_timeout(self.observation.shutdown_timeout)
    }

    pub(super) fn add(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
