//! Counters of events since this wrapper was started.
//!
//! The modules of the daemon count their events here, and [`crate::daemon::serve::http`] exports the counters. They begin at 0 with each wrapper, as
//! Prometheus expects: `rate` and `increase` detect the reset. The number of restarts of the runner is in the state file.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

use crate::supervise::{EndedStop, Mode, StopOutcome};

/// All counters of one wrapper.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) since: Since,
    drains: [[Counter; StopOutcome::ALL.len() + 1]; 2],
    /// Calls without permission.
    pub(crate) denied: Counter,
    /// By [`CallbackResult`].
    pub(crate) attempts: [Counter; CallbackResult::ALL.len()],
}

/// A number of events.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Result of one attempt to send a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackResult {
    Success,
    /// The attempt failed, and another one follows.
    Failure,
    /// The last attempt failed.
    Exhausted,
}

impl CallbackResult {
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::Exhausted];

    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Start time of the counters.
#[derive(Debug)]
pub(crate) struct Since(pub(crate) SystemTime);

impl Default for Since {
    fn default() -> Self {
        Self(SystemTime::now())
    }
}

impl Counters {
    pub(crate) fn count(&self, EndedStop { mode, outcome }: EndedStop) {
        self.drains(mode, outcome).add();
    }

    /// The drains with this outcome; `None` for cancelled drains.
    pub(crate) fn drains(&self, mode: Mode, outcome: Option<StopOutcome>) -> &Counter {
        let outcome = outcome.map_or(StopOutcome::ALL.len(), |outcome| outcome as usize);
        &self.drains[mode as usize][outcome]
    }
}
