//! Texts for a drain: errors, and warnings about a runner that has exited.

pub(crate) mod end;
mod failed;
mod subject;
mod successor;

use std::time::Duration;

use grit_plugin::Problem;

pub(crate) use self::{
    failed::DrainWords,
    subject::Subject,
    successor::{address_is_used, assumed_at_used_address, instance_id_twice, superseded},
};

use self::subject::{KEPT, assumed_title, named, unset_variable};
use super::{
    code::Code,
    connection::cause,
    phrases::{append, assume_terminated_line, first_line},
};
use crate::{
    client::{ClientError, Snapshot},
    duration::human,
    fleet::drain::{FORCE_LIMIT, Mode, OnTimeout, OnUnreachable},
    run::assumed::{self, Repeated},
};

/// Explains why the drain resource `id` cannot send a request: its attribute `attribute` has a `problem`. `key` identifies it in the
/// environment variable that overrides this.
pub(crate) fn no_target(id: &str, attribute: &str, problem: &str, key: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Drain resource has an invalid runner manager",
        format!(
            "grit_runner_drain {id:?} cannot be destroyed, because `{attribute}` in the state is invalid: {problem}. No shutdown was \
             requested, so the runner may still accept jobs. {KEPT}"
        ),
        format!(
            "Correct `{attribute}` in the configuration, apply this change (also after a failed `terraform destroy`), then destroy. If \
             the configuration no longer contains the resource or its key, first restore it. Only if the host no longer exists, run the failed command once with the variable \
             in the line below. Replace COMMAND with `apply` or `destroy`, whichever failed.{}",
            assume_terminated_line(&[key], Repeated::Failed)
        ),
    )
}

/// Warns that a runner was assumed terminated.
pub(crate) fn assumed_terminated(
    manager: &str,
    attempts: u32,
    waited: Duration,
    error: &ClientError,
    setting: OnUnreachable,
) -> Problem {
    let tries = match attempts {
        1 => "1 attempt".to_owned(),
        more => format!("{more} attempts in a row"),
    };
    let mut happened = format!(
        "Runner manager {manager:?} was not drained: its wrapper was not reached in {tries} within {} ({}). Because {} is set, the runner is \
         treated as terminated.",
        human(waited),
        cause(error),
        named(setting),
    );
    append(
        &mut happened,
        "If the runner is still running, its jobs are lost when its instance is destroyed.",
    );
    Problem::new(
        Code::ConnectFailed,
        assumed_title(manager),
        happened,
        match setting {
            OnUnreachable::Confirmed => unset_variable(),
            OnUnreachable::Fail | OnUnreachable::AssumeTerminated => {
                "Check that the instance no longer exists.".to_owned()
            }
        },
    )
}

/// Warns that a drain became forceful at its deadline.
fn forced(manager: &str, limit: Duration, jobs: &[u64], subject: Subject) -> Problem {
    const MAX_JOBS: usize = 50;
    let mut named: Vec<_> = jobs.iter().take(MAX_JOBS).map(u64::to_string).collect();
    if let Some(others @ 1..) = jobs.len().checked_sub(MAX_JOBS) {
        named.push(format!("and {others} more"));
    }
    let named = if named.is_empty() { String::new() } else { format!(" (jobs: {})", named.join(", ")) };
    Problem::new(
        Code::TimedOut,
        format!("Runner manager {manager} was stopped forcefully"),
        format!(
            "Runner manager {manager:?} was not drained within {} (`on_timeout = \"force\"`): its remaining jobs were aborted{named}.",
            human(limit)
        ),
        format!("For longer drains, raise `{}`.", subject.timeout()),
    )
}

/// Warns that the exit of the process that was draining was not reported.
fn exit_unseen(manager: &str, subject: Subject) -> Problem {
    Problem::new(
        Code::WrapperError,
        format!("Host of {manager} restarted during the drain"),
        format!(
            "The host of runner manager {manager:?} restarted while its runner was draining. The exit of this runner was not reported, and \
             its jobs may be lost. The runner that started after the restart was also drained. {}",
            subject.consequence()
        ),
        "Check the jobs in GitLab.",
    )
}

/// Warns about a runner that did not exit cleanly; none when it did.
fn bad_end(manager: &str, snapshot: &Snapshot, forceful: bool, subject: Subject) -> Option<Problem> {
    let happened = match snapshot.detail.as_deref() {
        Some(detail) => detail.bad_end(forceful)?,
        None => {
            let reason = first_line(&snapshot.report.failure_reason);
            if reason.is_empty() {
                return None;
            }
            format!("the wrapper reported: {reason}")
        }
    };
    Some(Problem::new(
        Code::WrapperError,
        format!("Runner of {manager} did not exit cleanly"),
        format!(
            "The runner of runner manager {manager:?} has exited, but {happened}. {}",
            subject.consequence()
        ),
        "Check the jobs in GitLab.",
    ))
}

/// Warns at plan that the destroy of the drain resource shuts down the runner of `manager`, in a way that is not usual in a rollout: the plan itself
/// shows the usual one. Terraform prints the warnings of a plan before the apply or, with `-auto-approve`, after it: the text is correct in both
/// cases.
pub(crate) fn planned(manager: &str, host: &str, planned: &Planned) -> Option<Problem> {
    let limit = human(planned.timeout);
    let how = match (planned.mode, planned.on_timeout) {
        (Mode::Forceful, _) => {
            "During the apply, the running jobs of the runner are ABORTED (`mode = \"forceful\"`).".to_owned()
        }
        (Mode::Graceful, OnTimeout::Force) => format!(
            "During the apply, the runner accepts no further jobs. If it has not exited within {limit}, its remaining jobs are ABORTED \
             (`on_timeout = \"force\"`). The abort takes up to {}, or longer if the runner has a longer `shutdown_timeout`.",
            human(FORCE_LIMIT)
        ),
        (Mode::Graceful, OnTimeout::Fail) if planned.health_ends || planned.unknown_instance => format!(
            "During the apply, the runner accepts no further jobs and exits after its last job. Timeout: {limit}."
        ),
        (Mode::Graceful, OnTimeout::Fail) => return None,
    };
    let mut happened =
        format!("This plan ends the grit_runner_drain of runner manager {manager:?} (host {host}). {how}");
    if planned.unknown_instance {
        append(
            &mut happened,
            "`instance_id` becomes known only in the apply. If its value is then the same, the instance is kept, but its runner is drained. \
             If the grit_runner_drain has `create_before_destroy = true`, as in the module `rollout`, the provider skips such a drain.",
        );
    }
    let next_step = if planned.health_ends {
        append(&mut happened, NO_ROLLOUT);
        KEEP_RUNNER
    } else {
        ""
    };
    Some(Problem::new(
        Code::Notice,
        // Without a name, so that Terraform shows many of them as one.
        "The plan shuts down a runner",
        happened,
        next_step,
    ))
}

const NO_ROLLOUT: &str = "This plan also destroys a grit_runner_health: `terraform destroy` and the deletion of a module do this, a rollout \
                          does not. An instance that this plan keeps stays without a runner.";

const KEEP_RUNNER: &str = "To keep the runner, for example because a module block was deleted, restore the block, or remove the drain from the \
                           state with a `removed` block before the apply.";

/// The warning of [`planned`] for drain resources that were planned before their health check.
pub(crate) fn planned_with_health(managers: &[String]) -> Problem {
    Problem::new(
        Code::Notice,
        "The plan shuts down a runner",
        format!("This plan ends the grit_runner_drain of {}. {NO_ROLLOUT}", managers.join(", ")),
        KEEP_RUNNER,
    )
}

/// The settings of a drain that a plan contains.
pub(crate) struct Planned {
    pub(crate) mode: Mode,
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    /// The plan destroys a health check as well: it is not a rollout.
    pub health_ends: bool,
    /// The new `instance_id` is not known at plan.
    pub unknown_instance: bool,
}

/// Warns that a drain resource without a valid runner manager was destroyed, because `GRIT_ASSUME_TERMINATED` contains `key`.
pub(crate) fn assumed_without_target(manager: &str, key: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        assumed_title(manager),
        format!(
            "`runner_manager` of this drain is invalid in the state, so no shutdown was requested. Because {}={key} is set, the runner is \
             treated as terminated.",
            assumed::VARIABLE
        ),
        unset_variable(),
    )
}

/// Warns that a create stores a value although `problem` was found.
pub(crate) fn stored_anyway(problem: Problem) -> Problem {
    let text = problem.text();
    Problem {
        happened: text,
        next_step: "Correct the value and apply again. Until then, this resource cannot drain its runner manager. The create did not \
                    fail, because Terraform could then destroy the old instance without a drain."
            .to_owned(),
        ..problem
    }
}

#[cfg(test)]
mod tests;
