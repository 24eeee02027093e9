//! The transitions that stop a child: a stop is requested, joined, held back, signalled, made forceful, and cancelled.

use std::sync::Arc;

use super::{
    callback::Callback,
    continuation::LOST,
    end::End,
    event::{Answer, Cancel, Context, Effect, Refusal},
    moment::Moment,
    observation::{RequestsCancelled, RequestsRead},
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Cancelled, EndedStop, Mode, Stop, StopId, StopOutcome},
    transition::Answered,
};
use crate::supervise::process::Signal;

impl Supervision {
    pub(super) fn leave(&mut self, stop: Stop, cx: &mut Context<'_>) -> Answered {
        if let State::Starting = self.state {
            return Err(Refusal::Starting);
        }
        self.leaving = true;
        if let State::Exited { .. } = self.state {
            cx.add(Effect::Leave);
        }
        self.request_stop(stop, cx)
    }

    pub(super) fn request_stop(&mut self, request: Stop, cx: &mut Context<'_>) -> Answered {
        match std::mem::take(&mut self.state) {
            State::Idle => {
                self.end(End::NeverStarted, Some(request), cx);
                Ok(Answer::Done)
            }
            State::Running { child, .. } => {
                self.cancelled = None;
                self.begin_stop(child, request, cx);
                Ok(Answer::Done)
            }
            // The restart is cancelled.
            State::Backoff { end } => {
                self.end(end, Some(request), cx);
                Ok(Answer::Done)
            }
            State::Stopping { child, mut stop, phase } => {
                let answer = stop.join(&request);
                if answer.is_ok() && request.mode == Mode::Forceful && stop.mode == Mode::Graceful {
                    stop.forced_by = request.requested_by;
                    self.escalate(child, stop, phase, cx);
                } else {
                    self.state = State::Stopping { child, stop, phase };
                }
                answer
            }
            State::Exited { end, stop } => {
                let is_first = stop.is_none();
                // The runner has exited, so that its callbacks are due now.
                let fresh = || Stop {
                    callbacks: Vec::new(),
                    outcome: Some(StopOutcome::NoRunner),
                    ..request.clone()
                };
                let mut stop = stop.unwrap_or_else(fresh);
                stop.take_request_of_client(&request);
                let new = stop.add_callbacks(&request);
                if is_first && new.is_ok() {
                    cx.add(Effect::Count(EndedStop::new(&stop)));
                }
                self.state = State::Exited { end, stop: Some(stop) };
                cx.effects.extend(new?.into_iter().map(Effect::Callback));
                Ok(Answer::Already)
            }
            // The task handles no request before the child is there.
            state @ State::Starting => {
                self.state = state;
                Err(Refusal::Starting)
            }
        }
    }

    pub(super) fn begin_stop(&mut self, child: ChildInfo, mut stop: Stop, cx: &mut Context<'_>) {
        stop.aborts_jobs |= self.observed.aborts_jobs;
        match stop.mode {
            Mode::Graceful => {
                let phase = Phase::awaiting_gap(child.signal_at(cx.now, cx.policy), None, cx.policy);
                self.state = State::Stopping { child, stop, phase };
                self.advance_stop(cx);
            }
            Mode::Forceful => self.terminate(child, stop, cx),
        }
    }

    /// Makes a graceful stop forceful.
    fn escalate(&mut self, child: ChildInfo, mut stop: Stop, phase: Phase, cx: &mut Context<'_>) {
        stop.mode = Mode::Forceful;
        let quit_sent_at = match phase {
            Phase::AwaitingGap { quit_sent_at, .. } => quit_sent_at,
            Phase::Draining { since, .. } => Some(since),
            Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => {
                return self.state = State::Stopping { child, stop, phase };
            }
        };
        // Without SIGQUIT, SIGTERM can follow at once. A child that is too young to handle SIGTERM has no jobs.
        match quit_sent_at.map(|sent| sent + cx.policy.signal_spacing) {
            Some(until) if cx.now < until => {
                self.state = State::Stopping { child, stop, phase: Phase::Spacing { until } };
            }
            Some(_) | None => self.terminate(child, stop, cx),
        }
    }

    /// The only place that sends SIGTERM first. No later phase leads here again. A second SIGTERM would skip the runner's cleanup: none is sent if
    /// the runner aborts its jobs already, because another process sent one, or a wrapper that was killed before it could save that it did.
    fn terminate(&mut self, child: ChildInfo, stop: Stop, cx: &mut Context<'_>) {
        if !self.observed.aborts_jobs {
            cx.add(Effect::Signal(Signal::Terminate));
        }
        let until = cx.now + cx.termination_timeout(self.observed);
        self.state = State::Stopping { child, stop, phase: Phase::Terminating { until } };
    }

    /// Time has passed: makes a late stop forceful, and sends the signal that is due.
    pub(super) fn advance_stop(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let (child, stop, mut phase) = match std::mem::take(&mut self.state) {
            State::Stopping { child, stop, phase } => (child, stop, phase),
            other => return self.state = other,
        };
        match phase {
            _ if stop.is_late(now) => return self.escalate(child, stop, phase, cx),
            Phase::AwaitingGap { until, open, quit_sent_at, .. } if now >= until => {
                // No read has shown a number of this runner, which reports them. Without a timeout, nothing was read in this stop: the reads after
                // SIGQUIT may show that no request was cancelled.
                let reports = !cx.policy.request_gap_timeout.is_zero() || self.observed.reports_requests;
                let unconfirmed = open.is_none() && reports;
                return self.quit(child, stop, open, unconfirmed, quit_sent_at, cx);
            }
            Phase::Spacing { until } if now >= until => return self.terminate(child, stop, cx),
            Phase::Terminating { until } if now >= until => {
                cx.add(Effect::Signal(Signal::Kill));
                phase = Phase::Killed;
            }
            _ => {}
        }
        self.state = State::Stopping { child, stop, phase };
    }

    /// A number of open job requests was read, or cannot be read.
    pub(super) fn job_requests(&mut self, of: ChildInfo, read: RequestsRead, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Stopping {
                child,
                stop,
                phase: Phase::AwaitingGap { not_before, open, quit_sent_at, .. },
            } if *child == of && cx.now >= *not_before => {
                if read.open > Some(0) {
                    *open = read.open;
                } else if cx.now.since(read.ended) <= RequestsRead::MAX_AGE {
                    let (child, stop, quit_sent_at) = (*child, stop.clone(), *quit_sent_at);
                    self.quit(child, stop, read.open, read.may_begin, quit_sent_at, cx);
                }
            }
            // The child has sent a request between the read before, after which SIGQUIT was sent, and this one.
            State::Stopping { child, stop, phase: Phase::Draining { .. } }
                if *child == of && read.open > Some(0) =>
            {
                stop.open_requests = stop.open_requests.max(read.open);
            }
            // It was read for a wait that is over.
            _ => {}
        }
    }

    /// What the child has counted after SIGQUIT is true, whatever was read before it.
    pub(super) fn requests_cancelled(&mut self, of: ChildInfo, cancelled: RequestsCancelled) {
        match &mut self.state {
            State::Stopping { child, stop, phase: Phase::Draining { repeated, .. } } if *child == of => {
                let RequestsCancelled { number, is_final } = cancelled;
                if *repeated {
                    stop.open_requests =
                        stop.open_requests.max(Some(number).filter(|_| is_final || number > 0));
                } else if is_final || number > 0 {
                    stop.open_requests = Some(number);
                }
                stop.unconfirmed &= !is_final;
            }
            // It was read for a stop that is over.
            _ => {}
        }
    }

    /// A child that aborts its jobs would exit immediately, without its cleanup: it gets no SIGQUIT. `open`: the job requests that are open now.
    /// `unconfirmed`: others may be open. `earlier`: when a previous wrapper may have sent SIGQUIT.
    fn quit(
        &mut self,
        child: ChildInfo,
        mut stop: Stop,
        open: Option<u32>,
        unconfirmed: bool,
        earlier: Option<Moment>,
        cx: &mut Context<'_>,
    ) {
        stop.open_requests = open.max(stop.open_requests.filter(|_| earlier.is_some()));
        if earlier.is_none() {
            stop.unconfirmed = unconfirmed;
        }
        if !self.observed.aborts_jobs {
            cx.add(Effect::Signal(Signal::Drain));
        }
        let phase = Phase::Draining { since: cx.now, repeated: earlier.is_some() };
        self.state = State::Stopping { child, stop, phase };
    }

    pub(super) fn cancel(&mut self, Cancel { id, by }: Cancel, cx: &mut Context<'_>) -> Answered {
        let State::Stopping { child, stop, phase } = &self.state else {
            return Err(if self.leaving { Refusal::Leaving } else { Refusal::NotStopping });
        };
        let is_signalled = match phase {
            Phase::AwaitingGap { quit_sent_at, .. } => quit_sent_at.is_some(),
            _ => true,
        };
        if self.leaving {
            // The shutdown of the wrapper cannot be cancelled.
            return Err(Refusal::Leaving);
        }
        if id.is_some_and(|id| stop.id != id) {
            return Err(Refusal::OtherStop);
        }
        if is_signalled {
            return Err(Refusal::TooLate);
        }
        cx.add(Effect::Count(EndedStop::new(stop)));
        self.cancelled = Some(Arc::new(Cancelled { id: stop.id.clone(), by, at: cx.now }));
        self.state = State::Running { child: *child, reload_at: None };
        Ok(Answer::Done)
    }
}

impl Stop {
    /// Joins `request` to this stop, which is in progress: adds its callbacks, and its deadline where that is earlier. If a client joins a shutdown
    /// of the wrapper, the runner stays stopped under the next wrapper.
    fn join(&mut self, request: &Self) -> Answered {
        self.add_callbacks(request)?;
        let joined = self.id.clone();
        if self.mode == Mode::Graceful {
            self.deadline = self.deadline.into_iter().chain(request.deadline).min();
        }
        self.take_request_of_client(request);
        Ok(Answer::Joined(joined))
    }

    /// A client joins a stop of the service manager, or one of which nothing is known: from now on, the stop is the client's.
    fn take_request_of_client(&mut self, request: &Self) {
        let is_of_client = request.id != StopId::Signal;
        if is_of_client && (self.id == StopId::Signal || self.id.as_str() == LOST) {
            self.id = request.id.clone();
            self.requested_by.clone_from(&request.requested_by);
            if !request.reason.is_empty() {
                self.reason.clone_from(&request.reason);
            }
        }
    }

    /// Adds the callbacks of `request` that this stop does not have, and returns them.
    fn add_callbacks(&mut self, request: &Self) -> Result<Vec<Callback>, Refusal> {
        let is_new = |callback: &&Callback| !self.callbacks.contains(callback);
        let new: Vec<_> = request.callbacks.iter().filter(is_new).cloned().collect();
        if self.callbacks.len() + new.len() > Self::MAX_CALLBACKS {
            return Err(Refusal::TooManyCallbacks);
        }
        self.callbacks.extend(new.iter().cloned());
        Ok(new)
    }

    /// A callback is finished. Returns whether it was one of this stop.
    pub(super) fn finish_callback(&mut self, callback: &Callback) -> bool {
        let before = self.callbacks.len();
        self.callbacks.retain(|pending| pending != callback);
        self.callbacks.len() < before
    }
}
