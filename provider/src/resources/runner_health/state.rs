//! The attributes of a health check, their checks, and the evidence.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::{
    client::{Level, RunnerStatus, Snapshot},
    config::{
        enum_attribute::{self, EnumAttribute, member},
        manager::{self, RunnerManagerArgs, RunnerManagers},
        retry::RetryArgs,
        timeouts::{WaitTimeouts, check_duration, duration_or},
    },
    duration,
    explain::{health, values},
    fleet::health::HealthPolicy,
    process::Configured,
    resources::{optional_value, rfc3339},
    schema::{
        AttributePath, AttributeType, Diagnostics, Schema, Value, attributes, computed, optional, required,
        schema as schema_of,
    },
};

const HEALTH_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) const HEALTHY: &str = "healthy";
pub(super) const UNHEALTHY: &str = "unhealthy";

/// State and configuration. Has no `Debug`: a runner manager may contain a private key.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthState {
    pub(super) id: Value<String>,
    pub(super) runner_managers: RunnerManagers,
    pub(super) guards: Value<BTreeMap<String, Value<String>>>,
    pub(super) level: Value<String>,
    pub(super) stable_for: Value<String>,
    pub(super) expected_version: Value<String>,
    pub(super) start_if_stopped: Value<bool>,
    pub(super) retry: Value<RetryArgs>,
    pub(super) triggers: Value<BTreeMap<String, Value<String>>>,
    pub(super) timeouts: Value<WaitTimeouts>,
    pub(super) status: Value<String>,
    pub(super) managers: Value<BTreeMap<String, Value<Evidence>>>,
}

/// The verified health of one runner manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// The last reported state of the runner; `unreachable` if the wrapper did not respond.
    pub(super) state: Value<String>,
    /// The verified level.
    pub(super) level: Value<String>,
    pub(super) version: Value<String>,
    pub(super) pid: Value<i64>,
    pub(super) started_at: Value<String>,
    pub(super) jobs: Value<i64>,
    pub(super) wrapper: Value<String>,
    /// The time of verification, RFC 3339 in UTC.
    pub(super) verified_at: Value<String>,
    /// Why it was not healthy at the last refresh.
    #[serde(default)]
    pub(super) problem: Value<String>,
}

/// The values of `level`. `Auto` is the maximum level that the wrapper can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Auto,
    Level(Level),
}

impl EnumAttribute for Wanted {
    const VALUES: &'static [(Self, &'static str)] = &[
        (Self::Auto, "auto"),
        (Self::Level(Level::Process), Level::Process.as_str()),
        (Self::Level(Level::Ready), Level::Ready.as_str()),
        (Self::Level(Level::Polling), Level::Polling.as_str()),
    ];
}

impl Evidence {
    /// The evidence in `snapshot`. Upstream's wrapper reports only that the process was started.
    pub(super) fn new(snapshot: &Snapshot, now: OffsetDateTime) -> Self {
        let detail = snapshot.detail.as_deref();
        let level = detail.map_or(Level::Process, |detail| detail.level);
        Self {
            state: Value::Value(snapshot.report.status.to_string()),
            level: Value::Value(level.to_string()),
            version: optional_value(detail.and_then(|detail| detail.runner_version.clone())),
            pid: optional_value(detail.and_then(|detail| detail.pid).map(i64::from)),
            started_at: optional_value(detail.and_then(|detail| detail.started_at).and_then(rfc3339)),
            jobs: optional_value(detail.and_then(|detail| detail.jobs).map(i64::from)),
            wrapper: Value::Value(detail.map_or_else(
                || "upstream".to_owned(),
                |detail| format!("grit-wrapper {}", detail.wrapper_version),
            )),
            verified_at: optional_value(rfc3339(now)),
            problem: Value::Null,
        }
    }
}

impl HealthState {
    /// The runner managers by key. At apply, all values are known.
    pub(super) fn known_managers(&self) -> BTreeMap<String, RunnerManagerArgs> {
        let entries = self.runner_managers.iter().flatten();
        entries.filter_map(|(key, manager)| Some((key.clone(), manager.as_ref_option()?.clone()))).collect()
    }

    pub(super) fn policy(&self, known: &Configured, start: Instant, timeout: Duration) -> HealthPolicy {
        HealthPolicy {
            start,
            timeout,
            stable_for: duration_or(&self.stable_for, Duration::ZERO),
            level: match member(&self.level) {
                Wanted::Auto => None,
                Wanted::Level(level) => Some(level),
            },
            expected_version: self.expected_version.as_ref_option().filter(|text| !text.is_empty()).cloned(),
            start_if_stopped: self.start_if_stopped.unwrap_or(false),
            // A booting host refuses connections for minutes: by default, only the timeout limits the attempts.
            retry: known.retry(self.retry.as_ref_option(), None),
        }
    }

    /// The id of a runner manager for `GRIT_ASSUME_TERMINATED`: its instance id, or the id of its drain resource.
    pub(super) fn identifier(&self, key: &str) -> String {
        let manager = self.runner_managers.iter().flatten().find(|(name, _)| *name == key);
        let instance = manager.and_then(|(_, it)| it.as_ref_option()?.instance_id.as_ref_option());
        let guard = self.guards.iter().flatten().find(|(name, _)| *name == key);
        let guard = guard.and_then(|(_, id)| id.as_ref_option());
        let known = instance.into_iter().chain(guard).find(|id| !id.is_empty());
        known.cloned().unwrap_or_else(|| "INSTANCE_ID".to_owned())
    }

    pub(super) fn timeout(&self, pick: fn(&WaitTimeouts) -> &Value<String>) -> Duration {
        self.timeouts
            .as_ref_option()
            .map_or(HEALTH_TIMEOUT, |timeouts| duration_or(pick(timeouts), HEALTH_TIMEOUT))
    }

    pub(super) fn check(&self, diags: &mut Diagnostics) {
        manager::check_all(&self.runner_managers, &AttributePath::new("runner_managers"), diags);
        enum_attribute::check::<Wanted>(&self.level, AttributePath::new("level"), diags);
        check_duration(&self.stable_for, AttributePath::new("stable_for"), diags);
        if let Value::Value(retry) = &self.retry {
            retry.check(&AttributePath::new("retry"), diags);
        }
        if let Value::Value(timeouts) = &self.timeouts {
            timeouts.check(&AttributePath::new("timeouts"), diags);
        }
        self.check_stable_for(diags);
    }

    /// Rejects a `stable_for` that exceeds a timeout.
    fn check_stable_for(&self, diags: &mut Diagnostics) {
        let Value::Value(text) = &self.stable_for else { return };
        let Ok(stable_for) = duration::parse(text) else { return };
        let (default, unknown) =
            (WaitTimeouts::default(), WaitTimeouts { create: Value::Unknown, update: Value::Unknown });
        let timeouts = match &self.timeouts {
            Value::Value(timeouts) => timeouts,
            Value::Null => &default,
            Value::Unknown => &unknown,
        };
        for (name, limit) in [("create", &timeouts.create), ("update", &timeouts.update)] {
            let limit = match limit {
                Value::Value(text) => duration::parse(text).ok(),
                Value::Null => Some(HEALTH_TIMEOUT),
                Value::Unknown => None,
            };
            if let Some(limit) = limit.filter(|limit| stable_for >= *limit) {
                values::stable_for_exceeds_timeout(text, name, limit)
                    .error(AttributePath::new("stable_for"), diags);
                return;
            }
        }
    }
}

/// Warns about runner managers that the plan keeps and that were not healthy at the last refresh.
pub(super) fn warn_of_unhealthy(state: &HealthState, planned: &HealthState, diags: &mut Diagnostics) {
    let stays = |key: &String| match &planned.runner_managers {
        Value::Value(managers) => managers.contains_key(key),
        Value::Null | Value::Unknown => true,
    };
    let mut found = Vec::new();
    for (key, evidence) in state.managers.iter().flatten().filter(|(key, _)| stays(key)) {
        let Value::Value(Evidence { state: Value::Value(seen), problem, .. }) = evidence else { continue };
        let problem = problem.as_ref_option().map(String::as_str);
        if problem.is_some() || *seen != RunnerStatus::Running.to_string() {
            found.push((key.as_str(), seen.as_str(), problem));
        }
    }
    if !found.is_empty() {
        health::unhealthy_at_refresh(&found).warning(AttributePath::new("runner_managers"), diags);
    }
}

/// The drain resources that the plan removes from `guards`, by key.
pub(super) fn removed_guards(prior: &HealthState, planned: &HealthState) -> Vec<(String, String)> {
    let Value::Value(stays) = &planned.guards else { return Vec::new() };
    let ids = prior.guards.iter().flatten().filter_map(|(key, id)| Some((key, id.as_ref_option()?)));
    let removed = ids.filter(|(key, _)| !stays.contains_key(*key));
    removed.map(|(key, id)| (key.clone(), id.clone())).collect()
}

/// The schema of the resource.
pub(super) fn schema() -> Schema {
    let texts = || AttributeType::Map(Box::new(AttributeType::String));
    let evidence = attributes([
        (
            "state",
            computed(
                AttributeType::String,
                "Runner state in the last report of the wrapper; `unreachable` when the wrapper did not respond.",
            ),
        ),
        ("level", computed(AttributeType::String, "Health level in the last report.")),
        ("version", computed(AttributeType::String, "Version reported by the runner.")),
        ("pid", computed(AttributeType::Number, "PID of the runner process.")),
        ("started_at", computed(AttributeType::String, "Start time of the process (RFC 3339, UTC).")),
        ("jobs", computed(AttributeType::Number, "Number of running jobs when the health was verified.")),
        ("wrapper", computed(AttributeType::String, "`grit-wrapper` with its version, or `upstream`.")),
        (
            "verified_at",
            computed(AttributeType::String, "Time at which the health was verified (RFC 3339, UTC)."),
        ),
        (
            "problem",
            computed(
                AttributeType::String,
                "Why the last refresh reported the runner manager as not healthy; null when it is healthy.",
            ),
        ),
    ]);
    schema_of(
        0,
        "Waits at create and at every update until all runner managers of a map are healthy at `level`. Resources that depend on this \
         resource are created after that, and resources that this resource depends on are destroyed after that.",
        [
            ("id", computed(AttributeType::String, "Unique identifier.")),
            (
                "runner_managers",
                required(
                    AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
                    "The runner managers. Messages identify each one by its key in this map. May be empty.",
                ),
            ),
            (
                "guards",
                optional(
                    texts(),
                    "IDs of the `grit_runner_drain` of these runner managers. A new drain resource changes this attribute, so the health \
                     check runs again before old drain resources are destroyed.",
                ),
            ),
            (
                "level",
                optional(
                    AttributeType::String,
                    &format!(
                        "Required health level: {}. `process`: the runner process is running; `ready`: the runner reports that it is \
                         ready; `polling`: GitLab accepts the runner's job requests. `auto` is the maximum level that the wrapper can \
                         check: `process` if the runner's configuration has no `listen_address`, else `polling`. Levels above `process` \
                         require grit-wrapper on the host.",
                        Wanted::choices()
                    ),
                ),
            ),
            (
                "expected_version",
                optional(
                    AttributeType::String,
                    "Required version of the runner. Requires grit-wrapper on the host.",
                ),
            ),
            (
                "start_if_stopped",
                optional(
                    AttributeType::Bool,
                    "Start a runner that has exited, once. Requires grit-wrapper on the host. Default `false`.",
                ),
            ),
            (
                "stable_for",
                optional(
                    AttributeType::String,
                    "Time for which each runner manager must stay healthy without interruption. Default `0s`.",
                ),
            ),
            (
                "retry",
                optional(
                    AttributeType::AttributeSingle(RetryArgs::attributes("until the timeout")),
                    "Retries of failed connections.",
                ),
            ),
            (
                "triggers",
                optional(texts(), "Arbitrary values. A change of any value repeats the health check."),
            ),
            (
                "timeouts",
                optional(
                    AttributeType::AttributeSingle(WaitTimeouts::attributes(&duration::human(
                        HEALTH_TIMEOUT,
                    ))),
                    "Timeouts.",
                ),
            ),
            (
                "status",
                computed(
                    AttributeType::String,
                    "`healthy`, or `unhealthy` if a refresh found a runner manager that is not healthy. In this case, the next apply \
                     repeats the health check.",
                ),
            ),
            (
                "managers",
                computed(
                    AttributeType::AttributeMap(evidence),
                    "Verified health of each runner manager, by key.",
                ),
            ),
        ],
    )
}
