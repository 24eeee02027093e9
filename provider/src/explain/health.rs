//! Texts for health checks that fail, at apply and at refresh.

mod unmet;

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::Problem;
use grit_ssh::{Confirmation, Reachability};

use super::{
    code::Code,
    failure::Words,
    phrases::{append, append_paragraph, assume_terminated_line, drained, first_line},
};
use crate::{
    client::{ClientError, Level, Snapshot, Start},
    duration::human,
    fleet::{Failure, Reason, Requested, health::NotHealthy},
    run::assumed::{self, Repeated},
};

pub(crate) use unmet::problem;
pub(super) use unmet::{last_cause, unmet};

/// What the texts of a health check that failed depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthWords<'a> {
    pub(crate) manager: &'a str,
    /// A sentence about the other managers of the map.
    pub(crate) others: &'a str,
    /// The ids of the instances or drain resources whose hosts may never start; empty if another error has them.
    pub(crate) id: &'a str,
}

impl Words for HealthWords<'_> {
    type Problem = NotHealthy;

    fn manager(&self) -> &str {
        self.manager
    }

    fn unreached(&self, _: &Failure<NotHealthy>, error: &ClientError, explained: &mut Problem) {
        if may_never_start(error) {
            append(&mut explained.next_step, "Then apply again.");
            append_paragraph(&mut explained.next_step, &never_started(self.id));
        }
    }

    fn interrupted(&self, failure: &Failure<NotHealthy>) -> Problem {
        let happened = format!(
            "Runner manager {:?}: the wait was cancelled after {}, before the runner was healthy. {}",
            self.manager,
            human(failure.waited),
            last_cause(failure)
        );
        let next_step = match failure.requested {
            Requested::No => "Nothing was changed on the host. The next apply repeats the health check.",
            Requested::Perhaps | Requested::Accepted => {
                "A start of the exited runner was requested (`start_if_stopped`): the runner may be running now. The next apply repeats \
                 the health check."
            }
        };
        Problem::new(Code::Interrupted, "Health check was interrupted", happened, next_step)
    }

    fn problem(&self, failure: &Failure<NotHealthy>, problem: &NotHealthy) -> Problem {
        let (manager, waited) = (self.manager, failure.waited);
        match problem {
            NotHealthy::Missing(missing) => unmet(manager, waited, failure.last.as_ref(), missing),
            NotHealthy::Stopped { start } => stopped(manager, waited, failure.last.as_ref(), *start),
        }
    }

    /// Adds the sentence about the others, and the lines of the log.
    fn complete(&self, failure: &Failure<NotHealthy>, explained: &mut Problem) {
        append(&mut explained.happened, self.others);
        if !matches!(failure.reason, Reason::Unreached { .. }) {
            append_log(&mut explained.happened, failure.last.as_ref());
        }
    }
}

/// Whether the host may never start.
pub(crate) fn offers_confirmation(failure: &Failure<NotHealthy>) -> bool {
    matches!(&failure.reason, Reason::Unreached { error, .. } if may_never_start(error))
}

/// A host with another host key has started: the key must be corrected.
fn may_never_start(error: &ClientError) -> bool {
    error.confirmation() == Confirmation::Offered && error.reachability() != Reachability::Refused
}

fn stopped(manager: &str, waited: Duration, last: Option<&Snapshot>, start: Option<Start>) -> Problem {
    let waited = human(waited);
    let (happened, next_step) = match (start, last.and_then(drained)) {
        (None, Some(drained)) => {
            (format!("{drained}, and the runner was not started within {waited}."), unmet::START_IF_STOPPED)
        }
        (start, _) => (
            format!(
                "the runner process has exited and was not restarted within {waited}. {}",
                reason_given(last)
            ),
            match start {
                None => {
                    "Check the log of the runner on the host. Then start the runner, or replace the instance. If the host runs \
                     grit-wrapper, set `start_if_stopped = true` to let Terraform start the runner."
                }
                Some(Start::Requested) => {
                    "Terraform started the runner once (`start_if_stopped`). To find the reason for the exit, check the log of the runner \
                     on the host."
                }
                Some(Start::NotSupported) => {
                    "`start_if_stopped` requires grit-wrapper on the host: upstream's `gitlab-runner wrapper` cannot start a runner. \
                     Start the runner on the host, or replace the instance."
                }
            },
        ),
    };
    let happened = format!("Runner manager {manager:?}: {happened}");
    Problem::new(Code::WrapperError, "Runner has exited", happened, next_step)
}

/// The next step for a host that will never start, as paragraphs: its runner manager leaves the configuration. The text ends with the command.
fn never_started(id: &str) -> String {
    if id.is_empty() {
        return "If the host will never start: another error of this health check contains the command for all hosts that were not reached.".to_owned();
    }
    format!(
        "If the host will never start:\n1. Check that no runner is running on the host: its jobs would be lost.\n2. Remove the runner \
         manager from the configuration (for a rollback, restore the old version).\n3. Apply once with {}, as in the line below. In CI, \
         set the variable for one pipeline only.{}",
        assumed::VARIABLE,
        assume_terminated_line(&[id], Repeated::Apply)
    )
}

/// Sentences about the other runner managers, for the error of one of them. `has_drains`: this run has drained a runner.
pub(crate) fn other_managers(healthy: &[&str], total: usize, has_drains: bool) -> String {
    let mut text = match healthy {
        _ if total < 2 => String::new(),
        [] => format!("None of the {total} runner managers is healthy."),
        some => format!("{} of {total} runner managers are healthy: {}.", some.len(), some.join(", ")),
    };
    if !has_drains {
        append(&mut text, "No runner of this provider block was drained in this run.");
    }
    text
}

/// A runner manager whose status was not read in time.
pub(crate) fn status_timed_out(manager: &str, limit: Duration) -> Problem {
    Problem::new(
        Code::TimedOut,
        "Status was not read in time",
        format!("Runner manager {manager:?}: the status was not read within {}.", human(limit)),
        "Check why the host responds slowly. The wrapper's log shows slow calls.",
    )
}

/// Terraform cancelled the read of a status.
pub(crate) fn status_interrupted() -> Problem {
    Problem::new(
        Code::Interrupted,
        "Read was interrupted",
        "The read of the status of the runner managers was cancelled. Nothing was changed on the hosts.",
        "Run Terraform again.",
    )
}

/// Warns at plan about runner managers that the last refresh found not healthy: key, state and problem of each.
pub(crate) fn unhealthy_at_refresh(managers: &[(&str, &str, Option<&str>)]) -> Problem {
    let lines: Vec<_> = managers
        .iter()
        .map(|(key, state, problem)| match problem {
            Some(problem) => format!("- {key} is `{state}`: {problem}."),
            None => format!("- {key} is `{state}`."),
        })
        .collect();
    Problem::new(
        Code::WrapperError,
        "Runner managers are not healthy",
        format!("Result of the last refresh:\n\n{}", lines.join("\n")),
        "The apply repeats the health check for all runner managers. If an instance no longer exists, and the state still contains its \
         grit_runner_drain, its runner was not drained: check the jobs of this runner in GitLab.",
    )
}

/// Warns about runner managers that a refresh could not check: the cause, and the keys of the runner managers with this cause.
pub(crate) fn not_refreshed(causes: &BTreeMap<String, Vec<String>>) -> Problem {
    let lines: Vec<_> =
        causes.iter().map(|(cause, keys)| format!("- {}: {cause}.", keys.join(", "))).collect();
    Problem::new(
        Code::ConnectFailed,
        "Runner managers could not be checked",
        format!(
            "The refresh could not check these runner managers, so their state was kept:\n\n{}",
            lines.join("\n")
        ),
        "Configure the same credentials for this run as for the apply, or use `-refresh=false`.",
    )
}

/// Warns at plan about a level that does not prove that the runners take jobs.
pub(crate) fn low_level(level: Level) -> Problem {
    Problem::new(
        Code::Notice,
        "Health check does not prove that runners take jobs",
        format!(
            "`level` is `{level}`. A runner with a wrong token, or without a connection to GitLab, reaches this level and takes no jobs. \
             The apply would drain the old runners all the same."
        ),
        "If the hosts run grit-wrapper, set `listen_address` in the config.toml of each runner, and remove `level`: the default is \
         `polling`.",
    )
}

/// Warns at plan about runner managers that have no drain resource in `drains`.
pub(crate) fn without_drain(keys: &[&str]) -> Problem {
    Problem::new(
        Code::Notice,
        "Runner managers without a drain resource",
        format!(
            "`drains` has no entry for these runner managers: {}. Without a grit_runner_drain, a runner is not drained, and its jobs are \
             lost when its instance is destroyed.",
            keys.join(", ")
        ),
        "Add a grit_runner_drain for each of these runner managers, and its `id` to `drains` with the same key. If no runner needs a \
         drain, remove `drains`.",
    )
}

pub(super) fn reason_given(last: Option<&Snapshot>) -> String {
    let reason = last.map_or("", |last| last.report.failure_reason.as_str());
    if reason.is_empty() {
        "The wrapper reported no reason for the exit.".to_owned()
    } else {
        format!("Reason reported by the wrapper: {}.", first_line(reason))
    }
}

/// Adds the log lines of the runner, which a wrapper may have added to its reason, as a separate paragraph.
fn append_log(text: &mut String, last: Option<&Snapshot>) {
    if let Some((_, log)) = last.and_then(|last| last.report.failure_reason.split_once('\n')) {
        text.push_str("\n\n");
        text.push_str(log.trim_end());
    }
}

#[cfg(test)]
mod tests;
