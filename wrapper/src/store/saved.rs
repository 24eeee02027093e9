//! The form of the state file, and the way back from it.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::{
    callback::Callback,
    process::{Exit, Identity, LinuxChild, Program},
    signals,
    supervisor::{ChildInfo, End, Mode, Phase, Policy, State, Stop, Supervision},
    wall,
};

/// How long a gate may take to see that its wrapper is gone, or to become the runner.
const GATE_LIMIT: Duration = Duration::from_secs(10);

/// What is kept. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Of this form. Another one is not understood.
    version: Version,
    child: Option<SavedChild>,
    stop: Option<SavedStop>,
    restarts: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    #[serde(rename = "1")]
    One,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedChild {
    identity: Identity,
    /// The program of its gate, while it waits there.
    gate: Option<Program>,
    started: u64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedStop {
    id: String,
    reason: String,
    forceful: bool,
    asked: u64,
    deadline: Option<u64>,
    callbacks: Vec<SavedCallback>,
    called: Vec<SavedCallback>,
    /// When the group is killed; there once SIGTERM was sent.
    kill_at: Option<u64>,
    /// How the child had ended, when it had.
    end: Option<SavedEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SavedEnd {
    NeverStarted,
    SpawnFailed(String),
    Exited { pid: u32, exit: Exit, killed: bool },
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedCallback {
    url: String,
    method: String,
    headers: HashMap<String, String>,
}

/// What an earlier wrapper left, as the supervisor takes it up.
#[derive(Debug)]
pub struct Found {
    pub supervision: Supervision,
    pub child: Option<LinuxChild>,
}

impl std::fmt::Debug for SavedStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedStop")
            .field("id", &self.id)
            .field("forceful", &self.forceful)
            .finish_non_exhaustive()
    }
}

impl Saved {
    pub(super) fn new(supervision: &Supervision, child: Option<&Identity>) -> Self {
        let state = &supervision.state;
        let gate = matches!(state, State::Starting { .. })
            .then(|| child.and_then(|child| Program::of(child.pid).ok()))
            .flatten();
        let started = state.child().map_or_else(SystemTime::now, |child| wall::time(child.started));
        Self {
            version: Version::One,
            child: child.map(|identity| SavedChild {
                identity: identity.clone(),
                gate,
                started: millis(started),
            }),
            stop: state.stop().map(|stop| SavedStop::new(state, stop)),
            restarts: supervision.restarts,
            failures: supervision.failures,
        }
    }

    /// Looks for the child, and makes a state of what was kept. Waits, for moments, for a child that was just being made.
    ///
    /// # Errors
    ///
    /// When it cannot be told whether the child lives.
    pub async fn find(self, policy: &Policy) -> io::Result<Found> {
        let child = match &self.child {
            Some(child) if child.is_runner().await => LinuxChild::adopt(&child.identity)?,
            _ => None,
        };
        let wrappers_own = self.stop.as_ref().is_some_and(|stop| stop.id == signals::ID);
        let state = match (&child, self.child, self.stop) {
            (Some(_), Some(saved), stop) => {
                let info = ChildInfo { pid: saved.identity.pid, started: moment(saved.started) };
                info!(
                    pid = info.pid,
                    stop = stop.as_ref().map(|stop| &stop.id),
                    "adopting the runner of an earlier wrapper"
                );
                adopted(info, stop, policy)
            }
            // What was to end was the earlier wrapper, and it has.
            (_, _, Some(_)) if wrappers_own => State::Idle,
            (_, saved, Some(stop)) => {
                info!(stop = stop.id, "an earlier wrapper was asked to stop its runner, which has ended");
                let unseen = saved.map_or(End::NeverStarted, |saved| End::Exited {
                    pid: saved.identity.pid,
                    exit: Exit::Unknown,
                    killed: false,
                });
                let end = stop.end.clone().map_or(unseen, SavedEnd::restore);
                State::Exited { end, stop: Some(stop.restore()) }
            }
            (_, saved, None) => {
                if saved.is_some() {
                    warn!("the runner of an earlier wrapper has ended; starting another");
                }
                State::Idle
            }
        };
        let revive = wrappers_own && child.is_some();
        let supervision =
            Supervision { state, leaving: false, revive, restarts: self.restarts, failures: self.failures };
        Ok(Found { supervision, child })
    }
}

fn adopted(child: ChildInfo, stop: Option<SavedStop>, policy: &Policy) -> State {
    let Some(saved) = stop else { return State::Running { child, reload: None } };
    let stop = saved.restore();
    let phase = match saved.kill_at {
        // SIGTERM was sent, or was about to be. It is never sent again; the kill comes either way.
        Some(at) => Phase::Terminating { until: moment(at).min(Instant::now() + policy.termination_timeout) },
        // Whether SIGTERM was reached is not written down before it is sent, so a forceful stop without it has yet to begin.
        None if stop.mode == Mode::Forceful => Phase::Spacing { until: Instant::now() },
        // SIGQUIT may have been sent. Again it does no harm, and without it the runner would never end.
        None => Phase::Holding { until: Instant::now() + policy.handler_wait },
    };
    State::Stopping { child, stop, phase }
}

impl SavedChild {
    /// Whether this process has become a runner, and lives: one that is still a gate will go, or will become one.
    async fn is_runner(&self) -> bool {
        let give_up = Instant::now() + GATE_LIMIT;
        while let Some(gate) = self.gate
            && self.identity.is_alive()
            && Program::of(self.identity.pid).ok() == Some(gate)
            && Instant::now() < give_up
        {
            sleep(Duration::from_millis(5)).await;
        }
        self.identity.is_alive()
    }
}

impl SavedStop {
    fn new(state: &State, stop: &Stop) -> Self {
        let kill_at = match state {
            State::Stopping { phase: Phase::Terminating { until }, .. } => Some(millis(wall::time(*until))),
            State::Stopping { phase: Phase::Killed, .. } => Some(0),
            _ => None,
        };
        let save = |callbacks: &[Callback]| callbacks.iter().map(SavedCallback::new).collect();
        Self {
            id: stop.id.to_string(),
            reason: stop.reason.to_string(),
            forceful: stop.mode == Mode::Forceful,
            asked: millis(wall::time(stop.asked)),
            deadline: stop.deadline.map(|deadline| millis(wall::time(deadline))),
            callbacks: save(&stop.callbacks),
            called: save(&stop.called),
            kill_at,
            end: match state {
                State::Exited { end, .. } => Some(SavedEnd::new(end)),
                _ => None,
            },
        }
    }

    fn restore(&self) -> Stop {
        let restore =
            |callbacks: &[SavedCallback]| callbacks.iter().filter_map(SavedCallback::restore).collect();
        Stop {
            id: Arc::from(self.id.as_str()),
            reason: Arc::from(self.reason.as_str()),
            mode: if self.forceful { Mode::Forceful } else { Mode::Graceful },
            asked: moment(self.asked),
            deadline: self.deadline.map(moment),
            callbacks: restore(&self.callbacks),
            called: restore(&self.called),
        }
    }
}

impl SavedEnd {
    fn new(end: &End) -> Self {
        match end {
            End::NeverStarted => Self::NeverStarted,
            End::SpawnFailed(why) => Self::SpawnFailed(why.to_string()),
            End::Exited { pid, exit, killed } => Self::Exited { pid: *pid, exit: *exit, killed: *killed },
        }
    }

    fn restore(self) -> End {
        match self {
            Self::NeverStarted => End::NeverStarted,
            Self::SpawnFailed(why) => End::SpawnFailed(Arc::from(why)),
            Self::Exited { pid, exit, killed } => End::Exited { pid, exit, killed },
        }
    }
}

impl SavedCallback {
    fn new(callback: &Callback) -> Self {
        let (url, method, headers) = callback.parts();
        Self { url, method, headers }
    }

    fn restore(&self) -> Option<Callback> {
        Callback::new(&self.url, &self.method, &self.headers).ok()
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn moment(millis: u64) -> Instant {
    wall::moment(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}
