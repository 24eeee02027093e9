//! The table: `(state, event, now) -> (state, effects)`, pure.
//!
//! ```text
//!            Boot             Spawned                 Stop(graceful)            handlers / wait over
//!   Idle ----------> Starting -------> Running --------------------> Holding --------------------> Draining
//!    |                  |                |                              |                             |
//!    | Stop             | SpawnFailed    | Stop(forceful)               | Stop(forceful)              | Stop(forceful), deadline
//!    v                  v                v                              v                             v
//!   Exited <---------- Exited      Terminating <------------------------+---------- Spacing <---------+
//!                                        | time is over                               (then Terminating)
//!                                        v
//!                                     Killed             every state with a child --Ended--> Exited
//! ```
//!
//! An end that nobody asked for leads to `Backoff` in place of `Exited` where the restart policy wants another child; from there
//! `Starting` follows when the time has come, or `Exited` when a stop comes first.
//!
//! What holds in every run, and is tested as such:
//! - `Exited` is final: nothing but `Start`, which asks for another child, leads out of it;
//! - a child gets SIGTERM at most once, and no other signal but SIGKILL after it;
//! - there is never a second child while one lives;
//! - a stop that was asked is never forgotten, also when it came before the child;
//! - every state with a stop moves on by itself but `Draining` without a deadline, which waits for jobs, and `Killed`.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    callback::Callback,
    process::{Exit, Signal},
};
use super::{
    command::{Answer, Mode, Refusal, Stop},
    drain_outcome::DrainOutcome,
    policy::Policy,
    state::{ChildInfo, End, LastLines, Phase, State, Supervision},
    stop::{begin_stop, cancel, escalate, release, request_stop, terminate},
};
use crate::daemon::signals;

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Boot,
    Start,
    /// The platform made a child.
    Spawned(u32),
    /// The platform could not.
    SpawnFailed(Arc<str>),
    /// The child ended.
    Ended(Exit),
    /// The child was seen to handle SIGQUIT.
    HandlesQuit,
    /// Time passed; [`Supervision::due`] says when this is worth telling.
    Tick,
    Stop(Stop),
    Cancel(Arc<str>),
    Reload,
    /// The wrapper is to end, and this is how its child is stopped for it.
    Leave(Stop),
    /// A callback was made, or given up.
    Called(Callback),
    /// The last lines of a failed child's log, as far as they can be had.
    LogRead(Arc<[String]>),
}

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Spawn,
    Signal(Signal),
    KillGroup,
    Callback(Callback),
    /// Of the child with this number, which was started then. [`Event::LogRead`] follows.
    ReadLog {
        pid: u32,
        started: Instant,
    },
    /// The supervisor's work is over.
    Leave,
}

/// Where one event led.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) next: Supervision,
    pub(super) effects: Vec<Effect>,
    pub(super) answer: Result<Answer, Refusal>,
}

impl Supervision {
    /// What `event` at the moment `now` leads to.
    pub(super) fn on(self, event: Event, now: Instant, policy: &Policy) -> Step {
        let Self { state, leaving, revive, restarts, failures, restarted, stable_at, last_lines, last_stop } =
            self;
        let leaving = leaving || matches!(event, Event::Leave(_));
        let child = state.child();
        let lived = child.map(|child| now.saturating_duration_since(child.started));
        let by_itself = matches!(
            (&state, &event),
            (State::Running { .. }, Event::Ended(_))
                | (State::Starting { stop: None }, Event::SpawnFailed(_))
        );
        let ended = matches!(event, Event::Ended(_));
        let spawned_now = matches!(event, Event::Spawned(_));
        let asked_to_start = matches!(event, Event::Start);
        let waited = matches!((&state, &event), (State::Backoff { .. }, Event::Tick));
        // Who joins a stop that is for the wrapper's own end wants the child stopped, also by the next wrapper.
        let for_the_end = revive || state.stop().is_some_and(|stop| *stop.id == *signals::ID);
        let new_owner = match &event {
            Event::Stop(stop) if for_the_end => Some(stop.clone()),
            Event::Leave(stop) if revive => Some(stop.clone()),
            _ => None,
        };
        let past_stop = state.past_stop();
        let last_lines = last_lines.after(&event);
        let mut effects = Vec::new();
        let (state, answer) = match event {
            Event::Boot => boot(state, leaving, &mut effects),
            Event::Start => start(state, leaving, &mut effects),
            Event::Spawned(pid) => (spawned(state, pid, now, policy, &mut effects), Ok(Answer::Done)),
            Event::SpawnFailed(why) => (spawn_failed(state, why, &mut effects), Ok(Answer::Done)),
            Event::Ended(exit) => (self::ended(state, exit, &mut effects), Ok(Answer::Done)),
            Event::HandlesQuit => (release(state, now, policy, false, &mut effects), Ok(Answer::Done)),
            Event::Tick => (tick(state, now, policy, &mut effects), Ok(Answer::Done)),
            Event::Stop(stop) | Event::Leave(stop) => request_stop(state, stop, now, policy, &mut effects),
            Event::Cancel(id) => cancel(state, &id, leaving),
            Event::Reload => reload(state, now, policy),
            Event::Called(callback) => (called(state, &callback), Ok(Answer::Done)),
            Event::LogRead(_) => (state, Ok(Answer::Done)),
        };
        let mut next =
            Self { state, leaving, revive, restarts, failures, restarted, stable_at, last_lines, last_stop };
        if asked_to_start && answer == Ok(Answer::Done) {
            next.forget_failures();
        }
        if spawned_now {
            next.stable_at = (failures > 0).then(|| now + policy.restart.stable_after);
        }
        if let (Some(owner), Ok(_)) = (new_owner, &answer) {
            next.hand_over(&owner);
        }
        if by_itself {
            next.consider_restart(lived, now, policy);
        }
        next.consider_revival(now);
        next.consider_stable(now);
        if let Some(past) = past_stop.filter(|_| next.state.stop().is_none()) {
            next.last_stop = Some(Arc::new(past));
        }
        if ended && let (Some(pid), Some(child)) = (next.failed_child(), child) {
            next.last_lines = LastLines::Reading;
            effects.push(Effect::ReadLog { pid, started: child.started });
        }
        if waited && next.restarted && matches!(next.state, State::Starting { .. }) {
            next.restarts = next.restarts.saturating_add(1);
        }
        let exited = matches!(next.state, State::Exited { .. });
        next.leaving |= exited && policy.leave_when_stopped;
        if exited && next.leaving {
            effects.push(Effect::Leave);
        }
        Step { next, effects, answer }
    }
}

impl LastLines {
    /// They are told until there is another child, which may fail for another reason.
    fn after(self, event: &Event) -> Self {
        match (self, event) {
            (_, Event::Spawned(_) | Event::SpawnFailed(_)) => Self::NotRead,
            (Self::Reading, Event::LogRead(lines)) => Self::Read(Arc::clone(lines)),
            (other, _) => other,
        }
    }
}

pub(super) type Answered = (State, Result<Answer, Refusal>);

fn boot(state: State, leaving: bool, effects: &mut Vec<Effect>) -> Answered {
    match state {
        State::Idle => start(state, leaving, effects),
        // Somebody was quicker, with a stop that is to be kept.
        other => (other, Ok(Answer::Already)),
    }
}

fn start(state: State, leaving: bool, effects: &mut Vec<Effect>) -> Answered {
    match state {
        state if leaving => (state, Err(Refusal::Leaving)),
        State::Idle | State::Exited { .. } | State::Backoff { .. } => {
            effects.push(Effect::Spawn);
            (State::Starting { stop: None }, Ok(Answer::Done))
        }
        state @ (State::Starting { stop: None } | State::Running { .. }) => (state, Ok(Answer::Already)),
        state @ (State::Starting { stop: Some(_) } | State::Stopping { .. }) => {
            (state, Err(Refusal::Stopping))
        }
    }
}

fn spawned(state: State, pid: u32, now: Instant, policy: &Policy, effects: &mut Vec<Effect>) -> State {
    let child = ChildInfo { pid, started: now };
    match state {
        State::Starting { stop: None } => State::Running { child, reload: None },
        State::Starting { stop: Some(stop) } => begin_stop(child, stop, now, policy, effects),
        // Only a Spawn effect makes a child, and only Starting has one under way.
        other => other,
    }
}

fn spawn_failed(state: State, why: Arc<str>, effects: &mut Vec<Effect>) -> State {
    match state {
        State::Starting { stop } => exited(End::SpawnFailed(why), stop, effects),
        other => other,
    }
}

fn ended(state: State, exit: Exit, effects: &mut Vec<Effect>) -> State {
    match state {
        State::Running { child, .. } => {
            exited(End::Exited { pid: child.pid, exit, killed: false }, None, effects)
        }
        State::Stopping { child, mut stop, phase } => {
            if stop.mode == Mode::Forceful {
                // A forceful stop leaves nothing behind, whether the leader ended by itself or not.
                effects.push(Effect::KillGroup);
            }
            let end = End::Exited { pid: child.pid, exit, killed: phase == Phase::Killed };
            stop.outcome = Some(DrainOutcome::of(stop.mode, &end));
            exited(end, Some(stop), effects)
        }
        // Nothing else has a child that could end.
        other @ (State::Idle | State::Starting { .. } | State::Backoff { .. } | State::Exited { .. }) => {
            other
        }
    }
}

/// The stop is over. One whose outcome is not known by now met no child.
pub(super) fn exited(end: End, mut stop: Option<Stop>, effects: &mut Vec<Effect>) -> State {
    if let Some(stop) = &mut stop {
        stop.outcome.get_or_insert(DrainOutcome::NoRunner);
    }
    effects.extend(stop.iter().flat_map(|stop| &stop.callbacks).cloned().map(Effect::Callback));
    State::Exited { end, stop }
}

fn tick(state: State, now: Instant, policy: &Policy, effects: &mut Vec<Effect>) -> State {
    match state {
        State::Running { reload: Some(until), .. } if now >= until => {
            release(state, now, policy, true, effects)
        }
        State::Backoff { until, .. } if now >= until => {
            effects.push(Effect::Spawn);
            State::Starting { stop: None }
        }
        State::Stopping { child, stop, phase } => {
            let late = stop.mode == Mode::Graceful && stop.deadline.is_some_and(|deadline| now >= deadline);
            match phase {
                Phase::Holding { .. } | Phase::Draining { .. } if late => {
                    escalate(child, stop, phase, now, policy, effects)
                }
                Phase::Holding { until, .. } if now >= until => {
                    release(State::Stopping { child, stop, phase }, now, policy, true, effects)
                }
                Phase::Spacing { until } if now >= until => terminate(child, stop, now, policy, effects),
                Phase::Terminating { until } if now >= until => {
                    effects.push(Effect::KillGroup);
                    State::Stopping { child, stop, phase: Phase::Killed }
                }
                phase => State::Stopping { child, stop, phase },
            }
        }
        other => other,
    }
}

fn called(mut state: State, callback: &Callback) -> State {
    if let State::Exited { stop: Some(stop), .. } = &mut state
        && let Some(at) = stop.callbacks.iter().position(|pending| pending == callback)
    {
        let made = stop.callbacks.swap_remove(at);
        stop.called.push(made);
    }
    state
}

fn reload(state: State, now: Instant, policy: &Policy) -> Answered {
    match state {
        State::Running { child, reload } => {
            let until = reload.unwrap_or_else(|| child.patience(now, policy));
            (State::Running { child, reload: Some(until) }, Ok(Answer::Done))
        }
        // A child yet to come reads the configuration by itself; one that ends needs none, and its next signal may be its last.
        other => (other, Ok(Answer::Already)),
    }
}
