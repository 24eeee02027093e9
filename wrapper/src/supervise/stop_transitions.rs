//! The part of the table that stops a child: a stop is requested, joined, held back, signalled, made forceful, and cancelled.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    callback::Callback,
    end::End,
    event::{Answer, Context, Effect, Refusal},
    process::Signal,
    state::{ChildInfo, Phase, State},
    statistics::{Counted, EndedStop},
    stop::{Mode, Stop, StopId, StopOutcome},
};

pub(super) type Answered = (State, Result<Answer, Refusal>);

pub(super) fn request_stop(state: State, request: Stop, context: &mut Context<'_>) -> Answered {
    match state {
        State::Idle => (exited(End::NeverStarted, Some(request), context), Ok(Answer::Done)),
        State::Starting { stop: None } => (State::Starting { stop: Some(request) }, Ok(Answer::Done)),
        State::Starting { stop: Some(mut stop) } => {
            let answer = join(&mut stop, &request);
            if answer.is_ok() && request.mode == Mode::Forceful && stop.mode == Mode::Graceful {
                (stop.mode, stop.forced_by) = (Mode::Forceful, request.requested_by);
            }
            (State::Starting { stop: Some(stop) }, answer)
        }
        State::Running { child, .. } => (begin_stop(child, request, context), Ok(Answer::Done)),
        State::Stopping { child, mut stop, phase } => {
            let answer = join(&mut stop, &request);
            if answer.is_ok() && request.mode == Mode::Forceful && stop.mode == Mode::Graceful {
                stop.forced_by = request.requested_by;
                return (escalate(child, stop, phase, context), answer);
            }
            (State::Stopping { child, stop, phase }, answer)
        }
        // The restart is cancelled.
        State::Backoff { end, .. } => (exited(end, Some(request), context), Ok(Answer::Done)),
        State::Exited { end, stop } => {
            // The runner has exited, so that its callbacks are due now.
            let outcome = Some(StopOutcome::NoRunner);
            let fresh = || Stop { callbacks: Vec::new(), outcome, ..request.clone() };
            let is_first = stop.is_none();
            let mut known = stop.unwrap_or_else(fresh);
            match add_callbacks(&mut known, &request) {
                Ok(new) => {
                    if is_first {
                        context.add(Effect::Count(Counted::Stop(EndedStop::new(&known, context.now))));
                    }
                    context.effects.extend(new.into_iter().map(Effect::Callback));
                    (State::Exited { end, stop: Some(known) }, Ok(Answer::Already))
                }
                Err(refusal) => (State::Exited { end, stop: Some(known) }, Err(refusal)),
            }
        }
    }
}

/// The child has ended, or will not be started. The stop, if any, is over. A stop without an outcome met no child.
pub(super) fn exited(end: End, mut stop: Option<Stop>, context: &mut Context<'_>) -> State {
    if let Some(stop) = &mut stop {
        stop.outcome.get_or_insert(StopOutcome::NoRunner);
        context.add(Effect::Count(Counted::Stop(EndedStop::new(stop, context.now))));
        context.effects.extend(stop.callbacks.iter().cloned().map(Effect::Callback));
    }
    State::Exited { end, stop }
}

/// Adds the callbacks of `request` to the stop in progress, and its deadline where that is earlier.
fn join(stop: &mut Stop, request: &Stop) -> Result<Answer, Refusal> {
    add_callbacks(stop, request)?;
    if stop.mode == Mode::Graceful {
        stop.deadline = stop.deadline.into_iter().chain(request.deadline).min();
    }
    Ok(Answer::Joined(stop.id.clone()))
}

/// Adds the callbacks of `request` that `stop` does not have, and returns them. One that differs from an earlier one in its headers only
/// replaces it, because its credentials are newer.
fn add_callbacks(stop: &mut Stop, request: &Stop) -> Result<Vec<Callback>, Refusal> {
    let is_new = |callback: &&Callback| {
        !stop.callbacks.contains(callback) && !stop.finished_callbacks.contains(callback)
    };
    let new: Vec<_> = request.callbacks.iter().filter(is_new).cloned().collect();
    let is_kept = |known: &Callback| !new.iter().any(|new| new.replaces(known));
    let kept = stop.callbacks.iter().chain(&stop.finished_callbacks).filter(|known| is_kept(known)).count();
    if kept + new.len() > Stop::MAX_CALLBACKS {
        return Err(Refusal::TooManyCallbacks);
    }
    stop.callbacks.retain(is_kept);
    stop.finished_callbacks.retain(is_kept);
    stop.callbacks.extend(new.iter().cloned());
    Ok(new)
}

pub(super) fn begin_stop(child: ChildInfo, stop: Stop, context: &mut Context<'_>) -> State {
    match stop.mode {
        Mode::Graceful => {
            let phase = Phase::Holding { until: child.signal_at_latest(context), quit_sent_at: None };
            release(State::Stopping { child, stop, phase }, context)
        }
        Mode::Forceful => terminate(child, stop, context),
    }
}

/// Makes a graceful stop forceful.
pub(super) fn escalate(child: ChildInfo, mut stop: Stop, phase: Phase, context: &mut Context<'_>) -> State {
    stop.mode = Mode::Forceful;
    match phase {
        // SIGQUIT was not sent, so that SIGTERM can follow at once. A child that is too young to handle SIGTERM has no jobs.
        Phase::Holding { quit_sent_at: None, .. } | Phase::AwaitingGap { quit_sent_at: None, .. } => {
            terminate(child, stop, context)
        }
        Phase::Holding { quit_sent_at: Some(since), .. }
        | Phase::AwaitingGap { quit_sent_at: Some(since), .. }
        | Phase::Draining { since } => {
            let until = since + context.policy.signal_spacing;
            if context.now >= until {
                terminate(child, stop, context)
            } else {
                State::Stopping { child, stop, phase: Phase::Spacing { until } }
            }
        }
        Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => {
            State::Stopping { child, stop, phase }
        }
    }
}

/// The only place that sends SIGTERM. No later phase leads here again. A second SIGTERM would skip the runner's cleanup: none is sent if the runner
/// aborts its jobs already, because another process sent one, or a wrapper that was killed before it could save that it did.
pub(super) fn terminate(child: ChildInfo, stop: Stop, context: &mut Context<'_>) -> State {
    if !context.observation.aborts_jobs {
        context.add(Effect::Signal(Signal::Terminate));
    }
    let until = context.now + context.termination_timeout();
    State::Stopping { child, stop, phase: Phase::Terminating { until } }
}

impl State {
    /// A signal was sent. The time until the next one counts from now: before it, a slow disk may have delayed the state file for seconds.
    /// `termination_timeout`: the time between SIGTERM and SIGKILL.
    pub(super) fn signalled(&mut self, signal: Signal, now: Instant, termination_timeout: Duration) {
        match (self, signal) {
            (Self::Stopping { phase: Phase::Draining { since }, .. }, Signal::Drain) => *since = now,
            (Self::Stopping { phase: Phase::Terminating { until }, .. }, Signal::Terminate) => {
                *until = now + termination_timeout;
            }
            _ => {}
        }
    }
}

/// A number of open job requests was read, or cannot be read.
pub(super) fn job_requests(
    state: State,
    of: ChildInfo,
    open: Option<u32>,
    context: &mut Context<'_>,
) -> State {
    match state {
        State::Stopping { child, mut stop, phase: Phase::AwaitingGap { until, quit_sent_at, .. } }
            if child == of =>
        {
            match open {
                Some(1..) => {
                    let phase = Phase::AwaitingGap { until, open, quit_sent_at };
                    State::Stopping { child, stop, phase }
                }
                Some(0) | None => {
                    note_open(&mut stop, open, quit_sent_at);
                    quit(child, stop, context)
                }
            }
        }
        // It was read for a wait that is over.
        other @ (State::Idle
        | State::Starting { .. }
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => other,
    }
}

/// What was open at the first SIGQUIT counts, which may be that of an earlier wrapper.
fn note_open(stop: &mut Stop, open: Option<u32>, quit_sent_at: Option<Instant>) {
    if quit_sent_at.is_none() || stop.open_requests.is_none() {
        stop.open_requests = open;
    }
}

fn quit(child: ChildInfo, stop: Stop, context: &mut Context<'_>) -> State {
    context.add(Effect::Signal(Signal::Drain));
    State::Stopping { child, stop, phase: Phase::Draining { since: context.now } }
}

/// Sends the signal that is held back, if the child can take it now.
pub(super) fn release(state: State, context: &mut Context<'_>) -> State {
    match state {
        State::Running { child, reload: Some(until) } if child.can_take_signal(until, context) => {
            context.add(Effect::Signal(Signal::Reload));
            State::Running { child, reload: None }
        }
        State::Stopping { child, stop, phase: Phase::Holding { until, quit_sent_at } }
            if child.can_take_signal(until, context) =>
        {
            let timeout = context.policy.request_gap_timeout;
            if timeout.is_zero() {
                return quit(child, stop, context);
            }
            let phase = Phase::AwaitingGap { until: context.now + timeout, open: None, quit_sent_at };
            State::Stopping { child, stop, phase }
        }
        State::Stopping { child, mut stop, phase: Phase::AwaitingGap { until, open, quit_sent_at } }
            if context.now >= until =>
        {
            note_open(&mut stop, open, quit_sent_at);
            quit(child, stop, context)
        }
        // No signal is held back, or the child cannot take it yet.
        other @ (State::Idle
        | State::Starting { .. }
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => other,
    }
}

pub(super) fn cancel(
    state: State,
    id: Option<&StopId>,
    (leaving, never_drained): (bool, bool),
    context: &mut Context<'_>,
) -> Answered {
    let mut cancelled = |stop: &Stop| context.add(Effect::Count(Counted::Stop(EndedStop::cancelled(stop))));
    match state {
        // The shutdown of the wrapper cannot be cancelled.
        state if leaving => (state, Err(Refusal::Leaving)),
        state @ (State::Starting { stop: Some(_) } | State::Stopping { .. })
            if state.stop().zip(id).is_some_and(|(stop, id)| stop.id != *id) =>
        {
            (state, Err(Refusal::OtherStop))
        }
        State::Starting { stop: Some(stop) } => {
            cancelled(&stop);
            (State::Starting { stop: None }, Ok(Answer::Done))
        }
        State::Stopping {
            child,
            stop,
            phase: Phase::Holding { quit_sent_at: None, .. } | Phase::AwaitingGap { quit_sent_at: None, .. },
        } => {
            cancelled(&stop);
            (State::Running { child, reload: None }, Ok(Answer::Done))
        }
        State::Stopping { child, stop, phase: Phase::Draining { .. } } if never_drained => {
            cancelled(&stop);
            (State::Running { child, reload: None }, Ok(Answer::Done))
        }
        state @ State::Stopping { .. } => (state, Err(Refusal::TooLate)),
        other @ (State::Idle
        | State::Starting { stop: None }
        | State::Running { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => (other, Err(Refusal::NotStopping)),
    }
}

impl ChildInfo {
    /// When a signal that is held back is sent, whether the child handles it or not.
    pub(super) fn signal_at_latest(self, context: &Context<'_>) -> Instant {
        context.now.max(self.started + context.policy.start_grace) + context.policy.handler_wait
    }

    fn can_take_signal(self, until: Instant, context: &Context<'_>) -> bool {
        let is_old_enough = context.now >= self.started + context.policy.start_grace;
        context.now >= until || (context.handles_quit && is_old_enough)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn with_token(url: &str, method: &str, token: &str) -> Callback {
        Callback::new(url, method, &HashMap::from([("Token".to_owned(), token.to_owned())])).unwrap()
    }

    fn request(callback: &Callback) -> Stop {
        Stop { callbacks: vec![callback.clone()], ..Stop::new("d", Mode::Graceful) }
    }

    #[test]
    fn callback_with_other_headers_replaces_pending_or_finished_one() {
        let urls: Vec<_> = (0..Stop::MAX_CALLBACKS).map(|number| format!("http://host/{number}")).collect();
        let mut stop = Stop::new("d", Mode::Graceful);
        for url in &urls {
            add_callbacks(&mut stop, &request(&with_token(url, "POST", "1"))).unwrap();
        }
        let newer = with_token(&urls[3], "POST", "2");
        assert_eq!(add_callbacks(&mut stop, &request(&newer)).unwrap(), std::slice::from_ref(&newer));
        assert_eq!(stop.callbacks.len(), Stop::MAX_CALLBACKS);
        assert!(!stop.callbacks.contains(&with_token(&urls[3], "POST", "1")), "the older token is kept");
        assert_eq!(add_callbacks(&mut stop, &request(&newer)).unwrap(), [], "the same one");

        // It is sent after the exit, also if the earlier one was refused.
        stop.finished_callbacks = std::mem::take(&mut stop.callbacks);
        assert_eq!(add_callbacks(&mut stop, &request(&newer)).unwrap(), [], "the same one");
        let newest = with_token(&urls[3], "POST", "3");
        assert_eq!(add_callbacks(&mut stop, &request(&newest)).unwrap(), std::slice::from_ref(&newest));
        assert_eq!((stop.callbacks, stop.finished_callbacks.len()), (vec![newest], urls.len() - 1));

        stop.callbacks = vec![with_token("http://host/x", "POST", "1")];
        for other in [with_token("http://host/y", "POST", "1"), with_token("http://host/x", "PUT", "1")] {
            assert_eq!(add_callbacks(&mut stop, &request(&other)), Err(Refusal::TooManyCallbacks));
        }
    }
}
