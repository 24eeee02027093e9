//! Texts for actions.

use std::time::Duration;

use grit_plugin::Problem;

use super::{
    code::Code,
    connection::explain,
    health::{lacking, not_verifiable, reason_given, timed_out},
    phrases::{append, last_seen, tries},
};
use crate::{
    client::{ClientError, Start},
    duration::human,
    fleet::{cancel::NotCancelled, health::NotHealthy},
};

const INVOKE_AGAIN: &str = "Then invoke the action again.";

/// Explains why `manager` was not started, or is not healthy after its start.
pub(crate) fn not_started(manager: &str, failure: &NotHealthy) -> Problem {
    match failure {
        NotHealthy::Connect { attempts, waited, error } => connect(manager, error, *attempts, *waited, ""),
        NotHealthy::TimedOut { waited, last, missing } => {
            let (lacks, next_step) = match last {
                Some(snapshot) => lacking(snapshot, missing),
                None => {
                    ("the wrapper did not respond.".to_owned(), "Check the log of the wrapper on the host.")
                }
            };
            timed_out(manager, *waited, &lacks, next_step)
        }
        NotHealthy::Stopped { start: Some(Start::NotSupported), .. } => Problem::new(
            Code::WrapperError,
            "Wrapper cannot start a runner",
            format!(
                "Runner manager {manager:?}: the runner has exited, and the host runs upstream's `gitlab-runner wrapper`, which cannot \
                 start a runner."
            ),
            "Start the runner on the host, or run grit-wrapper there.",
        ),
        NotHealthy::Stopped { waited, last, .. } => Problem::new(
            Code::WrapperError,
            "Runner has exited",
            format!(
                "Runner manager {manager:?}: the runner was started once, and has exited again within {}. {}",
                human(*waited),
                reason_given(&last.report.failure_reason)
            ),
            "The log of the runner on the host shows why it exited.",
        ),
        NotHealthy::NotVerifiable { wanted } => not_verifiable(manager, wanted),
        NotHealthy::Interrupted { waited, last, start_requested } => Problem::new(
            Code::Interrupted,
            "Start was interrupted",
            format!(
                "Runner manager {manager:?}: the wait was cancelled after {}, before the runner was healthy. {} {}",
                human(*waited),
                last_seen(last.as_ref()),
                if *start_requested {
                    "The start was requested: the runner may be running."
                } else {
                    "No start was requested."
                }
            ),
            "Invoke the action again to continue.",
        ),
    }
}

/// Explains why the drain of `manager` was not cancelled.
pub(crate) fn not_cancelled(manager: &str, failure: &NotCancelled) -> Problem {
    const START_LATER: &str =
        "To use the runner again, wait until it has exited, then start it with `grit_start`.";
    match failure {
        NotCancelled::Connect { attempts, waited, error } => {
            let mut explained = connect(manager, error, *attempts, *waited, "");
            if explained.code == Code::Refused.as_str() {
                append(&mut explained.next_step, START_LATER);
            }
            explained
        }
        NotCancelled::TimedOut { waited } => Problem::new(
            Code::TimedOut,
            "Drain was not cancelled in time",
            format!(
                "Runner manager {manager:?}: the wrapper did not cancel the drain within {}.",
                human(*waited)
            ),
            "Check the log of the wrapper on the host.",
        ),
        NotCancelled::Interrupted { waited, requested } => Problem::new(
            Code::Interrupted,
            "Cancellation was interrupted",
            format!(
                "Runner manager {manager:?}: the action was cancelled after {}. {}",
                human(*waited),
                if *requested {
                    "The request was sent, but no response was received: the drain may be cancelled."
                } else {
                    "The drain was not cancelled."
                }
            ),
            "Invoke the action again.",
        ),
        NotCancelled::Exited { reason } => Problem::new(
            Code::Refused,
            "Runner has already exited",
            format!(
                "Runner manager {manager:?}: the runner process has exited, so there is no drain to cancel. {}",
                reason_given(reason)
            ),
            "Start the runner with `grit_start`.",
        ),
        NotCancelled::NotSupported => Problem::new(
            Code::WrapperError,
            "Wrapper cannot cancel a drain",
            format!(
                "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which cannot cancel a drain."
            ),
            "Restart the wrapper on the host after the runner has exited, or run grit-wrapper there.",
        ),
    }
}

/// A call to the wrapper failed. `effect`: a sentence about what was requested.
fn connect(manager: &str, error: &ClientError, attempts: u32, waited: Duration, effect: &str) -> Problem {
    let mut explained = explain(manager, error);
    append(&mut explained.happened, &tries(attempts, waited));
    append(&mut explained.happened, effect);
    if explained.code == Code::ConnectFailed.as_str() {
        append(&mut explained.next_step, INVOKE_AGAIN);
    }
    explained
}

#[cfg(test)]
mod tests;
