//! The words for operations over runner managers: a health wait, a drain, a refused plan.

use crate::{
    assume_terminated,
    client::{ClientError, Level, Look, RunnerStatus, Start},
    duration::human,
    explain::{Code, Explained, explain, shutdown::way_back},
    fleet::{
        health::{Missing, NotHealthy},
        jobs_left,
    },
    plan_guard::{Conflict, VARIABLE},
    transport::Presence,
};

/// Explains why `manager` is not known to be healthy. `others` tells how the other managers of the map fared, `id` names its instance or
/// its guard.
pub fn not_healthy(manager: &str, failure: &NotHealthy<ClientError>, others: &str, id: &str) -> Explained {
    let mut explained = match failure {
        NotHealthy::Connect { attempts, waited, error } => {
            let mut explained = explain(manager, error);
            append(&mut explained.happened, &tries(*attempts, *waited));
            if error.presence() == Presence::Absent {
                append(
                    &mut explained.next_step,
                    "Then apply again. Or remove this manager from the configuration and apply that.",
                );
                append(&mut explained.next_step, &way_back(id));
            }
            explained
        }
        NotHealthy::TimedOut { waited, last: None, .. } => Explained::new(
            Code::TimedOut,
            "Runner manager is not healthy",
            format!("Runner manager {manager:?}: the wrapper has not answered within {}.", human(*waited)),
            "Look at the log of the wrapper on the host. If the host only needs more time, raise `timeouts`.",
        ),
        NotHealthy::TimedOut { waited, last: Some(look), missing } => {
            let (lacks, next_step) = lacking(look, missing);
            Explained::new(
                Code::TimedOut,
                "Runner manager is not healthy",
                format!(
                    "Runner manager {manager:?}: the wrapper answers, but within {} {lacks}",
                    human(*waited)
                ),
                next_step,
            )
        }
        NotHealthy::Stopped { waited, reason, start } => Explained::new(
            Code::WrapperError,
            "Runner has ended",
            format!(
                "Runner manager {manager:?}: the runner process has ended, and nothing started it again while this was watched \
                 for {}. {}",
                human(*waited),
                reason_given(reason)
            ),
            match start {
                None => {
                    "Look at the log of the runner on the host, and start it again or replace the instance; \
                     `start_if_stopped = true` starts it from here, where the host runs grit-wrapper."
                }
                Some(Start::Requested) => {
                    "It was started once from here (`start_if_stopped`). Look at the log of the runner on the host for why it ended."
                }
                Some(Start::NotSupported) => {
                    "`start_if_stopped` needs grit-wrapper on the host: upstream's wrapper cannot start a runner. Start it on the \
                     host, or replace the instance."
                }
            },
        ),
        NotHealthy::NotProvable { wanted } => Explained::new(
            Code::WrapperError,
            "Wrapper cannot tell what is wanted",
            format!(
                "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which tells that the process was started, \
                 and nothing of `{wanted}`."
            ),
            format!("Run grit-wrapper on the host, or remove `{wanted}`."),
        ),
        NotHealthy::Interrupted { waited, last, start_requested } => Explained::new(
            Code::Interrupted,
            "Health wait was interrupted",
            format!(
                "Runner manager {manager:?}: Terraform asked to stop after {}, before the runner was healthy. {}",
                human(*waited),
                last_seen(last.as_ref())
            ),
            if *start_requested {
                "The runner had ended, and its wrapper was asked to start it (`start_if_stopped`): the runner may run now. The next apply \
                 waits again."
            } else {
                "Nothing was changed on the host. The next apply waits again."
            },
        ),
    };
    append(&mut explained.happened, others);
    append_log(&mut explained.happened, failure);
    explained
}

/// Explains why a plan is refused, for what it does to the guards of `instance`.
pub fn guard_conflict(instance: &str, conflict: Conflict) -> Explained {
    match conflict {
        Conflict::Superseded => Explained::new(
            Code::Refused,
            "This plan would drain a live runner",
            format!(
                "The state already holds a drain guard for instance {instance:?}, and this plan makes a new one for the same instance. \
                 Destroying the old guard would shut down the runner there, although its instance stays. That is what `-replace` of a \
                 grit_runner_drain, a taint, and a rename without a `moved` block lead to."
            ),
            format!(
                "Renamed, or moved under another key, index or module: add a `moved` block from the old address to the new one. Tainted: \
                 run `terraform untaint` on it; `terraform destroy` begins with a plan, too, so untaint first, or destroy with \
                 `-refresh=false`. Two guards for one instance: remove one, or give the right `instance_id`. To drain this runner \
                 on purpose, remove its guard together with its instance, or run once with {VARIABLE}=off."
            ),
        ),
        Conflict::Shared => Explained::new(
            Code::Refused,
            "This plan would drain a live runner",
            format!(
                "The state holds two drain guards for instance {instance:?}. This plan destroys one of them, which would shut down the \
                 runner there, and keeps the other one and the instance."
            ),
            format!(
                "Run `terraform state rm` on the guard that is wrong or too many: that removes it without a drain. If its resource stays in \
                 the configuration, with a corrected `instance_id`, the next apply creates it anew. To drain this runner on purpose, run \
                 once with {VARIABLE}=off."
            ),
        ),
        Conflict::Twice => Explained::new(
            Code::Refused,
            "Two drain guards for one instance",
            format!(
                "Two grit_runner_drain are created for instance {instance:?}. The destroy of either one would shut down the runner that \
                 the other one guards."
            ),
            "Remove one, or give each the `instance_id` of its own instance.",
        ),
    }
}

/// Explains why the guard `id` can ask no wrapper for anything: its attribute `attribute` has a `problem`. `key` names it in the
/// environment variable that overrides this.
pub fn no_target(id: &str, attribute: &str, problem: &str, key: &str) -> Explained {
    let command = assume_terminated::command(key);
    Explained::new(
        Code::InvalidConfig,
        "Guard cannot reach its runner manager",
        format!(
            "Guard {id:?} cannot be destroyed: `{attribute}` in the state: {problem}. No shutdown was requested, so the runner may still \
             take jobs. The instance was kept."
        ),
        format!(
            "Correct `{attribute}` in the configuration and apply that, then destroy the guard. If the resource or its key was removed, \
             add it again first. Only if the host is gone for good, run once: `{command}` (or `destroy` in place of `apply`)."
        ),
    )
}

pub(super) fn tries(attempts: u32, waited: std::time::Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!("Tried {attempts} times in a row; waited {}.", human(waited)),
    }
}

/// What a refresh found wrong, as a clause.
pub fn problem(look: &Look, missing: &Missing) -> String {
    match missing {
        Missing::Running | Missing::Time => format!("the runner's status is `{}`", look.report.status),
        Missing::Level { wanted, reasons } => {
            let level = look.detail.as_deref().map_or(Level::Process, |detail| detail.level);
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            format!("its level is `{level}` and not `{wanted}`{reasons}")
        }
        Missing::Version { wanted, found: Some(found) } => {
            format!("its version is {found}, and `expected_version` is {wanted}")
        }
        Missing::Version { wanted, found: None } => {
            format!("its version is not known, and `expected_version` is {wanted}")
        }
    }
}

/// What a runner lacks, as the end of a sentence, and what to do about it.
fn lacking(look: &Look, missing: &Missing) -> (String, &'static str) {
    match missing {
        Missing::Running => (
            format!("the runner was not `running`. {}", last_seen(Some(look))),
            if look.report.status == RunnerStatus::InShutdown {
                "A runner that shuts down takes no jobs. Start it again on the host, or replace the instance."
            } else {
                "Look at the log of the wrapper on the host: it has not started the runner. If the host only needs more time, raise \
                 `timeouts`."
            },
        ),
        Missing::Time => (
            "the runner was not healthy for the whole of `stable_for` without a break.".to_owned(),
            "Look for restarts in the log of the wrapper on the host, or give `timeouts` more than `stable_for`.",
        ),
        Missing::Level { wanted, reasons } => (
            format!("the runner, which runs, did not reach level `{wanted}`: {}.", reasons.join("; ")),
            "Mend that on the host or in GitLab. A lower `level` proves less: `process` is only that the process lives.",
        ),
        Missing::Version { wanted, found: Some(found) } => (
            format!("the runner was version {found}, and `expected_version` is {wanted}."),
            "Check which version the host installs, or correct `expected_version`.",
        ),
        Missing::Version { wanted, found: None } => (
            format!("the runner did not tell its version, and `expected_version` is {wanted}."),
            "The version comes from the runner's metrics: set `listen_address` in its configuration.",
        ),
    }
}

pub(super) fn last_seen(last: Option<&Look>) -> String {
    let Some(look) = last else { return "It has not answered yet.".to_owned() };
    let report = &look.report;
    let mut text = format!("Last status: `{}`", report.status);
    if !report.failure_reason.is_empty() {
        text.push_str(&format!(", with the reason: {}", first_line(&report.failure_reason)));
    }
    if report.status == RunnerStatus::InShutdown
        && let Some(jobs) = jobs_left(look)
    {
        text.push_str(&format!(", {jobs}"));
    }
    text.push('.');
    text
}

fn reason_given(reason: &str) -> String {
    if reason.is_empty() {
        "The wrapper gives no reason.".to_owned()
    } else {
        format!("The wrapper's reason: {}.", first_line(reason))
    }
}

/// A reason without the lines of the runner's log that a wrapper may have added.
pub(super) fn first_line(reason: &str) -> &str {
    reason.split_once('\n').map_or(reason, |(first, _)| first)
}

/// Adds those lines, as a paragraph of their own.
fn append_log(text: &mut String, failure: &NotHealthy<ClientError>) {
    let reason = match failure {
        NotHealthy::Stopped { reason, .. } => reason,
        NotHealthy::TimedOut { last: Some(look), .. } | NotHealthy::Interrupted { last: Some(look), .. } => {
            &look.report.failure_reason
        }
        NotHealthy::TimedOut { last: None, .. }
        | NotHealthy::Interrupted { last: None, .. }
        | NotHealthy::Connect { .. }
        | NotHealthy::NotProvable { .. } => return,
    };
    if let Some((_, log)) = reason.split_once('\n') {
        text.push_str("\n\n");
        text.push_str(log.trim_end());
    }
}

pub(super) fn append(text: &mut String, sentence: &str) {
    if !sentence.is_empty() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fmt::Write as _, time::Duration};

    fn seen(status: RunnerStatus) -> Option<Look> {
        Some(status.into())
    }

    fn lost() -> ClientError {
        ClientError::NoAnswer {
            method: "CheckStatus",
            limit: Duration::from_secs(10),
            silent: false,
            route: Box::new(crate::transport::Route {
                strategy: "direct",
                host: "mgr-2".parse().unwrap(),
                username: Some("deploy".to_owned()),
                wrapper: "unix:///run/wrapper.sock".parse().unwrap(),
                hop: None,
                onward: None,
                onward_hop: None,
            }),
        }
    }

    fn all(cases: Vec<Explained>) -> String {
        let mut text = String::new();
        for explained in cases {
            writeln!(text, "Error: {}\n\n{}\n\n----", explained.summary, explained.detail()).unwrap();
        }
        text
    }

    #[test]
    fn failed_health_wait_messages() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let timed_out = |last, missing| NotHealthy::TimedOut { waited: minutes(10), last, missing };
        let running = || seen(RunnerStatus::Running);
        let reasons = vec!["runner \"a\" (abc): GitLab rejects its token".to_owned()];
        let version = |found: Option<&str>| Missing::Version {
            wanted: "19.3.0".into(),
            found: found.map(str::to_owned),
        };
        let stopped =
            |reason: &str, start| NotHealthy::Stopped { waited: minutes(1), reason: reason.into(), start };
        let mut failing = Look::from(RunnerStatus::Unknown(0));
        failing.report.failure_reason =
            "waiting\nThe last lines of the runner's log:\n  FATAL: no".to_owned();
        let interrupted = |start_requested| NotHealthy::Interrupted {
            waited: minutes(3),
            last: seen(RunnerStatus::Stopped),
            start_requested,
        };
        let others = "1 of 2 are healthy: m1.";
        insta::assert_snapshot!(all(vec![
            not_healthy("m2", &timed_out(seen(RunnerStatus::Unknown(0)), Missing::Running), others, "i-2"),
            not_healthy("m2", &timed_out(seen(RunnerStatus::InShutdown), Missing::Running), "", "i-2"),
            not_healthy("m2", &timed_out(running(), Missing::Time), "", "i-2"),
            not_healthy(
                "m2",
                &timed_out(running(), Missing::Level { wanted: Level::Polling, reasons }),
                "",
                "i-2"
            ),
            not_healthy("m2", &timed_out(running(), version(Some("19.2.0"))), "", "i-2"),
            not_healthy("m2", &timed_out(running(), version(None)), "", "i-2"),
            not_healthy("m2", &timed_out(None, Missing::Running), "", "i-2"),
            not_healthy(
                "m2",
                &NotHealthy::Connect { attempts: 7, waited: minutes(2), error: lost() },
                "",
                "i-2"
            ),
            not_healthy("m2", &stopped("exit status 1", None), "", "i-2"),
            not_healthy(
                "m2",
                &stopped("exit status 1\nThe last lines of the runner's log:\n  FATAL: no", None),
                others,
                "i-2"
            ),
            not_healthy("m2", &timed_out(Some(failing), Missing::Running), others, "i-2"),
            not_healthy("m2", &stopped("", Some(Start::Requested)), "", "i-2"),
            not_healthy("m2", &stopped("", Some(Start::NotSupported)), "", "i-2"),
            not_healthy("m2", &NotHealthy::NotProvable { wanted: "level" }, "", "i-2"),
            not_healthy("m2", &interrupted(false), "", "i-2"),
            not_healthy("m2", &interrupted(true), "", "i-2"),
        ]));
    }

    #[test]
    fn plan_refusal_messages() {
        insta::assert_snapshot!(all(vec![
            guard_conflict("i-0123", Conflict::Superseded),
            guard_conflict("i-0123", Conflict::Shared),
            guard_conflict("i-0123", Conflict::Twice),
            no_target("adopted#0a1b2c3d", "runner_manager", "it has no value", "adopted#0a1b2c3d"),
        ]));
    }
}
