//! What a wrapper reports about its runner, as computed attributes that the health check and the status have in common.

use grit_plugin::{
    attribute_map,
    schema::{
        AttributeType, Attributes, Value, computed_as, computed_boolean, computed_number, computed_text,
    },
};

use crate::{
    client::Snapshot,
    config::computed::{optional_value, rfc3339},
};

/// The values of one report. A value that the wrapper does not report is null.
pub(crate) struct Observed {
    pub(crate) version: Value<String>,
    pub(crate) pid: Value<i64>,
    pub(crate) started_at: Value<String>,
    pub(crate) jobs: Value<i64>,
    pub(crate) jobs_succeeded: Value<i64>,
    pub(crate) verified: Value<bool>,
    pub(crate) job_router: Value<String>,
    pub(crate) worker_groups: Value<Vec<Value<String>>>,
    pub(crate) wrapper: Value<String>,
}

impl Observed {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let detail = snapshot.detail.as_deref();
        let evidence = detail.map(|detail| &detail.evidence);
        Self {
            version: optional_value(detail.and_then(|detail| detail.runner_version.clone())),
            pid: optional_value(detail.and_then(|detail| detail.pid).map(i64::from)),
            started_at: optional_value(detail.and_then(|detail| detail.started_at).and_then(rfc3339)),
            jobs: optional_value(detail.and_then(|detail| detail.jobs).map(i64::from)),
            jobs_succeeded: count(evidence.and_then(|it| it.jobs_succeeded)),
            verified: optional_value(evidence.and_then(|it| it.verified)),
            job_router: optional_value(evidence.and_then(|it| it.job_router.clone())),
            worker_groups: optional_value(
                evidence.map(|it| it.worker_groups.iter().cloned().map(Value::Value).collect()),
            ),
            wrapper: Value::Value(snapshot.wrapper()),
        }
    }

    /// The attributes, without the numbers of jobs, whose meaning differs.
    pub(crate) fn attributes() -> Attributes {
        attribute_map! {
            version: computed_text => "Version reported by the runner.",
            pid: computed_number => "PID of the runner process.",
            started_at: computed_text => "Start time of the process (RFC 3339, UTC).",
            verified: computed_boolean =>
                "Result of GitLab Runner's boot-verify; null if it is not enabled in every `[[runners]]` section.",
            job_router: computed_text =>
                "State of the circuit breaker of the job router (`closed`, `open`, `half_open`); null if the runner does not use it.",
            worker_groups: computed_as(AttributeType::List(Box::new(AttributeType::String))) =>
                "Autoscaling groups in the configuration of the runner, such as `aws/runners-blue`.",
            wrapper: computed_text => "`grit-wrapper` with its version, or `upstream`.",
        }
    }
}

/// A counter of the runner.
pub(crate) fn count(jobs: Option<u64>) -> Value<i64> {
    optional_value(jobs.and_then(|jobs| jobs.try_into().ok()))
}
