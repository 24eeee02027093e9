//! The form of the state file, and the way back from it.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::times::{self, SavedClock, Times};
use crate::{
    daemon::signals,
    supervise::{
        ChildInfo, DrainOutcome, End, Leftovers, Mode, Owed, PastStop, Phase, Policy, State, Stop,
        Supervision,
        callback::Callback,
        clock::Clocks,
        process::{CommandLine, Exit, Identity, LinuxChild, Program},
    },
};

/// How long a gate may take to see that its wrapper is gone, or to become the runner.
const GATE_LIMIT: Duration = Duration::from_secs(10);

/// What is kept. Times are milliseconds since 1970, as the wall clock of `clock` shows them.
///
/// A field that this program does not know is passed over, so that one can go back to an earlier wrapper. What must not be passed over
/// therefore comes with another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: Version,
    /// Not there in files of wrappers that went by the wall clock alone.
    clock: Option<SavedClock>,
    child: Option<SavedChild>,
    stop: Option<SavedStop>,
    restarts: u32,
    failures: u32,
    /// Not there in files of wrappers that went by `restarts`.
    #[serde(default)]
    restarted: bool,
    /// The stop that ended an earlier child. Not there in files of wrappers that forgot it.
    last_stop: Option<SavedStop>,
    /// Not there in files of wrappers that forgot them.
    #[serde(default)]
    owed: Vec<SavedOwed>,
}

/// The form of the file, [`FORM`]. Another one is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    #[serde(rename = "1")]
    One,
}

/// The one form that there is so far.
pub(super) const FORM: &str = "1";

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// `runner` is its process, if that is still where it is here.
    OtherForm {
        form: String,
        runner: Option<u32>,
    },
    Broken(serde_json::Error),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedChild {
    identity: Identity,
    /// The program of its gate, while it waits there.
    gate: Option<Program>,
    started: u64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedStop {
    id: String,
    reason: String,
    /// Not there in files of wrappers that did not know.
    by: Option<String>,
    forceful: bool,
    asked: u64,
    deadline: Option<u64>,
    callbacks: Vec<SavedCallback>,
    called: Vec<SavedCallback>,
    /// When SIGQUIT was sent. Not there in files of wrappers that did not know.
    told_at: Option<u64>,
    /// When the group is killed; there once SIGTERM was sent.
    kill_at: Option<u64>,
    /// How the child had ended, when it had.
    end: Option<SavedEnd>,
    /// What it came to. Not there in files of wrappers that did not know.
    outcome: Option<DrainOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SavedEnd {
    NeverStarted,
    SpawnFailed(String),
    Exited { pid: u32, exit: Exit, killed: bool },
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedCallback {
    url: String,
    method: String,
    headers: HashMap<String, String>,
}

/// A callback that is being made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedOwed {
    callback: SavedCallback,
    since: u64,
}

/// What an earlier wrapper left, as the supervisor takes it up.
#[derive(Debug)]
pub struct Found {
    pub owed: Vec<Owed>,
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
    /// Reads a file of this form.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let json: serde_json::Value = serde_json::from_slice(text).map_err(Unreadable::Broken)?;
        match json["version"].as_str() {
            Some(form) if form != FORM => {
                let pid = json["child"]["identity"]["pid"].as_u64();
                let runner = pid.and_then(|pid| pid.try_into().ok());
                Err(Unreadable::OtherForm { form: form.to_owned(), runner })
            }
            _ => serde_json::from_value(json).map_err(Unreadable::Broken),
        }
    }

    pub(crate) fn new(supervision: &Supervision, child: Option<&Identity>, owed: &[Owed]) -> Self {
        Self::by(&Clocks::now(), Instant::now(), supervision, child, owed)
    }

    fn by(
        clocks: &Clocks,
        now: Instant,
        supervision: &Supervision,
        child: Option<&Identity>,
        owed: &[Owed],
    ) -> Self {
        let state = &supervision.state;
        let gate = matches!(state, State::Starting { .. })
            .then(|| child.and_then(|child| Program::of(child.pid).ok()))
            .flatten();
        let started = state.child().map_or(now, |child| child.started);
        Self {
            version: Version::One,
            clock: SavedClock::new(clocks),
            child: child.map(|identity| SavedChild {
                identity: identity.clone(),
                gate,
                started: times::millis(clocks, started),
            }),
            stop: state.stop().map(|stop| SavedStop::new(clocks, state, stop)),
            restarts: supervision.restarts,
            failures: supervision.failures,
            restarted: supervision.restarted,
            last_stop: supervision.last_stop.as_deref().map(|past| SavedStop::past(clocks, past)),
            owed: owed.iter().map(|owed| SavedOwed::new(clocks, owed)).collect(),
        }
    }

    /// Looks for the child, and makes a state of what was kept. Waits, for moments, for a child that was just being made.
    ///
    /// # Errors
    ///
    /// When it cannot be told whether the child lives.
    pub async fn find(self, policy: &Policy, command: &CommandLine) -> io::Result<Found> {
        let child = match &self.child {
            Some(child) if child.is_runner().await => LinuxChild::adopt(&child.identity)?,
            _ => None,
        };
        if let (Some(saved), Some(_)) = (&self.child, &child)
            && let Some(origin) = &saved.identity.origin
            && origin.command != command.words()
        {
            warn!(
                pid = saved.identity.pid,
                "the adopted runner keeps running with the command of the previous wrapper, but is probed \
                 with the settings of the new command. To use the new command, drain and start the runner"
            );
        }
        if let (Some(saved), None) = (&self.child, &child) {
            // The wrapper that was to do this was killed before, or the runner ended while there was none.
            let forceful = self.stop.as_ref().is_some_and(|stop| stop.forceful);
            let kill = forceful || policy.leftovers == Leftovers::Kill;
            LinuxChild::deal_with_remains(&saved.identity, kill).await;
        }
        let times = Times::new(self.clock.as_ref(), Clocks::now(), Instant::now());
        let owed = self.owed.iter().filter_map(|owed| owed.restore(&times)).collect();
        Ok(Found { owed, supervision: self.taken_up(child.is_some(), &times, policy), child })
    }

    /// The state that follows from what was kept, when the child lives or not.
    fn taken_up(self, lives: bool, times: &Times, policy: &Policy) -> Supervision {
        let wrappers_own = self.stop.as_ref().is_some_and(|stop| stop.id == signals::ID);
        let last_stop = self.last_stop.as_ref().and_then(|saved| saved.restore_past(times)).map(Arc::new);
        let state = match (self.child, self.stop) {
            (Some(saved), stop) if lives => {
                let info = ChildInfo { pid: saved.identity.pid, started: times.past(saved.started) };
                info!(
                    pid = info.pid,
                    stop = stop.as_ref().map(|stop| &stop.id),
                    "adopting the runner of the previous wrapper"
                );
                adopted(times, info, stop, policy)
            }
            // What was to end was the earlier wrapper, and it has.
            (_, Some(_)) if wrappers_own => State::Idle,
            (saved, Some(stop)) => {
                info!(
                    stop = stop.id,
                    "runner was stopped on request before this wrapper started; not starting it"
                );
                let unseen = saved.map_or(End::NeverStarted, |saved| End::Exited {
                    pid: saved.identity.pid,
                    exit: Exit::Unknown,
                    killed: false,
                });
                let end = stop.end.clone().map_or(unseen, SavedEnd::restore);
                let mut stop = stop.restore(times);
                let outcome = DrainOutcome::of(stop.mode, &end);
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
            revive: wrappers_own && lives,
            restarts: self.restarts,
            failures: self.failures,
            restarted: self.restarted && lives,
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
        // SIGTERM was sent, or was about to be. It is never sent again; the kill comes either way.
        Some(at) => {
            Phase::Terminating { until: times.moment(at).min(times.now + policy.termination_timeout) }
        }
        // SIGTERM is written down before it is sent, so it was not. SIGQUIT may have been, just now.
        None if stop.mode == Mode::Forceful => Phase::Spacing { until: times.now + policy.signal_spacing },
        // SIGQUIT may have been sent. Again it does no harm, and without it the runner would never end.
        None => Phase::Holding {
            until: times.now + policy.handler_wait,
            told: saved.told_at.map(|at| times.past(at)),
        },
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
    fn new(clocks: &Clocks, state: &State, stop: &Stop) -> Self {
        let kill_at = match state {
            State::Stopping { phase: Phase::Terminating { until }, .. } => {
                Some(times::millis(clocks, *until))
            }
            State::Stopping { phase: Phase::Killed, .. } => Some(0),
            _ => None,
        };
        let told_at = match state {
            State::Stopping { phase: Phase::Draining { since }, .. } => Some(*since),
            State::Stopping { phase: Phase::Holding { told, .. }, .. } => *told,
            _ => None,
        };
        let save = |callbacks: &[Callback]| callbacks.iter().map(SavedCallback::new).collect();
        Self {
            id: stop.id.to_string(),
            reason: stop.reason.to_string(),
            by: Some(stop.by.to_string()),
            forceful: stop.mode == Mode::Forceful,
            asked: times::millis(clocks, stop.asked),
            deadline: stop.deadline.map(|deadline| times::millis(clocks, deadline)),
            callbacks: save(&stop.callbacks),
            called: save(&stop.called),
            told_at: told_at.map(|told| times::millis(clocks, told)),
            kill_at,
            end: match state {
                State::Exited { end, .. } => Some(SavedEnd::new(end)),
                _ => None,
            },
            outcome: stop.outcome,
        }
    }

    fn past(clocks: &Clocks, past: &PastStop) -> Self {
        let PastStop { stop, end } = past;
        Self::new(clocks, &State::Exited { end: end.clone(), stop: None }, stop)
    }

    fn restore_past(&self, times: &Times) -> Option<PastStop> {
        Some(PastStop { stop: self.restore(times), end: self.end.clone()?.restore() })
    }

    fn restore(&self, times: &Times) -> Stop {
        let restore =
            |callbacks: &[SavedCallback]| callbacks.iter().filter_map(SavedCallback::restore).collect();
        Stop {
            id: Arc::from(self.id.as_str()),
            reason: Arc::from(self.reason.as_str()),
            by: Arc::from(self.by.as_deref().unwrap_or_default()),
            mode: if self.forceful { Mode::Forceful } else { Mode::Graceful },
            asked: times.past(self.asked),
            deadline: self.deadline.map(|deadline| times.moment(deadline)),
            callbacks: restore(&self.callbacks),
            called: restore(&self.called),
            outcome: self.outcome,
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

impl SavedOwed {
    fn new(clocks: &Clocks, owed: &Owed) -> Self {
        Self { callback: SavedCallback::new(&owed.callback), since: times::millis(clocks, owed.since) }
    }

    fn restore(&self, times: &Times) -> Option<Owed> {
        Some(Owed { callback: self.callback.restore()?, since: times.past(self.since) })
    }
}

/// Its headers are secrets, and so may its URL be.
impl std::fmt::Debug for SavedCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

/// What a wrapper takes up that comes after one in this state, and finds its child alive or not: through the text of the file.
#[cfg(test)]
pub(crate) fn handed_over(
    before: &Supervision,
    child: Option<&Identity>,
    lives: bool,
    now: Instant,
    policy: &Policy,
) -> Supervision {
    let clocks = Clocks::at(now);
    let text = serde_json::to_vec(&Saved::by(&clocks, now, before, child, &[])).unwrap();
    let saved = Saved::parse(&text).unwrap();
    let times = Times::new(saved.clock.as_ref(), clocks, now);
    saved.taken_up(lives, &times, policy)
}

#[cfg(test)]
mod tests;
