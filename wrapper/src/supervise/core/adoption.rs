//! The state of a wrapper that finds the state of an earlier one, which was killed.

use std::time::Duration;

use super::{
    end::End,
    moment::Moment,
    observation::Observation,
    policy::Policy,
    state::{ChildInfo, Phase, State, Supervision},
    stop::{Mode, Stop, StopId, StopOutcome},
};
use crate::supervise::process::Exit;

/// The first probe of an adopted runner takes no longer, if the runner responds. It may show that the runner aborts its jobs, so that no SIGTERM is sent.
const FIRST_PROBE: Duration = Duration::from_secs(5);

impl Supervision {
    /// The state in which this wrapper continues; `is_running`: the process that this state names is running. It is unknown whether the last effect
    /// happened: a state is saved before its effects, except SIGQUIT in a gap between job requests, which is sent before.
    ///
    /// A shutdown of the earlier wrapper is finished if its child is running: this wrapper then exits as well. Otherwise it is over, and another child
    /// can follow. A stop of a client is never over before `Start`.
    #[must_use]
    pub fn adopted(self, is_running: bool, now: Moment, policy: &Policy) -> Self {
        // Without `..`: the next wrapper must not lose the value of a new field.
        let Self {
            state,
            leaving,
            mut restarts,
            last_stop,
            cancelled,
            observed,
            last_error: _,
            signal_error: _,
            save_error: _,
        } = self;
        let state = match state {
            State::Starting { child: Some(child) } | State::Running { child, .. } if is_running => {
                State::Running { child: child.not_after(now), reload_at: None }
            }
            State::Stopping { child, mut stop, phase } if is_running => {
                let child = child.not_after(now);
                // SIGQUIT may have been sent, and nothing was saved of the reads after it.
                stop.unconfirmed |=
                    matches!(phase, Phase::AwaitingGap { not_before, .. } if now >= not_before);
                let mut phase = phase.adopted(&child, now, policy);
                if stop.is_late(now) {
                    // The earlier wrapper has sent SIGTERM if it could not write the state file.
                    stop.mode = Mode::Forceful;
                    phase = Phase::Spacing { until: now + FIRST_PROBE };
                }
                State::Stopping { child, stop, phase }
            }
            State::Stopping { child, stop, .. } if stop.id != StopId::Signal => {
                let end = End::Exited { pid: child.pid(), exit: Exit::Unknown, killed: false };
                let outcome = Some(StopOutcome::of(&stop, &end));
                State::Exited { end, stop: Some(Stop { outcome, ..stop }) }
            }
            State::Exited { end, stop: Some(stop) } if stop.id != StopId::Signal => {
                State::Exited { end, stop: Some(stop) }
            }
            _ => State::Idle,
        };
        restarts.automatic &= is_running;
        restarts.stable_at = restarts.stable_at.filter(|_| is_running);
        Self {
            state,
            leaving: leaving && is_running,
            restarts,
            last_stop,
            cancelled,
            observed: if is_running { observed } else { Observation::default() },
            last_error: None,
            signal_error: None,
            save_error: None,
        }
    }
}

impl ChildInfo {
    fn not_after(self, now: Moment) -> Self {
        Self { started: self.started.min(now), ..self }
    }
}

impl Phase {
    fn adopted(self, child: &ChildInfo, now: Moment, policy: &Policy) -> Self {
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
