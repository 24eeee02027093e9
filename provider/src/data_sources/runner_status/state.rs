//! The attributes of the data source.

use std::collections::BTreeMap;

use grit_plugin::{
    Problem,
    schema::{
        AttributeType::{self, AttributeMap, AttributeSingle, List},
        Schema, Value, computed_as, computed_boolean, computed_number, computed_text, object_schema,
    },
};

use crate::{
    client::{Level, Snapshot},
    config::{
        computed::optional_value,
        manager::{RunnerManagers, check_managers, required_managers},
        object::object,
        observed::{Observed, count},
    },
};

object! {
    /// Configuration and result. It has no `Debug`: a manager may contain a private key.
    pub struct StatusState {
        pub(super) runner_managers: RunnerManagers = required_managers =>
            "The runner managers, by key. May be empty.", check_managers;
        pub(super) managers: Value<Statuses> = computed_as(AttributeMap(ManagerStatus::attributes())) =>
            "Status of each runner manager, by key. Values that the wrapper does not report are null, never zero.";
    }
}

pub(super) type Statuses = BTreeMap<String, Value<ManagerStatus>>;

object! {
    /// The report of one wrapper, or the reason for its absence. Null is unknown, never zero.
    #[derive(Debug)]
    pub(super) struct ManagerStatus {
        reachable: Value<bool> = computed_boolean => "Whether the wrapper responded.";
        state: Value<String> = computed_text =>
            "State of the runner, as reported by the wrapper: `running`, `draining`, `stopped` or `unknown`.";
        level: Value<String> = computed_text => "Health level of the runner.";
        level_max: Value<String> = computed_text => "Maximum level that the wrapper can check.";
        reasons: Value<Vec<String>> = computed_as(List(Box::new(AttributeType::String))) => "Why the next health level is not reached.";
        oldest_job_seconds: Value<i64> = computed_number => "Age of the oldest running job, in seconds.";
        jobs_failed: Value<i64> = computed_number => "Number of jobs that have failed since the start of the process.";
        drain: Value<DrainStatus> = computed_as(AttributeSingle(DrainStatus::attributes())) =>
            "The current drain, or the drain that stopped the runner.";
        failure_reason: Value<String> = computed_text => "Reason that the wrapper reports for an exit or a failed start.";
        error: Value<String> = computed_text => "Why the wrapper did not respond; null if it responded.";
        error_code: Value<String> = computed_text => "Code of `error`, such as `connect_failed`.";
        ..observed: Observed("have", "");
    }
}

object! {
    #[derive(Debug)]
    struct DrainStatus {
        id: Value<String> = computed_text => "ID of the drain.";
        mode: Value<String> = computed_text => "`graceful` or `forceful`.";
        reason: Value<String> = computed_text => "Reason given in the drain request.";
    }
}

impl ManagerStatus {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let detail = snapshot.detail.as_deref();
        let text = |text: &str| Value::Value(text.to_owned());
        let level = |level: Option<Level>| optional_value(level.map(|level| level.to_string()));
        Self {
            reachable: Value::Value(true),
            state: Value::Value(snapshot.report.status.to_string()),
            level: level(detail.map(|detail| detail.level)),
            level_max: level(detail.and_then(|detail| detail.level_max)),
            reasons: optional_value(detail.map(|detail| detail.reasons.clone())),
            oldest_job_seconds: optional_value(
                detail
                    .and_then(|detail| detail.oldest_job.as_ref())
                    .and_then(|(age, _)| age.as_secs().try_into().ok()),
            ),
            jobs_failed: count(detail.and_then(|detail| detail.evidence.jobs_failed)),
            drain: optional_value(detail.and_then(|detail| detail.drain.as_ref()).map(|drain| DrainStatus {
                id: text(&drain.id),
                mode: text(if drain.forceful { "forceful" } else { "graceful" }),
                reason: text(&drain.reason),
            })),
            failure_reason: optional_value(
                Some(snapshot.report.failure_reason.clone()).filter(|reason| !reason.is_empty()),
            ),
            error: Value::Null,
            error_code: Value::Null,
            observed: Observed::of(snapshot),
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

pub(super) fn schema() -> Schema {
    object_schema(
        0,
        "Reads the current status of runner managers from their wrappers. A runner manager that cannot be reached does not cause an \
         error: its entry contains the cause.",
        StatusState::attributes(),
    )
}
