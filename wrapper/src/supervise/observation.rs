//! What other parts of the program, and the log of the child, show of the child.

use std::time::Duration;

use tracing::warn;

use super::{
    process::{Exit, Spawner},
    state::{ChildInfo, State},
    stop::Mode,
};
use crate::supervise::log_key as key;

/// GitLab Runner logs this when SIGTERM or SIGINT makes its shutdown forceful.
const FORCEFUL_SHUTDOWN: &str = "Starting forceful shutdown";

/// The last observation of the child. It may be some seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The child aborts its jobs although no forceful stop was requested: another process sent SIGTERM or SIGINT to it.
    pub aborts_jobs: bool,
    /// The child's own limit for its cleanup after SIGTERM, if it is known.
    pub shutdown_timeout: Option<Duration>,
}

/// Collects the observations.
pub(super) struct Observer {
    observe: Box<dyn Fn(ChildInfo) -> Observation + Send>,
    /// The child whose jobs were aborted according to its log.
    logged_abort: Option<ChildInfo>,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(|_| Observation::default())
    }
}

impl Observer {
    pub(super) fn new(observe: impl Fn(ChildInfo) -> Observation + Send + 'static) -> Self {
        Self { observe: Box::new(observe), logged_abort: None }
    }

    pub(super) fn observation(&self, state: &State) -> Observation {
        let Some(child) = state.child() else { return Observation::default() };
        let seen = (self.observe)(child);
        Observation { aborts_jobs: seen.aborts_jobs || self.logged_abort == Some(child), ..seen }
    }

    /// The child has exited. After a graceful stop, its exit code does not show whether it aborted its jobs. Its log may; this waits for the log
    /// for at most some seconds.
    pub(super) async fn exited(&mut self, state: &State, exit: Exit, spawner: &Spawner) {
        let State::Stopping { child, stop, .. } = state else { return };
        if stop.mode == Mode::Forceful || !exit.is_success() {
            return;
        }
        if !self.observation(state).aborts_jobs {
            let is_logged = spawner.log_contains(FORCEFUL_SHUTDOWN, child.pid, stop.requested_at).await;
            self.logged_abort = is_logged.then_some(*child);
        }
        if self.observation(state).aborts_jobs {
            warn!(
                { key::PID } = child.pid,
                "the runner aborted its jobs during the drain: another process sent SIGTERM or SIGINT to it"
            );
        }
    }
}
