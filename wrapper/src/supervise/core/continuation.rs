//! The state of a wrapper that finds the state of an earlier one, which was killed or has exited.

use std::{sync::Arc, time::Duration};

use super::{
    end::End,
    moment::Moment,
    policy::Policy,
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Mode, Stop, StopId, StopOutcome},
};

/// The id of a stop of a client whose state file was lost.
pub(super) const LOST: &str = "lost";

/// The first probe of a runner takes no longer, if the runner responds. It may show that the runner aborts its jobs, so that no SIGTERM is sent.
const FIRST_PROBE: Duration = Duration::from_secs(5);

impl Supervision {
    /// The state in which this wrapper continues with the process that it names. It is unknown whether the last effect happened: a state is saved
    /// before its effects, except SIGQUIT in a gap between job requests, which is sent before. The process may have exited: that is an event.
    ///
    /// A stop of a client is never over before `Start`.
    #[must_use]
    pub fn continued(self, now: Moment, policy: &Policy) -> Self {
        // Without `..`: the next wrapper must not lose the value of a new field.
        let Self {
            state,
            leaving: _,
            restarts,
            last_stop,
            cancelled,
            observed,
            last_error: _,
            signal_error: _,
            save_error: _,
        } = self;
        let state = match state {
            State::Running { child, .. } => State::Running { child: child.not_after(now), reload_at: None },
            State::Stopping { child, mut stop, phase } => {
                let child = child.not_after(now);
                // SIGQUIT may have been sent, and nothing was saved of the reads after it.
                stop.unconfirmed |= matches!(phase, Phase::AwaitingGap { not_before, quit_sent_at: None, .. } if now >= not_before);
                let mut phase = phase.continued(&child, now, policy);
                if stop.is_late(now) {
                    // The earlier wrapper has sent SIGTERM if it could not write the state file.
                    stop.mode = Mode::Forceful;
                    phase = Phase::Spacing { until: now + FIRST_PROBE };
                }
                State::Stopping { child, stop, phase }
            }
            State::Exited { end, stop: Some(stop) } if stop.id != StopId::Signal => {
                State::Exited { end, stop: Some(stop) }
            }
            // systemd starts the next one.
            state @ (State::Backoff { .. } | State::Exited { .. }) if policy.by_unit => state,
            State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => State::Idle,
        };
        Self {
            state,
            leaving: false,
            restarts,
            last_stop,
            cancelled,
            observed,
            last_error: None,
            signal_error: None,
            save_error: None,
        }
    }

    /// The state after a stop of a client whose state file was lost. A child that is running is stopped gracefully.
    #[must_use]
    pub fn of_lost_stop() -> Self {
        let reason = Arc::from("the state file of this drain was lost");
        let stop = Stop { reason, outcome: Some(StopOutcome::NoRunner), ..Stop::new(LOST, Mode::Graceful) };
        Self { state: State::Exited { end: End::NeverStarted, stop: Some(stop) }, ..Self::default() }
    }

    /// The state in which this wrapper waits for the child of a wrapper that was killed. The kernel has sent SIGQUIT to the child, unless the child has
    /// changed its user: it is sent again.
    #[must_use]
    pub fn of_killed_parent(self, now: Moment, policy: &Policy) -> Self {
        let mut next = self.continued(now, policy);
        let (child, stop, phase) = match next.state {
            State::Running { child, .. } => {
                let reason = Arc::from("the wrapper of this runner was killed");
                let stop = Stop::new(StopId::Signal, Mode::Graceful);
                let stop = Stop { reason, aborts_jobs: next.observed.aborts_jobs, ..stop };
                (child, stop, Phase::awaiting_gap(child.signal_at(now, policy), Some(now), policy))
            }
            State::Stopping { child, stop, phase: Phase::AwaitingGap { not_before, .. } } => {
                (child, stop, Phase::awaiting_gap(not_before, Some(now), policy))
            }
            State::Stopping { child, stop, phase } => (child, stop, phase),
            other => {
                next.state = other;
                return next;
            }
        };
        // Job requests that were open when the wrapper died are not known.
        next.state = State::Stopping { child, stop: Stop { unconfirmed: true, ..stop }, phase };
        next
    }
}

impl ChildInfo {
    fn not_after(self, now: Moment) -> Self {
        Self { started: self.started.min(now), ..self }
    }
}

impl Phase {
    fn continued(self, child: &ChildInfo, now: Moment, policy: &Policy) -> Self {
        let quit_sent_at = match self {
            // SIGTERM was sent, or was about to be sent. It is not sent again, and SIGKILL follows in any case.
            Self::Terminating { until } => {
                return Self::Terminating { until: until.min(now + policy.max_termination_timeout()) };
            }
            Self::Killed => return Self::Terminating { until: now },
            // SIGTERM was not sent, or could not be saved. SIGQUIT may have been sent just before.
            Self::Spacing { .. } => return Self::Spacing { until: now + FIRST_PROBE },
            // It was not sent by the earlier wrapper.
            Self::AwaitingGap { not_before, quit_sent_at, .. } if now < not_before => quit_sent_at,
            // It may have been sent just before the earlier wrapper was killed: in a gap, the state is saved only after the signal.
            Self::AwaitingGap { .. } | Self::Draining { .. } => Some(now),
        };
        // SIGQUIT may have been sent. A second one is harmless; without one the runner would never exit.
        Self::awaiting_gap(child.signal_at(now, policy), quit_sent_at, policy)
    }
}
