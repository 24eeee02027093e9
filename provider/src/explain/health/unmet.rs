//! Texts for a condition of a health check that was not met.

use std::time::Duration;

use grit_plugin::Problem;

use crate::{
    client::{RunnerStatus, Snapshot},
    duration::human,
    explain::{
        code::Code,
        connection,
        phrases::{drained, last_seen},
    },
    fleet::{
        Failure, Reason,
        health::{Doubt, Missing, NotHealthy, ProofLimit, Wanted},
    },
};

/// The next step for a runner that a drain has stopped.
pub(super) const START_IF_STOPPED: &str = "A drained runner does not restart automatically. To use this runner manager, for example for a rollback, \
                                set `start_if_stopped = true` in the health check, apply, and remove the setting. Alternatively, run \
                                `grit-wrapper start` on the host and apply.";

/// The next step if the wrapper did not respond.
const CHECK_WRAPPER: &str =
    "Check the log of the wrapper on the host. If the host needs more time, raise `timeouts`.";

/// Explains the condition that was not met when the wait ended.
pub(in crate::explain) fn unmet(
    manager: &str,
    waited: Duration,
    last: Option<&Snapshot>,
    missing: &Missing,
) -> Problem {
    match (missing, last) {
        (Missing::Token { reasons }, _) => token_rejected(manager, reasons),
        (Missing::Gitlab(doubt), _) => not_confirmed(manager, waited, doubt),
        (Missing::Proof { wanted, limit }, _) => not_provable(manager, wanted, limit),
        (_, None) => timed_out(manager, waited, "the wrapper did not respond.", CHECK_WRAPPER),
        (_, Some(last)) => {
            let (lacks, next_step) = lacking(last, missing);
            timed_out(manager, waited, &lacks, next_step)
        }
    }
}

/// More time does not change the token.
fn token_rejected(manager: &str, reasons: &[String]) -> Problem {
    Problem::new(
        Code::TokenRejected,
        "GitLab rejects a runner token",
        format!(
            "Runner manager {manager:?} does not reach level `polling`, because GitLab rejects its token. Reason: {}.",
            reasons.join("; ")
        ),
        "A retry has no effect. Check in GitLab that the runner exists, and that `url` and `token` in the config.toml of the host belong \
         to this runner. Then roll out the correct token, or apply the old version.",
    )
}

/// The wrapper reports a healthy runner, and GitLab does not confirm this.
fn not_confirmed(manager: &str, waited: Duration, doubt: &Doubt) -> Problem {
    let next_step = match doubt {
        Doubt::Paused { runner } => format!(
            "Resume runner {runner} in GitLab (the page of the runner, or `PUT /runners/{runner}` with `paused=false`), then run the same \
             command again."
        ),
        Doubt::Unknown { .. } => {
            "Check that `url`, `id` and `token` in the config.toml of the host belong to one runner, and that `gitlab.url` of the provider \
             block is the same GitLab. Then run the same command again."
                .to_owned()
        }
        Doubt::NoAnswer { .. } | Doubt::Pending { .. } => {
            "Check `gitlab` in the provider block. The token needs the scope `read_api`, and its user must own the runner or be an \
             administrator. Without a token, the provider does not ask GitLab, and a paused runner is healthy at level `polling`."
                .to_owned()
        }
    };
    let code = match doubt {
        Doubt::NoAnswer { is_refusal: true, is_permanent: true, .. } => Code::Refused,
        Doubt::NoAnswer { is_permanent: true, .. } => Code::ConnectFailed,
        Doubt::Paused { .. } | Doubt::Unknown { .. } | Doubt::NoAnswer { .. } | Doubt::Pending { .. } => {
            Code::TimedOut
        }
    };
    Problem::new(
        code,
        "GitLab does not confirm a runner manager",
        format!(
            "Runner manager {manager:?}: the wrapper reports a healthy runner, but GitLab has not confirmed it within {}: {doubt}.",
            human(waited)
        ),
        next_step,
    )
}

/// Neither more time nor a retry makes this possible.
fn not_provable(manager: &str, wanted: &Wanted, limit: &ProofLimit) -> Problem {
    let less = match wanted {
        Wanted::Level(_) => {
            "To accept a runner that may not take jobs, set `level = \"process\"` in the health check: this proves only that the process \
             runs."
        }
        Wanted::Version(_) => "Otherwise, remove `expected_version`.",
    };
    let (happened, next_step) = match limit {
        ProofLimit::Upstream => (
            format!(
                "Runner manager {manager:?}: the host runs upstream's `gitlab-runner wrapper`, which reports only that the process was \
                 started. It cannot prove {wanted}."
            ),
            format!("Run grit-wrapper on the host. {less}"),
        ),
        ProofLimit::Level { max, reasons } => (
            format!(
                "Runner manager {manager:?}: the runner is running, but it cannot prove {wanted}: its highest level is `{max}`. Reason: {}.",
                reasons.join("; ")
            ),
            format!(
                "Correct this on the host, and restart the runner. For an HTTP server, add the line\n\n    listen_address = \"127.0.0.1:9252\"\n\nto its \
                 config.toml, before the first [[runners]] section. With the grit-wrapper package, you can set the variable \
                 GRIT_WRAPPER_RUNNER_LISTEN_ADDRESS=127.0.0.1:9252 in /etc/default/grit-wrapper instead. {less}"
            ),
        ),
    };
    Problem::new(Code::InvalidConfig, "Health cannot be proved", happened, next_step)
}

fn timed_out(manager: &str, waited: Duration, lacks: &str, next_step: impl Into<String>) -> Problem {
    Problem::new(
        Code::TimedOut,
        "Runner manager is not healthy",
        format!("Runner manager {manager:?} is not healthy after {}: {lacks}", human(waited)),
        next_step,
    )
}

/// A sentence about what an interrupted wait had seen last.
pub(in crate::explain) fn last_cause(failure: &Failure<NotHealthy>) -> String {
    if let Some(error) = &failure.lost {
        return format!("The last attempt to reach the wrapper failed: {}.", connection::cause(error));
    }
    let seen = last_seen(failure.last.as_ref());
    match &failure.reason {
        Reason::Interrupted(Some(NotHealthy::Missing(missing)))
            if failure.last.is_some() && *missing != Missing::Running =>
        {
            format!("{seen} Last cause: {missing}.")
        }
        _ => seen,
    }
}

/// The result of a refresh that found the runner not healthy, as a clause.
pub(crate) fn problem(snapshot: &Snapshot, missing: &Missing) -> String {
    match missing {
        Missing::Running | Missing::Time => drained(snapshot)
            .unwrap_or_else(|| format!("the runner's status is `{}`", snapshot.report.status)),
        other => other.to_string(),
    }
}

/// The condition that was not met in time, as the end of a sentence, and the next step.
fn lacking(snapshot: &Snapshot, missing: &Missing) -> (String, &'static str) {
    match missing {
        Missing::Running => not_running(snapshot),
        Missing::Time => (
            "the runner was healthy, but not for the whole time of `stable_for`.".to_owned(),
            "Check the log of the wrapper on the host for restarts, or set `timeouts` to more than `stable_for`.",
        ),
        Missing::Level { wanted, reasons, .. } => (
            format!(
                "the runner is running but did not reach level `{wanted}`. Reason: {}.",
                reasons.join("; ")
            ),
            "Fix this on the host or in GitLab, then run the same command again. To roll back, apply the old version.",
        ),
        Missing::Jobs { succeeded, failed, wanted } => (
            format!(
                "the runner requests jobs, but only {succeeded} of {wanted} jobs (`min_jobs`) have succeeded since its start, and {failed} \
                 have failed."
            ),
            "Check in GitLab that the runner is not paused (GitLab also accepts the job requests of a paused runner), that its tags match \
             the waiting jobs, and that the queue is not empty. `level = \"polling\"` does not wait for jobs.",
        ),
        Missing::Version { found: None, .. } => (
            format!("{missing}."),
            "The version is read from the runner's metrics: set `listen_address` in the runner's config.toml.",
        ),
        Missing::Version { .. } | Missing::Token { .. } | Missing::Proof { .. } | Missing::Gitlab(_) => (
            format!("{missing}."),
            "Check which version is installed on the host, or correct `expected_version`.",
        ),
    }
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
