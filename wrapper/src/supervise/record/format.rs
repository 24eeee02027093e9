//! The format of the state file.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::times::{self, SavedClock, Times};
use crate::supervise::{
    callback::Callback,
    callback_queue::PendingCallback,
    clock::Clocks,
    end::End,
    process::{Identity, Program},
    state::{PastStop, Phase, State, Supervision},
    stop::{Mode, Stop, StopId, StopOutcome},
};

/// The content of the state file. Times are milliseconds since 1970 by the wall clock.
///
/// Unknown fields are ignored, so that an earlier wrapper can read the file after a downgrade. A field that an earlier wrapper must not ignore
/// requires a new format version. Optional fields are missing in the files of earlier wrappers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: Version,
    pub(super) clock: Option<SavedClock>,
    pub(super) child: Option<SavedChild>,
    pub(super) stop: Option<SavedStop>,
    pub(super) restarts: u32,
    pub(super) failures: u32,
    #[serde(default)]
    pub(super) restarted: bool,
    /// The stop of an earlier child.
    pub(super) last_stop: Option<SavedStop>,
    /// The callbacks that are being sent.
    #[serde(default, rename = "owed")]
    pub(super) pending: Vec<SavedPending>,
}

/// The format version, [`VERSION`]. Another version is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    #[serde(rename = "1")]
    One,
}

pub(super) const VERSION: &str = "1";

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    OtherVersion {
        version: String,
        /// The PID of the runner, if it is where this version has it.
        runner: Option<u32>,
    },
    Broken(serde_json::Error),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedChild {
    pub(super) identity: Identity,
    /// The program of the exec barrier, while the child waits there.
    #[serde(rename = "gate")]
    pub(super) barrier: Option<Program>,
    pub(super) started: u64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedStop {
    pub(super) id: String,
    reason: String,
    #[serde(rename = "by")]
    requested_by: Option<String>,
    pub(super) forceful: bool,
    #[serde(default)]
    forced_by: String,
    #[serde(rename = "asked")]
    requested_at: u64,
    #[serde(default)]
    requested_wall: Option<u64>,
    deadline: Option<u64>,
    callbacks: Vec<SavedCallback>,
    #[serde(rename = "called")]
    finished_callbacks: Vec<SavedCallback>,
    #[serde(rename = "told_at")]
    pub(super) quit_sent_at: Option<u64>,
    /// When the process group is killed; only after SIGTERM was sent.
    pub(super) kill_at: Option<u64>,
    #[serde(default)]
    aborts_jobs: bool,
    #[serde(default)]
    open_requests: Option<u32>,
    /// The end of the child, after it.
    pub(super) end: Option<End>,
    outcome: Option<StopOutcome>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedCallback {
    url: String,
    method: String,
    headers: HashMap<String, String>,
}

/// A callback that is being sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedPending {
    callback: SavedCallback,
    since: u64,
}

impl fmt::Debug for SavedStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedStop")
            .field("id", &self.id)
            .field("forceful", &self.forceful)
            .finish_non_exhaustive()
    }
}

impl Saved {
    /// Reads a file of this version.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let json: serde_json::Value = serde_json::from_slice(text).map_err(Unreadable::Broken)?;
        match json["version"].as_str() {
            Some(version) if version != VERSION => {
                let pid = json["child"]["identity"]["pid"].as_u64();
                let runner = pid.and_then(|pid| pid.try_into().ok());
                Err(Unreadable::OtherVersion { version: version.to_owned(), runner })
            }
            _ => serde_json::from_value(json).map_err(Unreadable::Broken),
        }
    }

    /// There is no runner, and nothing to continue.
    pub(crate) fn nothing() -> Self {
        Self::new(&Clocks::now(), Instant::now(), &Supervision::default(), None, &[])
    }

    /// `now` is the start of a child that is being started.
    pub(crate) fn new(
        clocks: &Clocks,
        now: Instant,
        supervision: &Supervision,
        child: Option<&Identity>,
        pending: &[PendingCallback],
    ) -> Self {
        let state = &supervision.state;
        let barrier = matches!(state, State::Starting { .. })
            .then(|| child.and_then(|child| Program::of(child.pid).ok()))
            .flatten();
        let started = state.child().map_or(now, |child| child.started);
        Self {
            version: Version::One,
            clock: SavedClock::new(clocks),
            child: child.map(|identity| SavedChild {
                identity: identity.clone(),
                barrier,
                started: times::millis(clocks, started),
            }),
            stop: state.stop().map(|stop| SavedStop::new(clocks, state, stop)),
            restarts: supervision.restarts,
            failures: supervision.failures,
            restarted: supervision.restarted,
            last_stop: supervision.last_stop.as_deref().map(|past| SavedStop::past(clocks, past)),
            pending: pending.iter().map(|pending| SavedPending::new(clocks, pending)).collect(),
        }
    }
}

impl SavedStop {
    fn new(clocks: &Clocks, state: &State, stop: &Stop) -> Self {
        let kill_at = match state {
            State::Stopping { phase: Phase::Terminating { until }, .. } => {
                Some(times::millis(clocks, *until))
            }
            State::Stopping { phase: Phase::Killed, .. } => Some(0),
            _ => None,
        };
        let quit_sent_at = match state {
            State::Stopping { phase: Phase::Draining { since }, .. } => Some(*since),
            State::Stopping { phase: Phase::Holding { quit_sent_at, .. }, .. } => *quit_sent_at,
            // The file is written again only after the signal: this wrapper could be killed in between.
            State::Stopping { phase: Phase::AwaitingGap { quit_sent_at, .. }, .. } => {
                Some(quit_sent_at.unwrap_or(stop.requested_at))
            }
            _ => None,
        };
        let save = |callbacks: &[Callback]| callbacks.iter().map(SavedCallback::new).collect();
        Self {
            id: stop.id.to_string(),
            reason: stop.reason.to_string(),
            requested_by: Some(stop.requested_by.to_string()),
            forceful: stop.mode == Mode::Forceful,
            forced_by: stop.forced_by.to_string(),
            requested_at: times::millis(clocks, stop.requested_at),
            requested_wall: Some(times::wall_millis(stop.requested_wall)),
            deadline: stop.deadline.map(|deadline| times::millis(clocks, deadline)),
            callbacks: save(&stop.callbacks),
            finished_callbacks: save(&stop.finished_callbacks),
            quit_sent_at: quit_sent_at.map(|sent| times::millis(clocks, sent)),
            kill_at,
            aborts_jobs: stop.aborts_jobs,
            open_requests: stop.open_requests,
            end: match state {
                State::Exited { end, .. } => Some(end.clone()),
                _ => None,
            },
            outcome: stop.outcome,
        }
    }

    pub(super) fn stop_id(&self) -> StopId {
        StopId::from(self.id.as_str())
    }

    pub(super) fn mode(&self) -> Mode {
        if self.forceful { Mode::Forceful } else { Mode::Graceful }
    }

    fn past(clocks: &Clocks, past: &PastStop) -> Self {
        let PastStop { stop, end } = past;
        Self::new(clocks, &State::Exited { end: end.clone(), stop: None }, stop)
    }

    pub(super) fn restore_past(&self, times: &Times) -> Option<PastStop> {
        Some(PastStop { stop: self.restore(times), end: self.end.clone()? })
    }

    pub(super) fn restore(&self, times: &Times) -> Stop {
        let restore =
            |callbacks: &[SavedCallback]| callbacks.iter().filter_map(SavedCallback::restore).collect();
        let requested_at = times.past(self.requested_at);
        Stop {
            id: self.stop_id(),
            reason: Arc::from(self.reason.as_str()),
            requested_by: Arc::from(self.requested_by.as_deref().unwrap_or_default()),
            requested_at,
            requested_wall: self
                .requested_wall
                .and_then(times::wall)
                .unwrap_or_else(|| times.time(requested_at)),
            // A wrapper counts a drain in the mode in which it found it.
            requested_mode: self.mode(),
            mode: self.mode(),
            forced_by: Arc::from(self.forced_by.as_str()),
            deadline: self.deadline.map(|deadline| times.moment(deadline)),
            callbacks: restore(&self.callbacks),
            finished_callbacks: restore(&self.finished_callbacks),
            aborts_jobs: self.aborts_jobs,
            open_requests: self.open_requests,
            outcome: self.outcome,
        }
    }
}

impl SavedPending {
    fn new(clocks: &Clocks, pending: &PendingCallback) -> Self {
        Self { callback: SavedCallback::new(&pending.callback), since: times::millis(clocks, pending.since) }
    }

    pub(super) fn restore(&self, times: &Times) -> Option<PendingCallback> {
        Some(PendingCallback { callback: self.callback.restore()?, since: times.past(self.since) })
    }
}

/// Its headers are secrets, and its URL may contain one.
impl fmt::Debug for SavedCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SavedCallback")
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

#[cfg(test)]
mod tests;
