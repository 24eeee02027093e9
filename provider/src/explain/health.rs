//! Texts for health checks that fail, at apply and at refresh.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::Problem;
use grit_ssh::Confirmation;

use super::{
    code::Code,
    failure::Words,
    phrases::{append, append_paragraph, assume_terminated_line, drained, first_line, last_seen},
};
use crate::{
    client::{ClientError, Level, RunnerStatus, Snapshot, Start},
    duration::human,
    fleet::{
        Failure, Reason, Requested,
        health::{Missing, NotHealthy},
    },
    run::assumed::{self, Repeated},
};

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
        if error.confirmation() == Confirmation::Offered {
            append(&mut explained.next_step, "Then apply again.");
            append_paragraph(&mut explained.next_step, &never_started(self.id));
        }
    }

    fn interrupted(&self, failure: &Failure<NotHealthy>) -> Problem {
        let happened = format!(
            "Runner manager {:?}: the wait was cancelled after {}, before the runner was healthy. {}",
            self.manager,
            human(failure.waited),
            last_seen(failure.last.as_ref())
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
            NotHealthy::TimedOut(missing) => {
                let (lacks, next_step) = match &failure.last {
                    Some(snapshot) => lacking(snapshot, missing),
                    None => (
                        NO_RESPONSE.to_owned(),
                        "Check the log of the wrapper on the host. If the host needs more time, raise `timeouts`.",
                    ),
                };
                timed_out(manager, waited, &lacks, next_step)
            }
            NotHealthy::Stopped { start } => stopped(manager, waited, failure.last.as_ref(), *start),
            NotHealthy::NotVerifiable { wanted } => not_verifiable(manager, wanted),
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
    matches!(&failure.reason, Reason::Unreached { error, .. } if error.confirmation() == Confirmation::Offered)
}

/// What is missing of a wrapper without a response.
pub(super) const NO_RESPONSE: &str = "the wrapper did not respond.";

fn stopped(manager: &str, waited: Duration, last: Option<&Snapshot>, start: Option<Start>) -> Problem {
    let waited = human(waited);
    let (happened, next_step) = match (start, last.and_then(drained)) {
        (None, Some(drained)) => {
            (format!("{drained}, and the runner was not started within {waited}."), START_IF_STOPPED)
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

/// The next step for a runner that a drain has stopped.
const START_IF_STOPPED: &str = "A drained runner does not restart automatically. To use this runner manager, for example for a rollback, \
                                set `start_if_stopped = true` in the health check, apply, and remove the setting. Alternatively, run \
                                `grit-wrapper start` on the host and apply.";

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

pub(super) fn timed_out(
    manager: &str,
    waited: Duration,
    lacks: &str,
    next_step: impl Into<String>,
) -> Problem {
    Problem::new(
        Code::TimedOut,
        "Runner manager is not healthy",
        format!("Runner manager {manager:?} is not healthy after {}: {lacks}", human(waited)),
        next_step,
    )
}

/// `wanted`: the attribute that upstream's wrapper cannot check.
pub(super) fn not_verifiable(manager: &str, wanted: &str) -> Problem {
    Problem::new(
        Code::WrapperError,
        "Wrapper does not support this check",
        format!(
            "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which reports only that the process was \
             started. `{wanted}` requires grit-wrapper."
        ),
        format!("Run grit-wrapper on the host, or remove `{wanted}`."),
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

/// Several runner managers use the same autoscaling group.
pub(crate) fn shared_worker_group(group: &str, managers: &[String]) -> Problem {
    Problem::new(
        Code::Refused,
        "Runner managers share an autoscaling group",
        format!(
            "The runner managers {} use the same autoscaling group {group:?} for their workers. A runner manager removes workers that it \
             did not create, and aborts the jobs that are running on them.",
            managers.join(", ")
        ),
        "Create an autoscaling group for each runner manager, and replace the group together with its runner manager. If the workers are \
         isolated in another way, set `allow_shared_worker_group = true` in each health check that has one of these runner managers.",
    )
}

/// A runner manager whose status was not read in time.
pub(crate) fn status_timed_out(manager: &str, limit: Duration) -> Problem {
    Problem::new(
        Code::TimedOut,
        "Status was not read in time",
        format!("Runner manager {manager:?}: the status was not read within {}.", human(limit)),
        "Raise `timeouts.read`.",
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

/// Warns at plan about removed runner managers whose drain resource (key and id) is no longer in the state.
pub(crate) fn missing_drains(missing: &[(String, String)]) -> Problem {
    let lines: Vec<_> =
        missing.iter().map(|(key, id)| format!("- {key}: grit_runner_drain {id:?}")).collect();
    Problem::new(
        Code::Notice,
        "Drain resources are missing from the state",
        format!(
            "This plan removes runner managers whose grit_runner_drain is no longer in the state:\n\n{}\n\nIf the drain resource was \
             destroyed, its runner was drained and no action is required. If the drain resource was removed from the state (`terraform \
             state rm`, or a `removed` block with `destroy = false`), its runner is not drained, and the jobs of this runner are lost \
             when its instance is destroyed.",
            lines.join("\n")
        ),
        "To drain such a runner, first restore the runner manager in the configuration and apply: this creates a new grit_runner_drain. \
         Then remove the runner manager.",
    )
}

/// Warns at plan about runner managers that have no drain resource in `guards`.
pub(crate) fn without_guard(keys: &[&str]) -> Problem {
    Problem::new(
        Code::Notice,
        "Runner managers without a drain resource",
        format!(
            "`guards` has no entry for these runner managers: {}. Without a grit_runner_drain, a runner is not drained, and its jobs are \
             lost when its instance is destroyed.",
            keys.join(", ")
        ),
        "Add a grit_runner_drain for each of these runner managers, and its `id` to `guards` with the same key. If no runner needs a \
         drain, remove `guards`.",
    )
}

/// The result of a refresh that found the runner not healthy, as a clause.
pub(crate) fn problem(snapshot: &Snapshot, missing: &Missing) -> String {
    match missing {
        Missing::Running | Missing::Time => drained(snapshot)
            .unwrap_or_else(|| format!("the runner's status is `{}`", snapshot.report.status)),
        Missing::Level { wanted, reasons } => {
            let level = snapshot.detail.as_deref().map_or(Level::Process, |detail| detail.level);
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            format!("the level is `{level}`; `{wanted}` is required{reasons}")
        }
        Missing::Jobs { succeeded, wanted, .. } => {
            format!("{succeeded} jobs have succeeded since the start of the runner; `min_jobs` is {wanted}")
        }
        Missing::Version { wanted, found: Some(found) } => {
            format!("the version of the runner is {found}; `expected_version` is {wanted}")
        }
        Missing::Version { wanted, found: None } => {
            format!("the version of the runner is unknown; `expected_version` is {wanted}")
        }
    }
}

/// The condition that was not met, as the end of a sentence, and the next step.
pub(super) fn lacking(snapshot: &Snapshot, missing: &Missing) -> (String, &'static str) {
    match missing {
        Missing::Running => not_running(snapshot),
        Missing::Time => (
            "the runner was healthy, but not for the whole time of `stable_for`.".to_owned(),
            "Check the log of the wrapper on the host for restarts, or set `timeouts` to more than `stable_for`.",
        ),
        Missing::Level { wanted, reasons } => (
            format!(
                "the runner is running but did not reach level `{wanted}`. Reason: {}.",
                reasons.join("; ")
            ),
            if can_reach(snapshot, *wanted) {
                "Fix this on the host or in GitLab, then apply again. To roll back, apply the old version."
            } else {
                "Fix this on the host. A lower `level` checks less: `process` checks only that the process is running."
            },
        ),
        Missing::Jobs { succeeded, failed, wanted } => (
            format!(
                "the runner requests jobs, but only {succeeded} of {wanted} jobs (`min_jobs`) have succeeded since its start, and {failed} \
                 have failed."
            ),
            "Check in GitLab that the runner is not paused (GitLab also accepts the job requests of a paused runner), that its tags match \
             the waiting jobs, and that the queue is not empty. `level = \"polling\"` does not wait for jobs.",
        ),
        Missing::Version { wanted, found: Some(found) } => (
            format!("the version of the runner is {found}; `expected_version` is {wanted}."),
            "Check which version is installed on the host, or correct `expected_version`.",
        ),
        Missing::Version { wanted, found: None } => (
            format!("the runner did not report its version; `expected_version` is {wanted}."),
            "The version is read from the runner's metrics: set `listen_address` in the runner's config.toml.",
        ),
    }
}

/// Whether the wrapper can check this level.
pub(super) fn can_reach(snapshot: &Snapshot, wanted: Level) -> bool {
    let max = snapshot.detail.as_deref().and_then(|detail| detail.level_max);
    max.is_none_or(|max| max >= wanted)
}

fn not_running(snapshot: &Snapshot) -> (String, &'static str) {
    let drained = drained(snapshot);
    let next_step = match snapshot.report.status {
        RunnerStatus::Stopped if drained.is_some() => START_IF_STOPPED,
        RunnerStatus::InShutdown => {
            "A draining runner accepts no jobs, and can be started only after it has exited. To use this runner manager, set \
             `start_if_stopped = true` in the health check, and set `timeouts` to more than the remaining time of the longest running \
             job. Alternatively, replace the instance."
        }
        RunnerStatus::Running | RunnerStatus::Stopped | RunnerStatus::Unknown(_) => {
            "The wrapper has not started the runner, or is waiting to restart it after a failure. Check the log of the wrapper on the \
             host. If the host needs more time, raise `timeouts`."
        }
    };
    let lacks = drained.unwrap_or_else(|| "the runner is not `running`".to_owned());
    (format!("{lacks}. {}", last_seen(Some(snapshot))), next_step)
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
