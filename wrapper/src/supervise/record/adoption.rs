//! From the state file of an earlier wrapper to the state of this one.

use std::{io, path::Path, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{
    format::{Saved, SavedChild, SavedStop},
    times::{self, Times},
};
use crate::supervise::log_key as key;
use crate::supervise::{
    blocking,
    callback_queue::PendingCallback,
    clock::Clocks,
    end::End,
    observation::Observation,
    policy::{Leftovers, Policy},
    process::{self, Child, CommandLine, Exit, Program, cgroup},
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Mode, StopId, StopOutcome},
};

/// How long a child at the exec barrier may take to exit after its wrapper, or to become the runner.
const BARRIER_LIMIT: Duration = Duration::from_secs(10);

/// Timeout of reading the program of a process.
const PROGRAM_LIMIT: Duration = Duration::from_secs(1);

/// What an earlier wrapper left.
#[derive(Debug)]
pub struct Found {
    pub pending: Vec<PendingCallback>,
    pub supervision: Supervision,
    pub child: Option<Child>,
}

impl Saved {
    /// For a wrapper that has found no state file: the runner in a cgroup that an earlier wrapper with this state file made. What that wrapper knew
    /// is lost: a drain, for example, must be requested again.
    pub fn of_cgroup(state_file: &Path) -> Option<Self> {
        let identity = cgroup::runner_in(&cgroup::names_for(Some(state_file)))?;
        warn!(
            { key::PID } = identity.pid,
            { key::PATH } = %state_file.display(),
            "the state file was removed while the runner of an earlier wrapper was running; a drain of it must \
             be requested again"
        );
        let (clocks, now) = (Clocks::now(), Instant::now());
        let started = process::started_at(identity.pid).map_or_else(
            || times::millis(&clocks, now),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of this century")]
            |seconds| (seconds * 1000.0) as u64,
        );
        let mut saved = Self::nothing();
        saved.child = Some(SavedChild { identity, barrier: None, started });
        Some(saved)
    }

    /// Finds the child, and restores the state. Waits for a child that was just being started.
    /// After an error, it is unknown whether the child is running.
    pub async fn find(self, policy: &Policy, command: &CommandLine) -> io::Result<Found> {
        let child = match &self.child {
            Some(child) if child.is_runner().await? => Child::adopt(&child.identity)?,
            _ => None,
        };
        if let (Some(saved), Some(_)) = (&self.child, &child)
            && let Some(origin) = &saved.identity.origin
            && !origin.command.is_empty()
            && origin.command != command.words()
        {
            warn!(
                { key::PID } = saved.identity.pid,
                "the adopted runner keeps running with the command of the previous wrapper, but is probed \
                 with the settings of the new command. To use the new command, drain and start the runner"
            );
        }
        if let (Some(saved), None) = (&self.child, &child) {
            // The earlier wrapper was killed before it could do this, or the runner exited while no wrapper was running.
            let forceful = self.stop.as_ref().is_some_and(|stop| stop.forceful);
            let leftovers = if forceful { Leftovers::Kill } else { policy.leftovers };
            Child::handle_leftovers(&saved.identity, leftovers).await;
        }
        let times = Times::new(self.clock.as_ref(), Clocks::now(), Instant::now());
        let pending = self.pending.iter().filter_map(|pending| pending.restore(&times)).collect();
        let supervision = self.into_supervision(child.is_some(), &times, policy);
        Ok(Found { pending, supervision, child })
    }

    /// The restored state; `is_running`: the child is running.
    fn into_supervision(self, is_running: bool, times: &Times, policy: &Policy) -> Supervision {
        let is_for_shutdown = self.stop.as_ref().is_some_and(|stop| stop.stop_id() == StopId::Signal);
        let last_stop = self.last_stop.as_ref().and_then(|saved| saved.restore_past(times)).map(Arc::new);
        let state = match (self.child, self.stop) {
            (Some(saved), stop) if is_running => {
                let info = ChildInfo { pid: saved.identity.pid, started: times.past(saved.started) };
                info!(
                    { key::PID } = info.pid,
                    { key::ID } = stop.as_ref().map(|stop| &stop.id),
                    "adopting the runner of the previous wrapper"
                );
                adopted(times, info, stop, policy)
            }
            // The stop was for the shutdown of the earlier wrapper, which has ended.
            (_, Some(_)) if is_for_shutdown => State::Idle,
            (saved, Some(stop)) => {
                info!(
                    { key::ID } = stop.id,
                    "runner was stopped on request before this wrapper started; not starting it. To start it: \
                     `grit-wrapper start`"
                );
                let unseen = saved.map_or(End::NeverStarted, |saved| End::Exited {
                    pid: saved.identity.pid,
                    exit: Exit::Unknown,
                    killed: false,
                });
                let end = stop.end.clone().unwrap_or(unseen);
                let mut stop = stop.restore(times);
                let outcome = StopOutcome::of(&stop, &end, Observation::default());
                stop.outcome.get_or_insert(outcome);
                State::Exited { end, stop: Some(stop) }
            }
            (saved, None) => {
                if saved.is_some() {
                    warn!("the previous wrapper's runner has exited; starting a new runner");
                }
                State::Idle
            }
        };
        let started = state.child().filter(|_| self.failures > 0).map(|child| child.started);
        Supervision {
            state,
            revive: is_for_shutdown && is_running,
            restarts: self.restarts,
            failures: self.failures,
            restarted: self.restarted && is_running,
            stable_at: started.map(|started| started + policy.restart.stable_after),
            last_stop,
            ..Supervision::default()
        }
    }
}

fn adopted(times: &Times, child: ChildInfo, stop: Option<SavedStop>, policy: &Policy) -> State {
    let Some(saved) = stop else { return State::Running { child, reload: None } };
    let stop = saved.restore(times);
    let phase = match saved.kill_at {
        // SIGTERM was sent, or was about to be sent. It is not sent again, and SIGKILL follows in any case.
        Some(at) => {
            Phase::Terminating { until: times.moment(at).min(times.now + policy.max_termination_timeout()) }
        }
        // SIGTERM is saved before it is sent, so that it was not sent. SIGQUIT may have been sent just before.
        None if stop.mode == Mode::Forceful => Phase::Spacing { until: times.now + policy.signal_spacing },
        // SIGQUIT may have been sent. A second one is harmless; without one the runner would never exit.
        None => Phase::Holding {
            until: times.now.max(child.started + policy.start_grace) + policy.handler_wait,
            quit_sent_at: saved.quit_sent_at.map(|at| times.past(at)),
        },
    };
    State::Stopping { child, stop, phase }
}

/// The program of a process. The program of a runner can be a file of a file system that does not respond; the barrier's is the wrapper's.
async fn program_of(pid: u32) -> io::Result<Program> {
    blocking::run("program", PROGRAM_LIMIT, move || Program::of(pid)).await
}

impl SavedChild {
    /// Whether this process is a running runner. A child at the exec barrier exits or becomes the runner soon.
    async fn is_runner(&self) -> io::Result<bool> {
        let give_up = Instant::now() + BARRIER_LIMIT;
        while let Some(barrier) = self.barrier
            && self.identity.is_alive()?
            && program_of(self.identity.pid).await.ok() == Some(barrier)
            && Instant::now() < give_up
        {
            sleep(Duration::from_millis(5)).await;
        }
        self.identity.is_alive()
    }
}

/// The state of the wrapper after the one with this state, through the text of the file.
#[cfg(test)]
pub(crate) fn handed_over(
    before: &Supervision,
    child: Option<&process::Identity>,
    is_running: bool,
    now: Instant,
    policy: &Policy,
) -> Supervision {
    let clocks = Clocks::at(now);
    let text = serde_json::to_vec(&Saved::new(&clocks, now, before, child, &[])).unwrap();
    let saved = Saved::parse(&text).unwrap();
    let times = Times::new(saved.clock.as_ref(), clocks, now);
    saved.into_supervision(is_running, &times, policy)
}
