//! Collects the observations of a child.

use tracing::warn;

use super::{
    journal::Journal,
    observation::Observation,
    process::Exit,
    state::{ChildInfo, State},
    stop::Mode,
};
use crate::supervise::log_key as key;

/// GitLab Runner logs this when SIGTERM or SIGINT makes its shutdown forceful.
const FORCEFUL_SHUTDOWN: &str = "Starting forceful shutdown";

/// GitLab Runner logs this when it gives up reporting the end of a job to GitLab: `Job trace termination "Success" failed`, as an error.
const RESULT_LOST: &str = "Job trace termination";

/// Collects the observations of one child after the other.
pub(super) struct Observer {
    pub(super) observe: Box<dyn Fn(ChildInfo) -> Observation + Send>,
    /// Where the child logs, if that can be read back.
    pub(super) journal: Option<Journal>,
    /// A child that has exited, and what its log shows.
    logged: Option<(ChildInfo, Logged)>,
}

/// What the log of a child shows of a graceful stop.
#[derive(Clone, Copy, Default)]
struct Logged {
    abort: bool,
    lost_result: bool,
    unreadable: bool,
}

impl Default for Observer {
    fn default() -> Self {
        Self { observe: Box::new(|_| Observation::default()), journal: None, logged: None }
    }
}

impl Observer {
    pub(super) fn observation(&self, state: &State) -> Observation {
        let Some(child) = state.child() else { return Observation::default() };
        let seen = (self.observe)(child);
        let logged = self.logged.filter(|(of, _)| *of == child).map(|(_, logged)| logged).unwrap_or_default();
        Observation {
            aborts_jobs: seen.aborts_jobs
                || logged.abort
                || state.stop().is_some_and(|stop| stop.aborts_jobs),
            lost_results: logged.lost_result,
            log_unreadable: logged.unreadable,
            ..seen
        }
    }

    /// The child has exited. After a graceful stop, its exit code does not show whether it aborted its jobs, or could not report their end. Its log
    /// may; this waits for the log for at most some seconds.
    pub(super) async fn exited(&mut self, state: &State, exit: Exit) {
        let State::Stopping { child, stop, .. } = state else { return };
        if stop.mode == Mode::Forceful || !exit.is_success() {
            return;
        }
        if !self.observation(state).aborts_jobs
            && let Some(journal) = &self.journal
        {
            let texts = [FORCEFUL_SHUTDOWN, RESULT_LOST];
            let found = journal.has_messages(texts, child.pid, stop.requested_at, stop.requested_wall).await;
            let logged = match found {
                Ok([abort, lost_result]) => Logged { abort, lost_result, unreadable: false },
                Err(error) => {
                    warn!(
                        { key::ERROR } = %error,
                        { key::PID } = child.pid,
                        "cannot search the runner's log for aborted jobs and lost results of jobs during the drain; its outcome is unknown"
                    );
                    Logged { unreadable: true, ..Logged::default() }
                }
            };
            self.logged = Some((*child, logged));
        }
        let observed = self.observation(state);
        if observed.aborts_jobs {
            warn!(
                { key::PID } = child.pid,
                "the runner aborted its jobs during the drain: another process sent SIGTERM or SIGINT to it"
            );
        } else if observed.lost_results {
            warn!(
                { key::PID } = child.pid,
                "the runner gave up reporting the end of at least one job to GitLab during the drain"
            );
        }
    }
}
