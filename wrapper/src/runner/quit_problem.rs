//! Why a graceful stop in progress may have no effect.

use std::time::Duration;

use tokio::time::Instant;

use super::runner_metrics::RunnerMetrics;
use crate::supervise::{Phase, State, Supervision, process};

/// After SIGQUIT, the runner reports another process state at once. Later than this, it has not received the signal.
const QUIT_PERIOD: Duration = Duration::from_secs(5);

/// Why SIGQUIT does not make the child drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuitProblem {
    /// The child ignores SIGQUIT, as a shell does. It may be about to execute the runner.
    Ignored,
    /// SIGQUIT was sent some seconds ago, but the kernel has not delivered it, because the child blocks it.
    Pending,
    /// SIGQUIT was sent some seconds ago, but the runner still reports the process state `running`.
    NoEffect,
}

/// Why the graceful stop in progress may have no effect. `begin`: when the request for the metrics began.
pub(super) fn quit_problem(
    supervision: &Supervision,
    metrics: &RunnerMetrics,
    begin: Instant,
) -> Option<QuitProblem> {
    let State::Stopping { child, phase, .. } = &supervision.state else { return None };
    if phase.is_forceful() {
        return None;
    }
    let ignored = process::ignores_quit(child.pid()).then_some(QuitProblem::Ignored);
    ignored.or_else(|| quit_without_effect(supervision, metrics, begin))
}

/// `begin`: when the request for the metrics began.
fn quit_without_effect(
    supervision: &Supervision,
    metrics: &RunnerMetrics,
    begin: Instant,
) -> Option<QuitProblem> {
    let State::Stopping { child, phase: Phase::Draining { since, .. }, .. } = &supervision.state else {
        return None;
    };
    if begin < since.at + QUIT_PERIOD || supervision.is_quit_refused() {
        return None;
    }
    let is_running = || metrics.process_state.as_deref() == Some("running");
    let pending = process::has_pending_quit(child.pid()).then_some(QuitProblem::Pending);
    pending.or_else(|| is_running().then_some(QuitProblem::NoEffect))
}

/// What a graceful stop waits for before SIGQUIT, as a clause; `None` after the signal.
pub(crate) fn waits_for(phase: &Phase, problem: Option<QuitProblem>) -> Option<String> {
    Some(match (phase, problem) {
        (Phase::Holding { .. } | Phase::AwaitingGap { .. }, Some(QuitProblem::Ignored)) => {
            "SIGQUIT is delayed for some seconds".to_owned()
        }
        (Phase::Holding { quit_sent_at: None, .. }, _) => {
            "SIGQUIT is delayed for some seconds, until the process has a SIGQUIT handler".to_owned()
        }
        (Phase::AwaitingGap { open: Some(open), .. }, _) => {
            format!("waiting until no job request is open ({open} open)")
        }
        (Phase::AwaitingGap { open: None, .. }, _) => "waiting until no job request is open".to_owned(),
        _ => return None,
    })
}

/// What a graceful stop does, as far as it is known, and a problem with it.
pub(super) fn drain_reasons(phase: &Phase, problem: Option<QuitProblem>) -> (String, Option<&'static str>) {
    let wait = waits_for(phase, problem);
    let problem = match (&wait, problem) {
        (Some(_), Some(QuitProblem::Ignored)) => Some(
            "the process ignores SIGQUIT. If the runner's command is a script, it must start the runner with `exec`",
        ),
        (None, Some(problem)) => Some(problem.after_quit()),
        (_, _) => None,
    };
    let reason = match (wait, problem) {
        (Some(clause), _) => format!("the runner is draining: {clause}"),
        (None, Some(_)) => "the runner is draining".to_owned(),
        (None, None) => {
            "the runner is draining: it accepts no new jobs and exits after its last job".to_owned()
        }
    };
    (reason, problem)
}

impl QuitProblem {
    fn after_quit(self) -> &'static str {
        match self {
            Self::Ignored => {
                "SIGQUIT was sent, but the process ignores it, so the drain may have no effect. If the runner's command is a script, it \
                 must start the runner with `exec`"
            }
            Self::Pending => {
                "SIGQUIT was sent, but the process blocks it and has not received it, so the runner does not drain. Start the runner \
                 with `exec`, `setpriv`, `sudo -u`, or User= in the unit"
            }
            Self::NoEffect => {
                "SIGQUIT was sent, but the runner still reports the process state `running`, and may accept new jobs. If the runner's \
                 command is a script, it must start the runner with `exec`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{ChildInfo, Mode, Moment, Stop};

    #[test]
    fn running_runner_after_sigquit_is_a_quit_problem() {
        let sent = Moment::now();
        let child = ChildInfo::example(1);
        let of = |phase, process_state: &str, seconds| {
            let state = State::Stopping { child, stop: Stop::new("d", Mode::Graceful), phase };
            let supervision = Supervision { state, ..Supervision::default() };
            let process_state = Some(process_state.to_owned());
            let metrics = RunnerMetrics { process_state, ..RunnerMetrics::default() };
            quit_without_effect(&supervision, &metrics, sent.at + Duration::from_secs(seconds))
        };
        let draining = Phase::draining(sent);
        assert_eq!(of(draining.clone(), "running", 5), Some(QuitProblem::NoEffect));
        assert_eq!(of(draining.clone(), "running", 4), None, "the page may be older than the signal");
        assert_eq!(of(draining, "graceful-shutdown", 5), None);
        assert_eq!(of(Phase::Holding { until: sent, quit_sent_at: None }, "running", 5), None);
        assert_eq!(of(Phase::Terminating { until: sent, refused: None }, "running", 5), None);
    }
}
