//! The part of the table that ends a child: how a stop is asked for, joined, held back, told, hastened, and taken back.

use std::sync::Arc;

use tokio::time::Instant;

use super::{callback::Callback, process::Signal};
use super::{
    command::{Answer, Mode, Refusal, Stop},
    drain_outcome::DrainOutcome,
    policy::Policy,
    state::{ChildInfo, End, Phase, State},
    table::{Answered, Effect, exited},
};

pub(super) fn request_stop(
    state: State,
    wish: Stop,
    now: Instant,
    policy: &Policy,
    effects: &mut Vec<Effect>,
) -> Answered {
    match state {
        State::Idle => (exited(End::NeverStarted, Some(wish), effects), Ok(Answer::Done)),
        State::Starting { stop: None } => (State::Starting { stop: Some(wish) }, Ok(Answer::Done)),
        State::Starting { stop: Some(mut stop) } => {
            let answer = join(&mut stop, &wish);
            if answer.is_ok() && wish.mode == Mode::Forceful {
                stop.mode = Mode::Forceful;
            }
            (State::Starting { stop: Some(stop) }, answer)
        }
        State::Running { child, .. } => (begin_stop(child, wish, now, policy, effects), Ok(Answer::Done)),
        State::Stopping { child, mut stop, phase } => {
            let answer = join(&mut stop, &wish);
            if answer.is_ok() && wish.mode == Mode::Forceful && stop.mode == Mode::Graceful {
                return (escalate(child, stop, phase, now, policy, effects), answer);
            }
            (State::Stopping { child, stop, phase }, answer)
        }
        // The child that was waited for will not be started.
        State::Backoff { end, .. } => (exited(end, Some(wish), effects), Ok(Answer::Done)),
        State::Exited { end, stop } => {
            // Whoever asks for a callback after the end would wait for ever if it were only kept.
            let fresh =
                || Stop { callbacks: Vec::new(), outcome: Some(DrainOutcome::NoRunner), ..wish.clone() };
            let mut known = stop.unwrap_or_else(fresh);
            match add_callbacks(&mut known, &wish) {
                Ok(new) => {
                    effects.extend(new.into_iter().map(Effect::Callback));
                    (State::Exited { end, stop: Some(known) }, Ok(Answer::Already))
                }
                Err(refusal) => (State::Exited { end, stop: Some(known) }, Err(refusal)),
            }
        }
    }
}

/// What a stop that is under way takes over from another wish: its callbacks, and its deadline where that is earlier.
fn join(stop: &mut Stop, wish: &Stop) -> Result<Answer, Refusal> {
    add_callbacks(stop, wish)?;
    if stop.mode == Mode::Graceful {
        stop.deadline = stop.deadline.into_iter().chain(wish.deadline).min();
    }
    Ok(Answer::Joined(Arc::clone(&stop.id)))
}

/// Adds the callbacks of `wish` that `stop` does not have, and answers which those are.
fn add_callbacks(stop: &mut Stop, wish: &Stop) -> Result<Vec<Callback>, Refusal> {
    let is_new = |callback: &&Callback| !stop.callbacks.contains(callback) && !stop.called.contains(callback);
    let new: Vec<_> = wish.callbacks.iter().filter(is_new).cloned().collect();
    if stop.callbacks.len() + stop.called.len() + new.len() > Stop::MAX_CALLBACKS {
        return Err(Refusal::TooManyCallbacks);
    }
    stop.callbacks.extend(new.iter().cloned());
    Ok(new)
}

pub(super) fn begin_stop(
    child: ChildInfo,
    stop: Stop,
    now: Instant,
    policy: &Policy,
    effects: &mut Vec<Effect>,
) -> State {
    match stop.mode {
        Mode::Graceful => {
            let phase = Phase::Holding { until: child.patience(now, policy), told: None };
            State::Stopping { child, stop, phase }
        }
        Mode::Forceful => terminate(child, stop, now, policy, effects),
    }
}

/// A graceful stop becomes a forceful one.
pub(super) fn escalate(
    child: ChildInfo,
    mut stop: Stop,
    phase: Phase,
    now: Instant,
    policy: &Policy,
    effects: &mut Vec<Effect>,
) -> State {
    stop.mode = Mode::Forceful;
    match phase {
        // SIGQUIT was never sent, so nothing has to be waited for. A child that is too young to handle SIGTERM has no jobs.
        Phase::Holding { told: None, .. } => terminate(child, stop, now, policy, effects),
        Phase::Holding { told: Some(since), .. } | Phase::Draining { since } => {
            let until = since + policy.signal_spacing;
            if now >= until {
                terminate(child, stop, now, policy, effects)
            } else {
                State::Stopping { child, stop, phase: Phase::Spacing { until } }
            }
        }
        Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => {
            State::Stopping { child, stop, phase }
        }
    }
}

/// The one place that sends SIGTERM; no phase that it leads to comes back here.
pub(super) fn terminate(
    child: ChildInfo,
    stop: Stop,
    now: Instant,
    policy: &Policy,
    effects: &mut Vec<Effect>,
) -> State {
    effects.push(Effect::Signal(Signal::Terminate));
    let until = now + policy.termination_timeout;
    State::Stopping { child, stop, phase: Phase::Terminating { until } }
}

/// Sends what was held for a child that can take it now; `anyway` when waiting for that is over.
pub(super) fn release(
    state: State,
    now: Instant,
    policy: &Policy,
    anyway: bool,
    effects: &mut Vec<Effect>,
) -> State {
    let ready = |child: ChildInfo| anyway || now >= child.started + policy.start_grace;
    match state {
        State::Running { child, reload: Some(_) } if ready(child) => {
            effects.push(Effect::Signal(Signal::Reload));
            State::Running { child, reload: None }
        }
        State::Stopping { child, stop, phase: Phase::Holding { .. } } if ready(child) => {
            effects.push(Effect::Signal(Signal::Drain));
            State::Stopping { child, stop, phase: Phase::Draining { since: now } }
        }
        other => other,
    }
}

pub(super) fn cancel(state: State, id: &str, leaving: bool) -> Answered {
    match state {
        // The wrapper's own end is not to be taken back.
        state if leaving => (state, Err(Refusal::Leaving)),
        state @ (State::Starting { stop: Some(_) } | State::Stopping { .. })
            if !id.is_empty() && state.stop().is_some_and(|stop| *stop.id != *id) =>
        {
            (state, Err(Refusal::OtherStop))
        }
        State::Starting { stop: Some(_) } => (State::Starting { stop: None }, Ok(Answer::Done)),
        State::Stopping { child, phase: Phase::Holding { told: None, .. }, .. } => {
            (State::Running { child, reload: None }, Ok(Answer::Done))
        }
        state @ State::Stopping { .. } => (state, Err(Refusal::TooLate)),
        other => (other, Err(Refusal::NotStopping)),
    }
}

impl ChildInfo {
    /// Until when a signal may be held back from this child.
    pub(super) fn patience(self, now: Instant, policy: &Policy) -> Instant {
        now.max(self.started + policy.start_grace) + policy.handler_wait
    }
}
