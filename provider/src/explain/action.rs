//! Texts for actions.

use std::time::Duration;

use super::{
    connection::explain,
    diagnostic::{Code, Explained},
    drain::{self, Subject, bad_end},
    health::{lacking, not_verifiable, reason_given, timed_out},
    phrases::{append, last_seen, tries},
    receipt,
};
use crate::{
    client::{ClientError, Start},
    duration::human,
    fleet::{
        cancel::NotCancelled,
        drain::{DrainPolicy, Ended, Mode, NoCallback, NotDrained, Requested},
        health::NotHealthy,
    },
};

const INVOKE_AGAIN: &str = "Then invoke the action again.";

/// Warns about a drain that ended, but not as requested.
pub(crate) fn drained(manager: &str, ended: &Ended, policy: &DrainPolicy) -> Vec<Explained> {
    let forced = ended.forced.then(|| drain::forced(manager, policy.timeout, Subject::Action));
    let by_choice = ended.forced || policy.mode == Mode::Forceful;
    let bad_end = bad_end(manager, &ended.snapshot, by_choice, Subject::Action);
    let no_callback = ended.no_callback.as_ref().map(|why| no_callback(manager, why));
    let receipt = ended.receipt.iter().flat_map(|receipt| receipt::warnings(manager, receipt));
    forced.into_iter().chain(no_callback).chain(bad_end).chain(receipt).collect()
}

/// Warns that the callback of the action will not be sent.
pub(crate) fn no_callback(manager: &str, why: &NoCallback) -> Explained {
    drain::no_callback(manager, why, Subject::Action)
}

/// Explains why the exit of the runner of `manager` is not confirmed.
pub(crate) fn not_drained(manager: &str, failure: &NotDrained) -> Explained {
    match failure {
        NotDrained::Connect { attempts, waited, requested, error } => {
            connect(manager, error, *attempts, *waited, what_was_requested(*requested))
        }
        NotDrained::TimedOut { waited, requested, mode, forced, last } => Explained::new(
            Code::TimedOut,
            "Runner was not drained in time",
            format!(
                "Runner manager {manager:?}: the runner process has not exited within {}. {} {}",
                human(*waited),
                last_seen(last.as_ref()),
                what_was_requested(*requested)
            ),
            if *forced || *mode == Mode::Forceful {
                "The runner process is still running after a forceful stop. Check the logs of the wrapper and of the runner on the host."
            } else {
                "Invoke the action again to continue waiting, with more time in `timeouts.invoke`. To abort the remaining jobs, set \
                 `mode = \"forceful\"`."
            },
        ),
        NotDrained::Interrupted { waited, requested, last } => Explained::new(
            Code::Interrupted,
            "Drain was interrupted",
            format!(
                "Runner manager {manager:?}: the wait was cancelled after {}. {} {}",
                human(*waited),
                last_seen(last.as_ref()),
                what_was_requested(*requested)
            ),
            match requested {
                Requested::No => "Invoke the action again to request the shutdown.",
                Requested::Perhaps | Requested::Accepted => {
                    "Cancelling Terraform does not cancel the drain. Invoke the action again to wait for the same drain, or use \
                     `grit_start` to start the runner after it has exited."
                }
            },
        ),
        // An action has no guard.
        NotDrained::TooFewPeers { .. } | NotDrained::Replaced { .. } => {
            drain::not_drained(manager, failure, "", None, Subject::Action)
        }
    }
}

fn what_was_requested(requested: Requested) -> &'static str {
    match requested {
        Requested::Accepted => "The shutdown was requested and continues on the host.",
        Requested::Perhaps => {
            "The shutdown request was sent, but no response was received: the runner may be draining."
        }
        Requested::No => "No shutdown was requested.",
    }
}

/// Explains why `manager` was not started, or is not healthy after its start.
pub(crate) fn not_started(manager: &str, failure: &NotHealthy) -> Explained {
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
        NotHealthy::Stopped { start: Some(Start::NotSupported), .. } => Explained::new(
            Code::WrapperError,
            "Wrapper cannot start a runner",
            format!(
                "Runner manager {manager:?}: the runner has exited, and the host runs upstream's `gitlab-runner wrapper`, which cannot \
                 start a runner."
            ),
            "Start the runner on the host, or run grit-wrapper there.",
        ),
        NotHealthy::Stopped { waited, last, .. } => Explained::new(
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
        NotHealthy::Interrupted { waited, last, start_requested } => Explained::new(
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
pub(crate) fn not_cancelled(manager: &str, failure: &NotCancelled) -> Explained {
    const START_LATER: &str =
        "To use the runner again, wait until it has exited, then start it with `grit_start`.";
    match failure {
        NotCancelled::Connect { attempts, waited, error } => {
            let mut explained = connect(manager, error, *attempts, *waited, "");
            if explained.code == Code::Refused {
                append(&mut explained.next_step, START_LATER);
            }
            explained
        }
        NotCancelled::TimedOut { waited } => Explained::new(
            Code::TimedOut,
            "Drain was not cancelled in time",
            format!(
                "Runner manager {manager:?}: the wrapper did not cancel the drain within {}.",
                human(*waited)
            ),
            "Check the log of the wrapper on the host.",
        ),
        NotCancelled::Interrupted { waited, requested } => Explained::new(
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
        NotCancelled::Exited { reason } => Explained::new(
            Code::Refused,
            "Runner has already exited",
            format!(
                "Runner manager {manager:?}: the runner process has exited, so there is no drain to cancel. {}",
                reason_given(reason)
            ),
            "Start the runner with `grit_start`.",
        ),
        NotCancelled::NotSupported => Explained::new(
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
fn connect(manager: &str, error: &ClientError, attempts: u32, waited: Duration, effect: &str) -> Explained {
    let mut explained = explain(manager, error);
    append(&mut explained.happened, &tries(attempts, waited));
    append(&mut explained.happened, effect);
    if explained.code == Code::ConnectFailed {
        append(&mut explained.next_step, INVOKE_AGAIN);
    }
    explained
}

#[cfg(test)]
mod tests;
