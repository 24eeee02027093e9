//! The transitions of [`Supervision`].
//!
//! ```text
//!           Boot, Start      Spawned          Stop(graceful)              no open request
//!                                                                         SIGQUIT
//!   Idle --------> Starting ------> Running --------------> AwaitingGap -----------------> Draining
//!    |                |                |                         |                             |
//!    | Stop           | SpawnFailed    | Stop(forceful)          | Stop(forceful), deadline    | Stop(forceful), deadline
//!    v                v                v                         v                             v
//!   Exited <------- Exited       Terminating <-------------------+--------- Spacing <----------+
//!                                      | timeout                     (then Terminating)
//!                                      v
//!                                   Killed             every state with a child --Exited--> Exited
//! ```
//!
//! A refused SIGQUIT leads from `Draining` back to `AwaitingGap`. `Cancel` leads back to `Running` before SIGQUIT. The wait of `AwaitingGap` also
//! ends after some time.
//!
//! systemd starts the child of a unit at any time, which leads to `Running`, and restarts it: an unexpected exit leads to `Backoff` instead of `Exited`,
//! and then to `Running`, or to `Exited` when systemd gives up or a stop comes first.
//!
//! Invariants, which the tests check:
//! - `Exited` is final: only `Start` leaves it;
//! - a child gets SIGTERM at most once, and after it no signal but SIGKILL;
//! - there is never a second child while one is running;
//! - a requested stop is never lost;
//! - every state with a stop moves on after some time, except `Draining` without a deadline, which waits for jobs, and `Killed`.

use std::{mem, sync::Arc, time::Duration};

use super::{
    callback::Callback,
    end::End,
    event::{Answer, Context, Effect, Event, Refusal},
    moment::Moment,
    observation::Observation,
    policy::{Policy, STABLE_AFTER},
    state::{ChildInfo, PastStop, Phase, Restarts, State, Supervision},
    stop::{EndedStop, Mode, Stop, StopId, StopOutcome},
};
use crate::supervise::process::{Exit, Signal};

/// Delay before a signal that the kernel refused is sent again.
pub(super) const SIGNAL_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The number of consecutive failures that is a crash loop.
const CRASH_LOOP: u32 = 5;

/// The answer to a request. An event that is no request is always done.
pub(super) type Answered = Result<Answer, Refusal>;

/// The result of one transition.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: Supervision,
    pub effects: Vec<Effect>,
    pub answer: Result<Answer, Refusal>,
}

impl Supervision {
    /// The transition of this supervision on `event`.
    #[must_use]
    pub fn on(mut self, event: Event, mut context: Context<'_>) -> Step {
        let cx = &mut context;
        let mut answer = Ok(Answer::Done);
        // The state is written before its effects, so that the next wrapper learns of every effect. But a gap between job requests can last for
        // milliseconds: without SIGQUIT in the state, the next wrapper waits for a gap again, and a second SIGQUIT has no effect.
        let is_gap = matches!(event, Event::JobRequests(..));
        match event {
            Event::Boot if self.state != State::Idle => answer = Ok(Answer::Already),
            Event::Boot | Event::Start => answer = self.start(cx),
            Event::Spawned(child) => self.spawned(child),
            Event::SpawnFailed(why) => self.spawn_failed(why, cx),
            Event::Exited(exit) => self.exited(exit, cx),
            Event::Appeared(child) => self.appeared(child, cx),
            Event::NotRestarted => self.not_restarted(cx),
            Event::Stop(_) | Event::Leave(_) if self.may_have_child(cx) => {
                cx.add(Effect::Look(Box::new(event)));
            }
            Event::Looked(request) => answer = self.looked(*request, cx),
            Event::SignalSent(signal) => self.signal_sent(signal, cx),
            Event::SignalRefused(signal, error) => self.signal_refused(signal, &error, cx),
            Event::Tick => self.tick(cx),
            Event::Observed(child, observed) => self.observed(child, observed, cx),
            Event::JobRequests(child, read) => self.job_requests(child, read, cx),
            Event::RequestsCancelled(child, cancelled) => self.requests_cancelled(child, cancelled),
            Event::Stop(stop) => answer = self.request_stop(stop, cx),
            Event::Leave(stop) => answer = self.leave(stop, cx),
            Event::Cancel(request) => answer = self.cancel(request, cx),
            Event::Reload => answer = self.reload(cx),
            Event::CallbackFinished(callback) => self.callback_finished(&callback),
            Event::LogRead(line) => self.log_read(line),
            Event::Saved(error) => self.save_error = error,
        }
        let mut effects = context.effects;
        effects.insert(if is_gap { effects.len() } else { 0 }, Effect::Save);
        Step { next: self, effects, answer }
    }

    /// Whether children keep failing before they are stable.
    pub fn is_crash_loop(&self, now: Moment) -> bool {
        let is_stable = self.state.child().is_some_and(|child| now.since(child.started) >= STABLE_AFTER);
        self.restarts.failures >= CRASH_LOOP && !is_stable
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Answered {
        match &self.state {
            _ if self.leaving => Err(Refusal::Leaving),
            State::Idle | State::Exited { .. } | State::Backoff { .. } => {
                // Failures of earlier children no longer count.
                self.restarts = Restarts::default();
                self.spawn(cx);
                Ok(Answer::Done)
            }
            State::Starting | State::Running { .. } => Ok(Answer::Already),
            State::Stopping { .. } => Err(Refusal::Stopping),
        }
    }

    fn spawn(&mut self, cx: &mut Context<'_>) {
        cx.add(Effect::Spawn);
        self.observed = Observation::default();
        if let State::Exited { end, stop: Some(stop) } = mem::replace(&mut self.state, State::Starting) {
            self.last_stop = Some(Arc::new(PastStop { stop, end }));
        }
    }

    fn spawned(&mut self, child: ChildInfo) {
        if self.state == State::Starting {
            self.last_error = None;
            self.state = State::Running { child, reload_at: None };
        }
    }

    fn spawn_failed(&mut self, why: Arc<str>, cx: &mut Context<'_>) {
        if !matches!(self.state, State::Starting) {
            return;
        }
        self.last_error = None;
        self.failed(End::SpawnFailed(why), None, cx);
    }

    fn exited(&mut self, exit: Exit, cx: &mut Context<'_>) {
        let child = match mem::take(&mut self.state) {
            State::Running { child, .. } => {
                cx.add(Effect::Exited(exit, None));
                let end = End::Exited { pid: child.pid(), exit, killed: false };
                self.failed(end, Some(cx.now.since(child.started)), cx);
                child
            }
            State::Stopping { child, mut stop, phase } => {
                let killed = matches!(phase, Phase::Killed);
                let end = End::Exited { pid: child.pid(), exit, killed };
                stop.lost_results |= self.observed.has_lost_results(cx.now);
                stop.outcome = Some(StopOutcome::of(&stop, &end));
                cx.add(Effect::Exited(exit, Some(Arc::new(stop.clone()))));
                // A runner of a wrapper that was killed. No client has requested its stop, so that another one follows.
                let is_replaced = stop.id == StopId::Signal && !self.leaving && !cx.policy.by_unit;
                if is_replaced {
                    cx.add(Effect::Count(EndedStop::new(&stop)));
                    self.state = State::Exited { end, stop: Some(stop) };
                    return self.spawn(cx);
                }
                self.end(end, Some(stop), cx);
                child
            }
            other => return self.state = other,
        };
        if self.failed_child().is_some() {
            cx.add(Effect::ReadLog(child));
        }
    }

    /// systemd has started this child: at the boot of the host, for a person, or again after an exit. After a stop of a client, that stop goes on: only a
    /// request of a client ends it.
    fn appeared(&mut self, child: ChildInfo, cx: &mut Context<'_>) {
        match mem::take(&mut self.state) {
            // Its exit is an event before.
            state @ (State::Running { .. } | State::Stopping { .. }) => return self.state = state,
            State::Backoff { .. } => {
                self.restarts.count = self.restarts.count.saturating_add(1);
                self.restarts.automatic = true;
            }
            State::Exited { end, stop: Some(stop) } if stop.id == StopId::Signal => {
                self.last_stop = Some(Arc::new(PastStop { stop, end }));
                self.restarts = Restarts::default();
            }
            State::Exited { stop: Some(stop), .. } => {
                self.observed = Observation::default();
                let stop = Stop { mode: Mode::Graceful, deadline: None, outcome: None, ..stop };
                return self.begin_stop(child, stop, cx);
            }
            State::Idle | State::Starting | State::Exited { stop: None, .. } => {}
        }
        self.observed = Observation::default();
        self.last_error = None;
        self.state = State::Running { child, reload_at: None };
    }

    /// systemd may have started a child that this state does not have.
    fn may_have_child(&self, cx: &Context<'_>) -> bool {
        cx.policy.by_unit && matches!(self.state, State::Idle | State::Backoff { .. } | State::Exited { .. })
    }

    fn looked(&mut self, request: Event, cx: &mut Context<'_>) -> Answered {
        match request {
            Event::Stop(stop) => self.request_stop(stop, cx),
            Event::Leave(stop) => self.leave(stop, cx),
            _ => Ok(Answer::Already),
        }
    }

    fn not_restarted(&mut self, cx: &mut Context<'_>) {
        match mem::take(&mut self.state) {
            State::Backoff { end } => self.end(end, None, cx),
            State::Idle => self.end(End::NeverStarted, None, cx),
            other => self.state = other,
        }
    }

    /// The child ended unexpectedly, after this time, or could not be started. systemd restarts the child of a unit.
    fn failed(&mut self, end: End, uptime: Option<Duration>, cx: &mut Context<'_>) {
        if uptime.is_some_and(|uptime| uptime >= STABLE_AFTER) {
            self.restarts.failures = 0;
        }
        self.restarts.failures = self.restarts.failures.saturating_add(1);
        if cx.policy.by_unit && uptime.is_some() && !self.leaving {
            self.state = State::Backoff { end };
        } else {
            self.end(end, None, cx);
        }
    }

    /// There is no child, and none follows before a request. The stop, if any, is over. A stop without an outcome met no child.
    pub(super) fn end(&mut self, end: End, mut stop: Option<Stop>, cx: &mut Context<'_>) {
        if let Some(stop) = &mut stop {
            stop.outcome.get_or_insert(StopOutcome::NoRunner);
            cx.add(Effect::Count(EndedStop::new(stop)));
            cx.effects.extend(stop.callbacks.iter().cloned().map(Effect::Callback));
        }
        self.state = State::Exited { end, stop };
        self.leaving |= cx.policy.leave_when_stopped && !self.is_held();
        if self.leaving {
            cx.add(Effect::Leave);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        match &self.state {
            State::Running { .. } => self.send_due_reload(cx),
            State::Stopping { .. } => self.advance_stop(cx),
            State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => {}
        }
    }

    fn observed(&mut self, of: ChildInfo, observed: Observation, cx: &Context<'_>) {
        if self.state.child() == Some(of) {
            // A child that has begun to abort its jobs does not stop that.
            let aborts_jobs = self.observed.aborts_jobs || observed.aborts_jobs;
            let lost_results = self.observed.has_lost_results(cx.now);
            self.observed = Observation { aborts_jobs, ..observed };
            if let State::Stopping { stop, .. } = &mut self.state {
                // For the outcome.
                stop.aborts_jobs |= aborts_jobs;
                stop.lost_results |= lost_results;
            }
        }
    }

    /// The time until the next signal counts from the sending: a slow disk may have delayed the state file for seconds before it.
    fn signal_sent(&mut self, signal: Signal, cx: &Context<'_>) {
        self.signal_error = None;
        let timeout = cx.termination_timeout(self.observed);
        let State::Stopping { phase, .. } = &mut self.state else { return };
        match (phase, signal) {
            (Phase::Draining { since, .. }, Signal::Drain) => *since = cx.now,
            (Phase::Terminating { until }, Signal::Terminate) => *until = cx.now + timeout,
            _ => {}
        }
    }

    /// SIGQUIT is sent again after another wait for a gap, and SIGKILL after a delay. SIGKILL follows a refused SIGTERM.
    fn signal_refused(&mut self, signal: Signal, error: &str, cx: &Context<'_>) {
        self.signal_error = Some(Arc::from(format!("{signal}: {error}")));
        let State::Stopping { stop, phase, .. } = &mut self.state else { return };
        match (&*phase, signal) {
            (&Phase::Draining { since, repeated }, Signal::Drain) => {
                if !repeated {
                    // This was the number at a SIGQUIT that the runner has not received.
                    stop.open_requests = None;
                    stop.unconfirmed = false;
                }
                let quit_sent_at = repeated.then_some(since);
                *phase = Phase::awaiting_gap(cx.now + SIGNAL_RETRY_DELAY, quit_sent_at, cx.policy);
            }
            // SIGKILL follows.
            (Phase::Terminating { .. }, Signal::Terminate) | (Phase::Killed, Signal::Kill) => {
                *phase = Phase::Terminating { until: cx.now + SIGNAL_RETRY_DELAY };
            }
            _ => {}
        }
    }

    fn callback_finished(&mut self, callback: &Callback) {
        if let State::Exited { stop: Some(stop), .. } = &mut self.state
            && stop.finish_callback(callback)
        {
            return;
        }
        if let Some(past) = &mut self.last_stop {
            Arc::make_mut(past).stop.finish_callback(callback);
        }
    }

    fn log_read(&mut self, line: Arc<str>) {
        if self.failed_child().is_some() {
            self.last_error = Some(line);
        }
    }

    fn reload(&mut self, cx: &mut Context<'_>) -> Answered {
        match &mut self.state {
            State::Running { child, reload_at } => {
                *reload_at = Some(child.signal_at(cx.now, cx.policy));
                self.send_due_reload(cx);
                Ok(Answer::Done)
            }
            // A child that is being started reads its configuration anyway. A child that is being stopped does not need it, and could lose its
            // next signal.
            State::Idle
            | State::Starting
            | State::Stopping { .. }
            | State::Backoff { .. }
            | State::Exited { .. } => Ok(Answer::Already),
        }
    }

    fn send_due_reload(&mut self, cx: &mut Context<'_>) {
        if let State::Running { reload_at, .. } = &mut self.state
            && reload_at.is_some_and(|at| cx.now >= at)
        {
            *reload_at = None;
            cx.add(Effect::Signal(Signal::Reload));
        }
    }
}

impl ChildInfo {
    /// When the child can take SIGQUIT and SIGHUP.
    pub(super) fn signal_at(&self, now: Moment, policy: &Policy) -> Moment {
        now.max(self.started + policy.start_grace)
    }
}

impl Phase {
    /// SIGQUIT waits for a gap between the job requests, which is looked for from `not_before` on.
    pub(crate) fn awaiting_gap(not_before: Moment, quit_sent_at: Option<Moment>, policy: &Policy) -> Self {
        Self::AwaitingGap {
            not_before,
            until: not_before + policy.request_gap_timeout,
            open: None,
            quit_sent_at,
        }
    }
}
