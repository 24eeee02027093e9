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

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    command::{Answer, Mode, Refusal, Stop},
    policy::Policy,
};
use crate::{
    callback::Callback,
    process::{Exit, Signal},
};

/// Everything that is true about the child and its supervision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervision {
    pub state: State,
    /// The wrapper was asked to end.
    pub leaving: bool,
    /// The stop that is under way was for the end of an earlier wrapper: another child follows.
    pub revive: bool,
    /// How often a child was started because another had ended by itself.
    pub restarts: u32,
    /// How many of the last children in a row ended by themselves before they were stable.
    pub failures: u32,
}

impl Default for Supervision {
    fn default() -> Self {
        Self { state: State::Idle, leaving: false, revive: false, restarts: 0, failures: 0 }
    }
}

/// So many failures in a row are no accident.
const CRASH_LOOP: u32 = 5;

/// Where the child is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No child was started yet.
    Idle,
    /// A child is being made. A stop that comes now waits here for it.
    Starting { stop: Option<Stop> },
    /// It runs. `reload` is a SIGHUP that waits, until then at most, for the child to be old enough for signals.
    Running { child: ChildInfo, reload: Option<Instant> },
    /// It is on its way out.
    Stopping { child: ChildInfo, stop: Stop, phase: Phase },
    /// It ended by itself, and another is started at `until`.
    Backoff { until: Instant, end: End },
    /// It has ended, or was never started. `stop` is the one that asked for it.
    Exited { end: End, stop: Option<Stop> },
}

/// A child that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildInfo {
    pub pid: u32,
    pub started: Instant,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Graceful. SIGQUIT waits for the child to handle it, but not past `until`.
    Holding { until: Instant },
    /// Graceful. SIGQUIT was sent; the child finishes its jobs.
    Draining { since: Instant },
    /// Forceful. SIGTERM waits until the child has surely taken SIGQUIT.
    Spacing { until: Instant },
    /// Forceful. SIGTERM was sent; the group is killed at `until`.
    Terminating { until: Instant },
    /// SIGKILL was sent to the group.
    Killed,
}

/// How it came that there is no child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The stop came before the first start.
    NeverStarted,
    /// It could not be started, for this reason.
    SpawnFailed(Arc<str>),
    /// The process ended by itself or as asked; `killed` when it was killed because it took too long.
    Exited { pid: u32, exit: Exit, killed: bool },
}

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
}

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Spawn,
    Signal(Signal),
    KillGroup,
    Callback(Callback),
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
        let Self { state, leaving, revive, restarts, failures } = self;
        let leaving = leaving || matches!(event, Event::Leave(_));
        let lived = state.child().map(|child| now.saturating_duration_since(child.started));
        let by_itself = matches!(
            (&state, &event),
            (State::Running { .. }, Event::Ended(_))
                | (State::Starting { stop: None }, Event::SpawnFailed(_))
        );
        let waited = matches!((&state, &event), (State::Backoff { .. }, Event::Tick));
        let new_owner = match &event {
            Event::Stop(stop) | Event::Leave(stop) if revive => Some(Arc::clone(&stop.id)),
            _ => None,
        };
        let mut effects = Vec::new();
        let (state, answer) = match event {
            Event::Boot => boot(state, leaving, &mut effects),
            Event::Start => start(state, leaving, &mut effects),
            Event::Spawned(pid) => (spawned(state, pid, now, policy, &mut effects), Ok(Answer::Done)),
            Event::SpawnFailed(why) => (spawn_failed(state, why, &mut effects), Ok(Answer::Done)),
            Event::Ended(exit) => (ended(state, exit, &mut effects), Ok(Answer::Done)),
            Event::HandlesQuit => (release(state, now, policy, false, &mut effects), Ok(Answer::Done)),
            Event::Tick => (tick(state, now, policy, &mut effects), Ok(Answer::Done)),
            Event::Stop(stop) | Event::Leave(stop) => request_stop(state, stop, now, policy, &mut effects),
            Event::Cancel(id) => cancel(state, &id, leaving),
            Event::Reload => reload(state, now, policy),
            Event::Called(callback) => (called(state, &callback), Ok(Answer::Done)),
        };
        let mut next = Self { state, leaving, revive, restarts, failures };
        if let Some(owner) = new_owner {
            next.hand_over(owner);
        }
        if by_itself {
            next.consider_restart(lived, now, policy);
        }
        next.consider_revival(now);
        if waited && matches!(next.state, State::Starting { .. }) {
            next.restarts = next.restarts.saturating_add(1);
        }
        let exited = matches!(next.state, State::Exited { .. });
        next.leaving |= exited && policy.leave_when_stopped;
        if exited && next.leaving {
            effects.push(Effect::Leave);
        }
        Step { next, effects, answer }
    }

    /// Turns an end that nobody asked for into a pause before the next child, where the policy wants one.
    fn consider_restart(&mut self, lived: Option<Duration>, now: Instant, policy: &Policy) {
        let State::Exited { end, stop: None } = &self.state else { return };
        if lived.is_some_and(|lived| lived >= policy.restart.stable_after) {
            self.failures = 0;
        }
        if policy.restart.wants(end.is_success()) && !self.leaving {
            let until = now + policy.restart.delay(self.failures);
            self.state = State::Backoff { until, end: end.clone() };
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// The stop of an earlier wrapper's end becomes that of somebody who wants the child stopped.
    fn hand_over(&mut self, owner: Arc<str>) {
        self.revive = false;
        if let State::Stopping { stop, .. } = &mut self.state {
            stop.id = owner;
        }
    }

    /// An earlier wrapper stopped its child for its own end only, and that has come.
    fn consider_revival(&mut self, now: Instant) {
        if let State::Exited { end, .. } = &self.state
            && self.revive
        {
            self.revive = false;
            self.state = State::Backoff { until: now, end: end.clone() };
        }
    }

    /// Whether children keep ending before they were of use, one after the other.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        self.failures >= CRASH_LOOP
    }

    /// When a [`Event::Tick`] will change something, if ever.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Idle | State::Starting { .. } | State::Exited { .. } => None,
            State::Running { reload, .. } => *reload,
            State::Backoff { until, .. } => Some(*until),
            State::Stopping { stop, phase, .. } => match *phase {
                Phase::Holding { until } => Some(stop.deadline.map_or(until, |deadline| deadline.min(until))),
                Phase::Draining { .. } => stop.deadline,
                Phase::Spacing { until } | Phase::Terminating { until } => Some(until),
                Phase::Killed => None,
            },
        }
    }

    /// Whether a signal waits for the child to handle it.
    #[must_use]
    pub fn holds_signal(&self) -> bool {
        matches!(
            self.state,
            State::Running { reload: Some(_), .. } | State::Stopping { phase: Phase::Holding { .. }, .. }
        )
    }
}

impl State {
    /// One word for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Stopping { phase, .. } => match phase {
                Phase::Holding { .. } => "holding",
                Phase::Draining { .. } => "draining",
                Phase::Spacing { .. } | Phase::Terminating { .. } => "forcing",
                Phase::Killed => "killed",
            },
            Self::Backoff { .. } => "backoff",
            Self::Exited { .. } => "stopped",
        }
    }

    /// The stop that is under way or was, if there is one.
    #[must_use]
    pub fn stop(&self) -> Option<&Stop> {
        match self {
            Self::Starting { stop } | Self::Exited { stop, .. } => stop.as_ref(),
            Self::Stopping { stop, .. } => Some(stop),
            Self::Idle | Self::Running { .. } | Self::Backoff { .. } => None,
        }
    }

    /// Callbacks of a stop that is over, which were not made yet.
    pub(super) fn unmade_callbacks(&self) -> Vec<Callback> {
        match self {
            Self::Exited { stop: Some(stop), .. } => stop.callbacks.clone(),
            _ => Vec::new(),
        }
    }

    /// The child, while there is one.
    #[must_use]
    pub fn child(&self) -> Option<ChildInfo> {
        match self {
            Self::Running { child, .. } | Self::Stopping { child, .. } => Some(*child),
            Self::Idle | Self::Starting { .. } | Self::Backoff { .. } | Self::Exited { .. } => None,
        }
    }
}

impl End {
    fn is_success(&self) -> bool {
        match self {
            Self::NeverStarted => true,
            Self::SpawnFailed(_) => false,
            Self::Exited { exit, killed, .. } => exit.is_success() && !killed,
        }
    }

    /// What is to be told about this end; `None` when all is well.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::NeverStarted => None,
            Self::SpawnFailed(why) => Some(format!("failed to start process: {why}")),
            Self::Exited { exit, killed: true, .. } => {
                Some(format!("{exit}: killed, because it did not end in time after SIGTERM"))
            }
            Self::Exited { exit, .. } if exit.is_success() => None,
            Self::Exited { exit, .. } => Some(exit.to_string()),
        }
    }
}

impl ChildInfo {
    /// Until when a signal may be held back from this child.
    fn patience(self, now: Instant, policy: &Policy) -> Instant {
        now.max(self.started + policy.start_grace) + policy.handler_wait
    }
}

type Answered = (State, Result<Answer, Refusal>);

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
        State::Stopping { child, stop, phase } => {
            if stop.mode == Mode::Forceful {
                // A forceful stop leaves nothing behind, whether the leader ended by itself or not.
                effects.push(Effect::KillGroup);
            }
            let killed = phase == Phase::Killed;
            exited(End::Exited { pid: child.pid, exit, killed }, Some(stop), effects)
        }
        // Nothing else has a child that could end.
        other @ (State::Idle | State::Starting { .. } | State::Backoff { .. } | State::Exited { .. }) => {
            other
        }
    }
}

fn exited(end: End, stop: Option<Stop>, effects: &mut Vec<Effect>) -> State {
    effects.extend(stop.iter().flat_map(|stop| &stop.callbacks).cloned().map(Effect::Callback));
    State::Exited { end, stop }
}

fn request_stop(
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
            let answer = join(&mut stop, &wish).map(|_| Answer::Already);
            if answer.is_ok() && wish.mode == Mode::Forceful {
                stop.mode = Mode::Forceful;
            }
            (State::Starting { stop: Some(stop) }, answer)
        }
        State::Running { child, .. } => (begin_stop(child, wish, now, policy, effects), Ok(Answer::Done)),
        State::Stopping { child, mut stop, phase } => {
            if let Err(refusal) = join(&mut stop, &wish) {
                return (State::Stopping { child, stop, phase }, Err(refusal));
            }
            if wish.mode == Mode::Forceful && stop.mode == Mode::Graceful {
                return (escalate(child, stop, phase, now, policy, effects), Ok(Answer::Done));
            }
            (State::Stopping { child, stop, phase }, Ok(Answer::Already))
        }
        // The child that was waited for will not be started.
        State::Backoff { end, .. } => (exited(end, Some(wish), effects), Ok(Answer::Done)),
        State::Exited { end, stop } => {
            // Whoever asks for a callback after the end would wait for ever if it were only kept.
            let mut known = stop.unwrap_or_else(|| Stop { callbacks: Vec::new(), ..wish.clone() });
            match join(&mut known, &wish) {
                Ok(new) => {
                    effects.extend(new.into_iter().map(Effect::Callback));
                    (State::Exited { end, stop: Some(known) }, Ok(Answer::Already))
                }
                Err(refusal) => (State::Exited { end, stop: Some(known) }, Err(refusal)),
            }
        }
    }
}

/// Adds the callbacks of `wish` that `stop` does not have, and answers which those are.
fn join(stop: &mut Stop, wish: &Stop) -> Result<Vec<Callback>, Refusal> {
    let is_new = |callback: &&Callback| !stop.callbacks.contains(callback) && !stop.called.contains(callback);
    let new: Vec<_> = wish.callbacks.iter().filter(is_new).cloned().collect();
    if stop.callbacks.len() + stop.called.len() + new.len() > Stop::MAX_CALLBACKS {
        return Err(Refusal::TooManyCallbacks);
    }
    stop.callbacks.extend(new.iter().cloned());
    Ok(new)
}

fn begin_stop(
    child: ChildInfo,
    stop: Stop,
    now: Instant,
    policy: &Policy,
    effects: &mut Vec<Effect>,
) -> State {
    match stop.mode {
        Mode::Graceful => {
            let phase = Phase::Holding { until: child.patience(now, policy) };
            State::Stopping { child, stop, phase }
        }
        Mode::Forceful => terminate(child, stop, now, policy, effects),
    }
}

/// A graceful stop becomes a forceful one.
fn escalate(
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
        Phase::Holding { .. } => terminate(child, stop, now, policy, effects),
        Phase::Draining { since } => {
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
fn terminate(
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
fn release(state: State, now: Instant, policy: &Policy, anyway: bool, effects: &mut Vec<Effect>) -> State {
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
                Phase::Holding { until } if now >= until => {
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

fn cancel(state: State, id: &str, leaving: bool) -> Answered {
    match state {
        // The wrapper's own end is not to be taken back.
        state if leaving => (state, Err(Refusal::Leaving)),
        state @ (State::Starting { stop: Some(_) } | State::Stopping { .. })
            if !id.is_empty() && state.stop().is_some_and(|stop| *stop.id != *id) =>
        {
            (state, Err(Refusal::OtherStop))
        }
        State::Starting { stop: Some(_) } => (State::Starting { stop: None }, Ok(Answer::Done)),
        State::Stopping { child, phase: Phase::Holding { .. }, .. } => {
            (State::Running { child, reload: None }, Ok(Answer::Done))
        }
        state @ State::Stopping { .. } => (state, Err(Refusal::TooLate)),
        other => (other, Err(Refusal::NotStopping)),
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
