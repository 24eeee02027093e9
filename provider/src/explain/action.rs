//! Texts for actions.

use grit_plugin::Problem;

use super::{
    code::Code,
    failure::Words,
    health::{last_cause, reason_given, unmet},
    phrases::append,
};
use crate::{
    client::{ClientError, RunnerStatus, Start},
    duration::human,
    fleet::{
        Failure, Requested,
        cancel::NotCancelled,
        health::{Missing, NotHealthy},
    },
};

/// The texts of `grit_start`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartWords<'a>(pub(crate) &'a str);

impl Words for StartWords<'_> {
    type Problem = NotHealthy;

    fn manager(&self) -> &str {
        self.0
    }

    fn unreached(&self, _: &Failure<NotHealthy>, _: &ClientError, explained: &mut Problem) {
        invoke_again(explained);
    }

    fn interrupted(&self, failure: &Failure<NotHealthy>) -> Problem {
        Problem::new(
            Code::Interrupted,
            "Start was interrupted",
            format!(
                "Runner manager {:?}: the wait was cancelled after {}, before the runner was healthy. {} {}",
                self.0,
                human(failure.waited),
                last_cause(failure),
                match failure.requested {
                    Requested::No => "No start was requested.",
                    Requested::Perhaps | Requested::Accepted => {
                        "The start was requested: the runner may be running."
                    }
                }
            ),
            "Invoke the action again to continue.",
        )
    }

    fn problem(&self, failure: &Failure<NotHealthy>, problem: &NotHealthy) -> Problem {
        let manager = self.0;
        match problem {
            NotHealthy::Missing(missing) => {
                let last = failure.last.as_ref();
                let mut explained = unmet(manager, failure.waited, last, missing);
                if *missing == Missing::Running
                    && last.is_some_and(|last| last.report.status == RunnerStatus::InShutdown)
                {
                    DRAINS.clone_into(&mut explained.next_step);
                }
                explained
            }
            NotHealthy::Stopped { start: Some(Start::NotSupported) } => Problem::new(
                Code::WrapperError,
                "Wrapper cannot start a runner",
                format!(
                    "Runner manager {manager:?}: the runner has exited, and the host runs upstream's `gitlab-runner wrapper`, which cannot \
                     start a runner."
                ),
                "Start the runner on the host, or run grit-wrapper there.",
            ),
            NotHealthy::Stopped { .. } => Problem::new(
                Code::WrapperError,
                "Runner has exited",
                format!(
                    "Runner manager {manager:?}: the runner was started once, and exited within {}. {}",
                    human(failure.waited),
                    reason_given(failure.last.as_ref())
                ),
                "To find the reason for the exit, check the log of the runner on the host.",
            ),
        }
    }
}

/// The texts of `grit_cancel_drain`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CancelWords<'a>(pub(crate) &'a str);

impl Words for CancelWords<'_> {
    type Problem = NotCancelled;

    fn manager(&self) -> &str {
        self.0
    }

    fn unreached(&self, _: &Failure<NotCancelled>, _: &ClientError, explained: &mut Problem) {
        invoke_again(explained);
        if explained.code == Code::Refused.as_str() {
            append(
                &mut explained.next_step,
                "To use the runner again, wait until it has exited, then start it with `grit_start`.",
            );
        }
    }

    fn interrupted(&self, failure: &Failure<NotCancelled>) -> Problem {
        Problem::new(
            Code::Interrupted,
            "Cancellation was interrupted",
            format!(
                "Runner manager {:?}: the action was cancelled after {}. {}",
                self.0,
                human(failure.waited),
                match failure.requested {
                    Requested::No => "The drain was not cancelled.",
                    Requested::Perhaps | Requested::Accepted => {
                        "The request was sent, but no response was received. It is unknown whether the drain was cancelled."
                    }
                }
            ),
            "Invoke the action again.",
        )
    }

    fn problem(&self, failure: &Failure<NotCancelled>, problem: &NotCancelled) -> Problem {
        let manager = self.0;
        match problem {
            NotCancelled::TimedOut => Problem::new(
                Code::TimedOut,
                "Drain was not cancelled in time",
                format!(
                    "Runner manager {manager:?}: the wrapper did not cancel the drain within {}.",
                    human(failure.waited)
                ),
                "Check the log of the wrapper on the host.",
            ),
            NotCancelled::Exited => Problem::new(
                Code::Refused,
                "Runner has already exited",
                format!(
                    "Runner manager {manager:?}: the runner process has exited, so there is no drain to cancel. {}",
                    reason_given(failure.last.as_ref())
                ),
                "Start the runner with `grit_start`.",
            ),
            NotCancelled::NotSupported => Problem::new(
                Code::WrapperError,
                "Wrapper cannot cancel a drain",
                format!(
                    "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which cannot cancel a drain."
                ),
                "To use the runner again, restart the wrapper on the host after the runner has exited. To cancel drains in future, run \
                 grit-wrapper on the host.",
            ),
        }
    }
}

/// The next step for a runner that drains: `start_if_stopped` is not an attribute of the action.
const DRAINS: &str = "A draining runner can be started only after it has exited. Wait until the runner has exited, then invoke the action again.";

fn invoke_again(explained: &mut Problem) {
    if explained.code == Code::ConnectFailed.as_str() {
        append(&mut explained.next_step, "Then invoke the action again.");
    }
}

#[cfg(test)]
mod tests;
