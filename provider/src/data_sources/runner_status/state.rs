//! The attributes of the data source.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    Problem, Problems, attribute_map,
    schema::{
        AttributeType, Schema, Value, computed_as, computed_boolean, computed_number, computed_text, object,
        object_schema,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    client::{Level, Snapshot},
    config::{
        computed::optional_value,
        manager::{self, RunnerManagers, required_managers},
        observed::{Observed, count},
        timeouts::ReadTimeout,
    },
    duration::human,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration and result. It has no `Debug`: a manager may contain a private key.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusState {
    pub(super) runner_managers: RunnerManagers,
    timeouts: Value<ReadTimeout>,
    pub(super) managers: Value<Statuses>,
}

pub(super) type Statuses = BTreeMap<String, Value<ManagerStatus>>;

/// The report of one wrapper, or the reason for its absence. Null is unknown, never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ManagerStatus {
    reachable: Value<bool>,
    state: Value<String>,
    level: Value<String>,
    level_max: Value<String>,
    reasons: Value<Vec<String>>,
    version: Value<String>,
    pid: Value<i64>,
    started_at: Value<String>,
    jobs: Value<i64>,
    oldest_job_seconds: Value<i64>,
    jobs_succeeded: Value<i64>,
    jobs_failed: Value<i64>,
    verified: Value<bool>,
    job_router: Value<String>,
    worker_groups: Value<Vec<Value<String>>>,
    drain: Value<DrainStatus>,
    wrapper: Value<String>,
    failure_reason: Value<String>,
    error: Value<String>,
    error_code: Value<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct DrainStatus {
    id: Value<String>,
    mode: Value<String>,
    reason: Value<String>,
}

impl ManagerStatus {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let detail = snapshot.detail.as_deref();
        let text = |text: &str| Value::Value(text.to_owned());
        let level = |level: Option<Level>| optional_value(level.map(|level| level.to_string()));
        let seen = Observed::of(snapshot);
        Self {
            reachable: Value::Value(true),
            state: Value::Value(snapshot.report.status.to_string()),
            level: level(detail.map(|detail| detail.level)),
            level_max: level(detail.and_then(|detail| detail.level_max)),
            reasons: optional_value(detail.map(|detail| detail.reasons.clone())),
            version: seen.version,
            pid: seen.pid,
            started_at: seen.started_at,
            jobs: seen.jobs,
            oldest_job_seconds: optional_value(
                detail
                    .and_then(|detail| detail.oldest_job.as_ref())
                    .and_then(|(age, _)| age.as_secs().try_into().ok()),
            ),
            jobs_succeeded: seen.jobs_succeeded,
            jobs_failed: count(detail.and_then(|detail| detail.evidence.jobs_failed)),
            verified: seen.verified,
            job_router: seen.job_router,
            worker_groups: seen.worker_groups,
            drain: optional_value(detail.and_then(|detail| detail.drain.as_ref()).map(|drain| DrainStatus {
                id: text(&drain.id),
                mode: text(if drain.forceful { "forceful" } else { "graceful" }),
                reason: text(&drain.reason),
            })),
            wrapper: seen.wrapper,
            failure_reason: optional_value(
                Some(snapshot.report.failure_reason.clone()).filter(|reason| !reason.is_empty()),
            ),
            error: Value::Null,
            error_code: Value::Null,
        }
    }

    pub(super) fn unreachable(cause: &Problem) -> Self {
        Self {
            reachable: Value::Value(false),
            error: Value::Value(cause.happened.clone()),
            error_code: Value::Value(cause.code.to_string()),
            ..Self::default()
        }
    }
}

impl StatusState {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        manager::check_map(&self.runner_managers, &mut problems);
        ReadTimeout::check(&self.timeouts, &mut problems);
        problems.or(())
    }

    pub(super) fn timeout(&self) -> Duration {
        ReadTimeout::read(&self.timeouts, TIMEOUT)
    }
}

pub(super) fn schema() -> Schema {
    use AttributeType::{AttributeMap, AttributeSingle, List, String};
    let drain = attribute_map! {
        id: computed_text => "ID of the drain.",
        mode: computed_text => "`graceful` or `forceful`.",
        reason: computed_text => "Reason in the request of the drain.",
    };
    let mut status = attribute_map! {
        reachable: computed_boolean => "Whether the wrapper responded.",
        state: computed_text => "State of the runner in the report of the wrapper: `running`, `draining`, `stopped` or `unknown`.",
        level: computed_text => "Health level of the runner.",
        level_max: computed_text => "Maximum level that the wrapper can check.",
        reasons: computed_as(List(Box::new(String))) => "Why the next health level is not reached.",
        jobs: computed_number => "Number of running jobs.",
        oldest_job_seconds: computed_number => "Age of the oldest running job, in seconds.",
        jobs_succeeded: computed_number => "Number of jobs that have succeeded since the start of the process.",
        jobs_failed: computed_number => "Number of jobs that have failed since the start of the process.",
        drain: computed_as(AttributeSingle(drain)) => "The current drain, or the drain that stopped the runner.",
        failure_reason: computed_text => "Reason that the wrapper reports for an exit or a failed start.",
        error: computed_text => "Why the wrapper did not respond; null if it responded.",
        error_code: computed_text => "Code of `error`, such as `connect_failed`.",
    };
    status.extend(Observed::attributes());
    object_schema(
        0,
        "Reads the current status of runner managers from their wrappers. A runner manager that cannot be reached is not an error: its entry \
         has the cause.",
        attribute_map! {
            runner_managers: required_managers => "The runner managers, by key. May be empty.",
            timeouts: object(ReadTimeout::attributes(&human(TIMEOUT))) => "Timeouts.",
            managers: computed_as(AttributeMap(status)) =>
                "Status of each runner manager, by key. Values that the wrapper does not report are null, never zero.",
        },
    )
}
