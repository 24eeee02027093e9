//! The transition table: `(state, event, now) -> (state, effects)`. It is pure.
//!
//! ```text
//!         Boot             Spawned            Stop(graceful)          SIGQUIT is handled          no open job request
//!   Idle --------> Starting ------> Running --------------> Holding ------------------> AwaitingGap -----------------> Draining
//!    |                |                |                       |                            |                             |
//!    | Stop           | SpawnFailed    | Stop(forceful)        | Stop(forceful)             | Stop(forceful), deadline    | Stop(forceful), deadline
//!    v                v                v                       v                            v                             v
//!   Exited <------- Exited       Terminating <-----------------+----------------------------+--------- Spacing <----------+
//!                                      | timeout                                                (then Terminating)
//!                                      v
//!                                   Killed             every state with a child --Exited--> Exited
//! ```
//!
//! The waits of `Holding` and of `AwaitingGap` also end after some time. Where the child handles SIGQUIT already, `Holding` is passed in the same
//! transition.
//!
//! An unexpected exit leads to `Backoff` instead of `Exited` where the restart policy requires another child. `Backoff` leads to `Starting` when
//! the delay is over, or to `Exited` when a stop comes first.
//!
//! Invariants, which the tests check:
//! - `Exited` is final: only `Start` leaves it;
//! - a child gets SIGTERM at most once, and after it no signal but SIGKILL;
//! - there is never a second child while one is running;
//! - a requested stop is never lost, also when the request came before the child;
//! - every state with a stop moves on after some time, except `Draining` without a deadline, which waits for jobs, and `Killed`.

use std::{mem, sync::Arc, time::Duration};

use super::{
    callback::Callback,
    end::End,
    event::{Answer, Context, Effect, Event, Refusal},
    process::{Exit, Signal},
    state::{ChildInfo, LastLines, Phase, RefusedSignal, State, Supervision},
    statistics::{Counted, ExitReason},
    stop::{Mode, StopId, StopOutcome},
    stop_transitions::{
        Answered, begin_stop, cancel, escalate, exited, job_requests, release, request_stop, terminate,
    },
};

/// Delay before a signal that the kernel refused is sent again.
const SIGNAL_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The result of one transition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) next: Supervision,
    pub(super) effects: Vec<Effect>,
    pub(super) answer: Result<Answer, Refusal>,
}

impl Supervision {
    /// The transition of this supervision on `event`.
    pub(super) fn on(mut self, event: Event, mut context: Context<'_>) -> Step {
        let now = context.now;
        let mut state = mem::replace(&mut self.state, State::Idle);
        if let State::Stopping { stop, .. } = &mut state {
            // For the next wrapper.
            stop.aborts_jobs |= context.observation.aborts_jobs;
        }
        self.leaving |= matches!(event, Event::Leave(_));
        let child = state.child();
        let was_over = matches!(state, State::Exited { .. });
        let is_unexpected_end = matches!(
            (&state, &event),
            (State::Running { .. }, Event::Exited(_))
                | (State::Starting { stop: None }, Event::SpawnFailed(_))
        );
        let is_exit = matches!(event, Event::Exited(_));
        let is_spawn = matches!(event, Event::Spawned(_));
        let is_start = matches!(event, Event::Start);
        let is_cancel = matches!(event, Event::Cancel(_));
        let is_after_backoff = matches!((&state, &event), (State::Backoff { .. }, Event::Tick));
        // A request that joins a stop for the wrapper's shutdown also stops the child for the next wrapper.
        let is_for_shutdown = self.revive || state.stop().is_some_and(|stop| stop.id == StopId::Signal);
        let new_owner = match &event {
            Event::Stop(stop) if is_for_shutdown => Some(stop.clone()),
            Event::Leave(stop) if self.revive => Some(stop.clone()),
            _ => None,
        };
        let refused = match &event {
            Event::SignalRefused(signal, error) => Some((*signal, Arc::clone(error))),
            _ => None,
        };
        let is_tick = matches!(event, Event::Tick);
        if let State::Stopping { phase: Phase::Holding { quit_sent_at, .. }, .. } = &state {
            self.repeated_quit = quit_sent_at.is_some();
        } else if !matches!(state, State::Stopping { .. }) {
            self.repeated_quit = false;
        }
        // It has not drained, although the state says so.
        let never_drained = self.is_quit_refused() && !self.repeated_quit;
        let past_stop = state.past_stop();
        self.last_lines = self.last_lines.after(&event);
        let (state, answer) = match event {
            Event::Boot => boot(state, self.leaving, &mut context),
            Event::Start => start(state, self.leaving, &mut context),
            Event::Spawned(pid) => (spawned(state, pid, &mut context), Ok(Answer::Done)),
            Event::SpawnFailed(why) => (spawn_failed(state, why, &mut context), Ok(Answer::Done)),
            Event::Exited(exit) => (child_exited(state, exit, &mut context), Ok(Answer::Done)),
            Event::Tick => (tick(state, &mut context), Ok(Answer::Done)),
            Event::JobRequests(child, open) => {
                (job_requests(state, child, open, &mut context), Ok(Answer::Done))
            }
            Event::Stop(stop) | Event::Leave(stop) => request_stop(state, stop, &mut context),
            Event::Cancel(id) => cancel(state, id.as_ref(), (self.leaving, never_drained), &mut context),
            Event::Reload => reload(state, &mut context),
            Event::CallbackFinished(callback) => (callback_finished(state, &callback), Ok(Answer::Done)),
            Event::SignalRefused(..) | Event::LogRead(_) => (state, Ok(Answer::Done)),
        };
        self.state = state;
        self.consider_refused_signal(is_tick, refused, &mut context);
        if is_start && answer == Ok(Answer::Done) {
            self.forget_failures();
        }
        if is_cancel && answer == Ok(Answer::Done) {
            // No child was stopped for the shutdown of an earlier wrapper any more.
            self.revive = false;
        }
        if is_spawn {
            self.stable_at = (self.failures > 0).then(|| now + context.policy.restart.stable_after);
        }
        if let (Some(owner), Ok(_)) = (new_owner, &answer) {
            self.hand_over(&owner);
        }
        if is_unexpected_end {
            let uptime = child.map(|child| now.saturating_duration_since(child.started));
            self.consider_restart(uptime, now, context.policy);
        }
        self.consider_revival(now);
        self.consider_stable(now);
        if let Some(past) = past_stop.filter(|_| self.state.stop().is_none()) {
            self.last_stop = Some(Arc::new(past));
        }
        if is_exit && let (Some(pid), Some(child)) = (self.failed_child(), child) {
            self.last_lines = LastLines::Reading;
            context.add(Effect::ReadLog { pid, started: child.started });
        }
        if is_after_backoff && self.restarted && matches!(self.state, State::Starting { .. }) {
            self.restarts = self.restarts.saturating_add(1);
        }
        let is_over = matches!(self.state, State::Exited { .. });
        // A child that stopped under an earlier wrapper stays stopped under this one: it would exit with each start by the service manager.
        self.leaving |= is_over && !was_over && context.policy.leave_when_stopped;
        if is_over && self.leaving {
            context.add(Effect::Leave);
        }
        Step { next: self, effects: context.effects, answer }
    }
}

impl Supervision {
    /// Sends a signal again that was refused, if it is time. A later signal takes its place.
    fn consider_refused_signal(
        &mut self,
        is_tick: bool,
        refused: Option<(Signal, Arc<str>)>,
        context: &mut Context<'_>,
    ) {
        if let Some((signal, error)) = refused {
            let retry_at = context.now + SIGNAL_RETRY_DELAY;
            self.refused_signal = Some(RefusedSignal { signal, error, retry_at });
        }
        let is_due = |refused: &RefusedSignal| {
            is_tick && context.now >= refused.retry_at && refused.is_needed_in(&self.state)
        };
        let again =
            self.refused_signal.as_ref().filter(|refused| is_due(refused)).map(|refused| refused.signal);
        let is_sent = context.effects.iter().any(|effect| matches!(effect, Effect::Signal(_)));
        if let (Some(signal), false) = (again, is_sent) {
            context.add(Effect::Signal(signal));
            if let State::Stopping { phase: Phase::Draining { since }, .. } = &mut self.state {
                *since = context.now;
            }
        }
        let is_needed = self.refused_signal.as_ref().is_some_and(|refused| refused.is_needed_in(&self.state));
        if is_sent || again.is_some() || !is_needed {
            self.refused_signal = None;
        }
    }
}

impl LastLines {
    /// They are shown until the next start, which may fail for another reason.
    fn after(self, event: &Event) -> Self {
        match (self, event) {
            (_, Event::Spawned(_) | Event::SpawnFailed(_)) => Self::NotRead,
            (Self::Reading, Event::LogRead(lines)) => Self::Read(Arc::clone(lines)),
            (other, _) => other,
        }
    }
}

fn boot(state: State, leaving: bool, context: &mut Context<'_>) -> Answered {
    match state {
        State::Idle => start(state, leaving, context),
        // A stop came first, and is kept.
        other @ (State::Starting { .. }
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => (other, Ok(Answer::Already)),
    }
}

fn start(state: State, leaving: bool, context: &mut Context<'_>) -> Answered {
    match state {
        state if leaving => (state, Err(Refusal::Leaving)),
        State::Idle | State::Exited { .. } | State::Backoff { .. } => {
            context.add(Effect::Spawn);
            (State::Starting { stop: None }, Ok(Answer::Done))
        }
        state @ (State::Starting { stop: None } | State::Running { .. }) => (state, Ok(Answer::Already)),
        state @ (State::Starting { stop: Some(_) } | State::Stopping { .. }) => {
            (state, Err(Refusal::Stopping))
        }
    }
}

fn spawned(state: State, pid: u32, context: &mut Context<'_>) -> State {
    let child = ChildInfo { pid, started: context.now };
    match state {
        State::Starting { stop: None } => State::Running { child, reload: None },
        State::Starting { stop: Some(stop) } => begin_stop(child, stop, context),
        // Only a Spawn effect makes a child, and only in Starting.
        other @ (State::Idle
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => other,
    }
}

fn spawn_failed(state: State, why: Arc<str>, context: &mut Context<'_>) -> State {
    match state {
        State::Starting { stop } => {
            context.add(Effect::Count(Counted::Exit(ExitReason::SpawnFailed)));
            exited(End::SpawnFailed(why), stop, context)
        }
        // As for a child that was made.
        other @ (State::Idle
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => other,
    }
}

fn child_exited(state: State, exit: Exit, context: &mut Context<'_>) -> State {
    match state {
        State::Running { child, .. } => {
            context.add(Effect::Count(Counted::Exit(ExitReason::of(exit, false))));
            exited(End::Exited { pid: child.pid, exit, killed: false }, None, context)
        }
        State::Stopping { child, mut stop, phase } => {
            if stop.mode == Mode::Forceful {
                // A forceful stop leaves no process behind, whether the child exited by itself or not.
                context.add(Effect::Signal(Signal::Kill));
            }
            let killed = phase == Phase::Killed;
            context.add(Effect::Count(Counted::Exit(ExitReason::of(exit, killed))));
            let end = End::Exited { pid: child.pid, exit, killed };
            stop.outcome = Some(StopOutcome::of(&stop, &end, context.observation));
            exited(end, Some(stop), context)
        }
        // No other state has a child.
        other @ (State::Idle | State::Starting { .. } | State::Backoff { .. } | State::Exited { .. }) => {
            other
        }
    }
}

fn tick(state: State, context: &mut Context<'_>) -> State {
    let now = context.now;
    match state {
        State::Backoff { until, .. } if now >= until => {
            context.add(Effect::Spawn);
            State::Starting { stop: None }
        }
        State::Stopping { child, stop, phase } => {
            let late = stop.mode == Mode::Graceful && stop.deadline.is_some_and(|deadline| now >= deadline);
            match phase {
                Phase::Holding { .. } | Phase::AwaitingGap { .. } | Phase::Draining { .. } if late => {
                    escalate(child, stop, phase, context)
                }
                Phase::Spacing { until } if now >= until => terminate(child, stop, context),
                Phase::Terminating { until } if now >= until => {
                    context.add(Effect::Signal(Signal::Kill));
                    State::Stopping { child, stop, phase: Phase::Killed }
                }
                phase => release(State::Stopping { child, stop, phase }, context),
            }
        }
        other @ (State::Idle
        | State::Starting { .. }
        | State::Running { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => release(other, context),
    }
}

fn callback_finished(mut state: State, callback: &Callback) -> State {
    if let State::Exited { stop: Some(stop), .. } = &mut state
        && let Some(at) = stop.callbacks.iter().position(|pending| pending == callback)
    {
        let finished = stop.callbacks.swap_remove(at);
        stop.finished_callbacks.push(finished);
    }
    state
}

fn reload(state: State, context: &mut Context<'_>) -> Answered {
    match state {
        State::Running { child, reload } => {
            let until = reload.unwrap_or_else(|| child.signal_at_latest(context));
            (release(State::Running { child, reload: Some(until) }, context), Ok(Answer::Done))
        }
        // A child that is being started reads its configuration anyway. A child that is being stopped does not need it, and could lose its
        // next signal.
        other @ (State::Idle
        | State::Starting { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Exited { .. }) => (other, Ok(Answer::Already)),
    }
}
