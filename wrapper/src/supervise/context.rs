//! What a transition reads, and the effects that it adds.

use tokio::time::Instant;

use super::{callback::Callback, policy::Policy, process::Signal, statistics::Counted};

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Spawn,
    Signal(Signal),
    KillGroup,
    Callback(Callback),
    /// Read the log of the child with this PID, started at this instant. [`Event::LogRead`](super::event::Event::LogRead) follows.
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
    /// The child is known to catch or ignore SIGQUIT.
    pub(super) handles_quit: bool,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Context<'a> {
    pub(super) fn new(now: Instant, policy: &'a Policy, handles_quit: bool) -> Self {
        Self { now, policy, handles_quit, effects: Vec::new() }
    }

    pub(super) fn add(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
