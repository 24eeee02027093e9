//! Texts for a failed health check, and for plans and destroys that are refused.

use crate::{
    assume_terminated,
    client::{Level, RunnerStatus, Snapshot, Start},
    duration::human,
    explain::{Code, Explained, explain, shutdown::way_back},
    fleet::health::{Missing, NotHealthy},
    plan_guard::{Conflict, VARIABLE},
    transport::Presence,
};

/// Explains why `manager` is not healthy. `others` is a sentence about the other managers of the map, `id` is the id of the instance or of
/// the drain resource.
pub(crate) fn not_healthy(manager: &str, failure: &NotHealthy, others: &str, id: &str) -> Explained {
    let mut explained = match failure {
        NotHealthy::Connect { attempts, waited, error } => {
            let mut explained = explain(manager, error);
            append(&mut explained.happened, &tries(*attempts, *waited));
            if error.presence() == Presence::Absent {
                append(
                    &mut explained.next_step,
                    "Then apply again, or remove this runner manager from the configuration and apply.",
                );
                append(&mut explained.next_step, &way_back(id));
            }
            explained
        }
        NotHealthy::TimedOut { waited, last: None, .. } => Explained::new(
            Code::TimedOut,
            "Runner manager is not healthy",
            format!(
                "Runner manager {manager:?} is not healthy after {}: the wrapper did not respond.",
                human(*waited)
            ),
            "Check the log of the wrapper on the host. If the host needs more time, raise `timeouts`.",
        ),
        NotHealthy::TimedOut { waited, last: Some(snapshot), missing } => {
            let (lacks, next_step) = lacking(snapshot, missing);
            Explained::new(
                Code::TimedOut,
                "Runner manager is not healthy",
                format!("Runner manager {manager:?} is not healthy after {}: {lacks}", human(*waited)),
                next_step,
            )
        }
        NotHealthy::Stopped { waited, reason, start } => Explained::new(
            Code::WrapperError,
            "Runner has exited",
            format!(
                "Runner manager {manager:?}: the runner process has exited and was not restarted within {}. {}",
                human(*waited),
                reason_given(reason)
            ),
            match start {
                None => {
                    "Check the log of the runner on the host. Then start the runner, or replace the instance. If the host runs \
                     grit-wrapper, set `start_if_stopped = true` to let Terraform start the runner."
                }
                Some(Start::Requested) => {
                    "Terraform started the runner once (`start_if_stopped`). The log of the runner on the host shows why it exited."
                }
                Some(Start::NotSupported) => {
                    "`start_if_stopped` requires grit-wrapper on the host: upstream's `gitlab-runner wrapper` cannot start a runner. \
                     Start the runner on the host, or replace the instance."
                }
            },
        ),
        NotHealthy::NotProvable { wanted } => Explained::new(
            Code::WrapperError,
            "Wrapper does not support this check",
            format!(
                "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which reports only that the process was \
                 started. `{wanted}` requires grit-wrapper."
            ),
            format!("Run grit-wrapper on the host, or remove `{wanted}`."),
        ),
        NotHealthy::Interrupted { waited, last, start_requested } => Explained::new(
            Code::Interrupted,
            "Health check was interrupted",
            format!(
                "Runner manager {manager:?}: the wait was cancelled after {}, before the runner was healthy. {}",
                human(*waited),
                last_seen(last.as_ref())
            ),
            if *start_requested {
                "The runner had exited, and its start was requested (`start_if_stopped`): it may be running now. The next apply \
                 repeats the health check."
            } else {
                "Nothing was changed on the host. The next apply repeats the health check."
            },
        ),
    };
    append(&mut explained.happened, others);
    append_log(&mut explained.happened, failure);
    explained
}

/// Explains why a plan is refused, for what it does to the drain resources of `instance`.
pub(crate) fn guard_conflict(instance: &str, conflict: Conflict) -> Explained {
    match conflict {
        Conflict::Superseded => Explained::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state already contains a grit_runner_drain for instance {instance:?}, and this plan creates another one for the same \
                 instance. Destroying the old one would shut down the runner although its instance is kept. Possible causes: `-replace` of \
                 the drain resource, a taint, or a rename without a `moved` block."
            ),
            format!(
                "After a rename (address, key, index or module): add a `moved` block from the old address to the new one. After a taint: \
                 run `terraform untaint`; before `terraform destroy`, untaint or use `-refresh=false`. If two drain resources have the same \
                 instance: remove one, or correct its `instance_id`. To drain this runner on purpose, remove its drain resource together \
                 with its instance, or run once with {VARIABLE}=off."
            ),
        ),
        Conflict::Shared => Explained::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state contains two grit_runner_drain for instance {instance:?}. This plan destroys one of them, which would shut \
                 down the runner, and keeps the other one and the instance."
            ),
            format!(
                "Run `terraform state rm` on the wrong drain resource: this removes it from the state without a drain. If the resource is \
                 still in the configuration, correct its `instance_id`; the next apply creates it again. To drain this runner on purpose, \
                 run once with {VARIABLE}=off."
            ),
        ),
        Conflict::Twice => Explained::new(
            Code::Refused,
            "Two drain resources for one instance",
            format!(
                "This plan creates two grit_runner_drain for instance {instance:?}. Destroying either one would shut down the runner of \
                 the other one."
            ),
            "Remove one, or set `instance_id` of each to a different instance.",
        ),
    }
}

/// Explains why the drain resource `id` cannot send a request: its attribute `attribute` has a `problem`. `key` identifies it in the
/// environment variable that overrides this.
pub(crate) fn no_target(id: &str, attribute: &str, problem: &str, key: &str) -> Explained {
    let command = assume_terminated::command(key);
    Explained::new(
        Code::InvalidConfig,
        "Drain resource has an invalid runner manager",
        format!(
            "grit_runner_drain {id:?} cannot be destroyed, because `{attribute}` in the state is invalid: {problem}. No shutdown was \
             requested, so the runner may still accept jobs. The instance was kept."
        ),
        format!(
            "Correct `{attribute}` in the configuration and apply this change, then destroy. If the resource or its key was removed from \
             the configuration, add it again first. Only if the host no longer exists, run once: `{command}` (or `destroy` instead of \
             `apply`)."
        ),
    )
}

pub(super) fn tries(attempts: u32, waited: std::time::Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!("{attempts} attempts in a row failed within {}.", human(waited)),
    }
}

/// The result of a refresh that found the runner not healthy, as a clause.
pub(crate) fn problem(snapshot: &Snapshot, missing: &Missing) -> String {
    match missing {
        Missing::Running | Missing::Time => format!("the runner's status is `{}`", snapshot.report.status),
        Missing::Level { wanted, reasons } => {
            let level = snapshot.detail.as_deref().map_or(Level::Process, |detail| detail.level);
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            format!("its level is `{level}`; required is `{wanted}`{reasons}")
        }
        Missing::Version { wanted, found: Some(found) } => {
            format!("its version is {found}; `expected_version` is {wanted}")
        }
        Missing::Version { wanted, found: None } => {
            format!("its version is unknown; `expected_version` is {wanted}")
        }
    }
}

/// The condition that was not met, as the end of a sentence, and the next step.
fn lacking(snapshot: &Snapshot, missing: &Missing) -> (String, &'static str) {
    match missing {
        Missing::Running => (
            format!("the runner is not `running`. {}", last_seen(Some(snapshot))),
            if snapshot.report.status == RunnerStatus::InShutdown {
                "A runner that is shutting down accepts no jobs. Start the runner again on the host, or replace the instance."
            } else {
                "The wrapper has not started the runner, or is waiting to restart it after a failure. Check the log of the wrapper on the \
                 host. If the host needs more time, raise `timeouts`."
            },
        ),
        Missing::Time => (
            "the runner was not healthy for `stable_for` without interruption.".to_owned(),
            "Check the log of the wrapper on the host for restarts, or set `timeouts` to more than `stable_for`.",
        ),
        Missing::Level { wanted, reasons } => (
            format!(
                "the runner is running but did not reach level `{wanted}`. Reason: {}.",
                reasons.join("; ")
            ),
            "Fix this on the host or in GitLab. A lower `level` checks less: `process` checks only that the process is running.",
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

pub(super) fn last_seen(last: Option<&Snapshot>) -> String {
    let Some(snapshot) = last else { return "The wrapper had not responded.".to_owned() };
    let report = &snapshot.report;
    let mut text = format!("Last status: `{}`", report.status);
    if !report.failure_reason.is_empty() {
        text.push_str(&format!(", reason: {}", first_line(&report.failure_reason)));
    }
    if report.status == RunnerStatus::InShutdown
        && let Some(jobs) = snapshot.jobs_left()
    {
        text.push_str(&format!(", {jobs}"));
    }
    text.push('.');
    text
}

fn reason_given(reason: &str) -> String {
    if reason.is_empty() {
        "The wrapper reported no reason.".to_owned()
    } else {
        format!("Reason reported by the wrapper: {}.", first_line(reason))
    }
}

/// A reason without the log lines of the runner that a wrapper may have added.
pub(super) fn first_line(reason: &str) -> &str {
    reason.split_once('\n').map_or(reason, |(first, _)| first)
}

/// Adds these log lines as a separate paragraph.
fn append_log(text: &mut String, failure: &NotHealthy) {
    let reason = match failure {
        NotHealthy::Stopped { reason, .. } => reason,
        NotHealthy::TimedOut { last: Some(snapshot), .. }
        | NotHealthy::Interrupted { last: Some(snapshot), .. } => &snapshot.report.failure_reason,
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
    use crate::client::ClientError;
    use std::{fmt::Write as _, time::Duration};

    fn seen(status: RunnerStatus) -> Option<Snapshot> {
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
        let mut failing = Snapshot::from(RunnerStatus::Unknown(0));
        failing.report.failure_reason =
            "waiting\nThe last lines of the runner's log:\n  FATAL: no".to_owned();
        let interrupted = |start_requested| NotHealthy::Interrupted {
            waited: minutes(3),
            last: seen(RunnerStatus::Stopped),
            start_requested,
        };
        let others = "1 of 2 runner managers are healthy: m1.";
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
