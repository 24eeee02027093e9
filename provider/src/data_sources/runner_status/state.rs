//! The attributes of the data source.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    client::{Level, Snapshot},
    config::{
        computed::optional_value,
        manager::{self, RunnerManagerArgs, RunnerManagers},
        observed::{Observed, count},
        timeouts::{ReadTimeout, duration_or},
    },
    explain::Explained,
    schema::{
        AttributePath, AttributeType, Diagnostics, Schema, Value, attributes, computed, optional, required,
        schema as schema_of,
    },
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
        let Observed {
            version,
            pid,
            started_at,
            jobs,
            jobs_succeeded,
            verified,
            job_router,
            worker_groups,
            wrapper,
        } = Observed::of(snapshot);
        Self {
            reachable: Value::Value(true),
            state: Value::Value(snapshot.report.status.to_string()),
            level: level(detail.map(|detail| detail.level)),
            level_max: level(detail.and_then(|detail| detail.level_max)),
            reasons: optional_value(detail.map(|detail| detail.reasons.clone())),
            version,
            pid,
            started_at,
            jobs,
            oldest_job_seconds: optional_value(
                detail
                    .and_then(|detail| detail.oldest_job.as_ref())
                    .and_then(|(age, _)| age.as_secs().try_into().ok()),
            ),
            jobs_succeeded,
            jobs_failed: count(detail.and_then(|detail| detail.evidence.jobs_failed)),
            verified,
            job_router,
            worker_groups,
            drain: optional_value(detail.and_then(|detail| detail.drain.as_ref()).map(|drain| DrainStatus {
                id: text(&drain.id),
                mode: text(if drain.forceful { "forceful" } else { "graceful" }),
                reason: text(&drain.reason),
            })),
            wrapper,
            failure_reason: optional_value(
                Some(snapshot.report.failure_reason.clone()).filter(|reason| !reason.is_empty()),
            ),
            error: Value::Null,
            error_code: Value::Null,
        }
    }

    pub(super) fn unreachable(cause: &Explained) -> Self {
        Self {
            reachable: Value::Value(false),
            error: Value::Value(cause.happened.clone()),
            error_code: Value::Value(cause.code.to_string()),
            ..Self::default()
        }
    }
}

impl StatusState {
    pub(super) fn check(&self, diags: &mut Diagnostics) {
        manager::check_all(&self.runner_managers, &AttributePath::new("runner_managers"), diags);
        if let Value::Value(timeouts) = &self.timeouts {
            timeouts.check(&AttributePath::new("timeouts"), diags);
        }
    }

    /// The managers by key. At a read every value is known.
    pub(super) fn known_managers(&self) -> BTreeMap<String, RunnerManagerArgs> {
        let entries = self.runner_managers.iter().flatten();
        entries.filter_map(|(key, manager)| Some((key.clone(), manager.as_ref_option()?.clone()))).collect()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeouts.as_ref_option().map_or(TIMEOUT, |timeouts| duration_or(&timeouts.read, TIMEOUT))
    }
}

pub(super) fn schema() -> Schema {
    use AttributeType::{AttributeMap, AttributeSingle, Bool, List, Number, String};
    let drain = attributes([
        ("id", computed(String, "ID of the drain.")),
        ("mode", computed(String, "`graceful` or `forceful`.")),
        ("reason", computed(String, "Reason in the request of the drain.")),
    ]);
    let mut status = attributes([
        ("reachable", computed(Bool, "Whether the wrapper responded.")),
        (
            "state",
            computed(
                String,
                "State of the runner in the report of the wrapper: `running`, `in_shutdown`, `stopped` or `unknown`.",
            ),
        ),
        ("level", computed(String, "Health level of the runner.")),
        ("level_max", computed(String, "Maximum level that the wrapper can check.")),
        ("reasons", computed(List(Box::new(String)), "Why the next health level is not reached.")),
        ("jobs", computed(Number, "Number of running jobs.")),
        ("oldest_job_seconds", computed(Number, "Age of the oldest running job, in seconds.")),
        (
            "jobs_succeeded",
            computed(Number, "Number of jobs that have succeeded since the start of the process."),
        ),
        ("jobs_failed", computed(Number, "Number of jobs that have failed since the start of the process.")),
        (
            "drain",
            computed(AttributeSingle(drain), "The current drain, or the drain that stopped the runner."),
        ),
        (
            "failure_reason",
            computed(String, "Reason that the wrapper reports for an exit or a failed start."),
        ),
        ("error", computed(String, "Why the wrapper did not respond; null if it responded.")),
        ("error_code", computed(String, "Code of `error`, such as `connect_failed`.")),
    ]);
    status.extend(Observed::attributes());
    schema_of(
        0,
        "Reads the current status of runner managers from their wrappers. A runner manager that cannot be reached is not an error: its entry \
         has the cause.",
        [
            (
                "runner_managers",
                required(
                    AttributeMap(RunnerManagerArgs::attributes()),
                    "The runner managers, by key. May be empty.",
                ),
            ),
            ("timeouts", optional(AttributeSingle(ReadTimeout::attributes("30s")), "Timeouts.")),
            (
                "managers",
                computed(
                    AttributeMap(status),
                    "Status of each runner manager, by key. Values that the wrapper does not report are null, never zero.",
                ),
            ),
        ],
    )
}
