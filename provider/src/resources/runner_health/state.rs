//! The attributes of a health check, their checks, and their conversion.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    Problems, call,
    schema::{
        AttributePath, AttributeType, Number, Schema, Value, boolean, computed_as, computed_text, number,
        object, object_schema, text, text_map,
    },
};
use tokio::time::Instant;

use super::evidence::Evidence;
use crate::{
    client::{Level, RunnerStatus},
    config::{
        enum_attribute::{EnumAttribute, check_member, member},
        manager::{RunnerManagerArgs, RunnerManagers, check_managers, required_managers},
        number::{check_whole, whole},
        object::{check_object, object},
        provider_block::Configuration,
        retry::RetryArgs,
        timeouts::{WaitTimeouts, check_duration, duration_or},
    },
    duration::{self, human},
    explain::{health, values},
    fleet::health::HealthPolicy,
};

pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(600);

/// Defaults of attributes.
const MIN_JOBS: u64 = 1;
const STABLE_FOR: Duration = Duration::ZERO;
const START_IF_STOPPED: bool = false;
pub(super) const START_DRAINS: bool = false;

const HEALTHY: &str = "healthy";
pub(super) const UNHEALTHY: &str = "unhealthy";

object! {
    /// State and configuration. Has no `Debug`: a runner manager may contain a private key.
    pub struct HealthState {
        pub(super) id: Value<String> = computed_text => "Unique identifier.";
        pub(super) runner_managers: RunnerManagers = required_managers =>
            "The runner managers. Messages identify each one by its key in this map. May be empty.", check_managers;
        pub(super) drains: Value<BTreeMap<String, Value<String>>> = text_map =>
            "The `id` of the `grit_runner_drain` of each runner manager, by key. A new drain resource changes this attribute, so the \
             health check runs again before old drain resources are destroyed. If `drains` is set, a plan warns about each runner \
             manager without an entry.";
        pub(super) level: Value<String> = text => format!(
            "Required health level: {}. Each level includes the levels before it; the section \"Health levels\" describes them. Every \
             level except `process` requires grit-wrapper on the host, and a `listen_address` in the configuration of the runner. A \
             runner manager that cannot prove the level is an error at once.",
            Level::choices()
        ), check_member::<Level>;
        #[serde(default)]
        pub(super) min_jobs: Value<Number> = number => format!(
            "Number of jobs that must have ended successfully on each runner manager since the start of its process. Requires \
             `level = \"working\"`. Default {MIN_JOBS}. The log shows the progress (`0 of {MIN_JOBS} jobs`)."
        ), check_whole(1..=1_000_000);
        pub(super) stable_for: Value<String> = text => format!(
            "Time for which each runner manager must stay healthy without interruption; shorter than both `timeouts`. Default `{}`.",
            human(STABLE_FOR)
        ), check_duration;
        pub(super) expected_version: Value<String> = text =>
            "Version that the runner must report. Requires grit-wrapper on the host, and a `listen_address` in the configuration of \
             the runner.";
        pub(super) start_if_stopped: Value<bool> = boolean => format!(
            "Start a runner that has exited, at most once. Requires grit-wrapper on the host. Default `{START_IF_STOPPED}`. For \
             blue/green layouts with permanent instances, and for a rollback after drains have begun."
        );
        #[serde(default)]
        pub(super) start_drains: Value<bool> = boolean => format!(
            "`true`: when all runner managers are healthy, start all drains of this plan at once: the drains of runner managers that are \
             removed from the map, if the same plan destroys their drain resources. `{START_DRAINS}` (default): each drain starts with the \
             destroy of its drain resource, and Terraform runs at most 10 operations at a time (`-parallelism`). The section \
             \"Starting all drains at once\" lists the conditions."
        );
        pub(super) retry: Value<RetryArgs> = object(RetryArgs::attributes("no limit (retries end at the timeout)")) =>
            "Retries of failed connections. A host can refuse connections for minutes while it boots.", check_object;
        pub(super) triggers: Value<BTreeMap<String, Value<String>>> = text_map =>
            "Arbitrary values. A change of any value repeats the health check.";
        pub(super) timeouts: Value<WaitTimeouts> =
            object(WaitTimeouts::attributes(&human(HEALTH_TIMEOUT), ": connections, logins, retries and `stable_for`")) =>
            "Timeouts.", check_object;
        pub(super) status: Value<String> = computed_text =>
            "`healthy`, or `unhealthy` if a refresh found a runner manager that is not healthy: the next apply then repeats the \
             health check. With a `level` below `polling`: `healthy (process only)` or `healthy (ready only)`.";
        pub(super) managers: Value<BTreeMap<String, Value<Evidence>>> = computed_as(AttributeType::AttributeMap(Evidence::attributes())) =>
            "Verified health of each runner manager, by key. Unknown values are null, never zero.";
        #[serde(default)]
        pub(super) started_drains: Value<Vec<Value<String>>> = computed_as(AttributeType::List(Box::new(AttributeType::String))) =>
            "Keys of the runner managers whose drains the last update started (`start_drains`). A plan shows which drains its apply will \
             start. Null if there are none.";
    }
    check: HealthState::check_together;
}

pub(super) fn schema() -> Schema {
    object_schema(
        0,
        "Waits at create and at every update until all runner managers of a map are healthy at `level`. Only then does Terraform \
         continue: it creates the resources that depend on this resource, and destroys the old drain resources and instances.",
        HealthState::attributes(),
    )
}

impl HealthState {
    pub(super) fn policy(
        &self,
        configuration: &Configuration,
        start: Instant,
        timeout: Duration,
    ) -> HealthPolicy {
        HealthPolicy {
            start,
            timeout,
            stable_for: duration_or(&self.stable_for, STABLE_FOR),
            min_jobs: whole(&self.min_jobs).unwrap_or(MIN_JOBS),
            level: self.required_level(),
            expected_version: self.expected_version.as_ref_option().filter(|text| !text.is_empty()).cloned(),
            start_if_stopped: self.start_if_stopped.unwrap_or(START_IF_STOPPED),
            gitlab: None,
            // A booting host refuses connections for minutes: by default, only the timeout limits the attempts.
            retry: configuration.retry(self.retry.as_ref_option(), None),
        }
    }

    fn required_level(&self) -> Level {
        member(&self.level)
    }

    /// The level, if it does not prove that the runners take jobs.
    pub(super) fn low_level(&self) -> Option<Level> {
        Some(self.required_level()).filter(|level| !self.level.is_unknown() && *level < Level::Polling)
    }

    /// The status after a successful check. A low level stays visible.
    pub(super) fn healthy(&self) -> Value<String> {
        Value::Value(match self.low_level() {
            Some(level) => format!("{HEALTHY} ({level} only)"),
            None => HEALTHY.to_owned(),
        })
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.status.as_ref_option().is_some_and(|status| status.starts_with(HEALTHY))
    }

    /// The highest level that the evidence records: a job that ends must not change the state of a check that waits for no jobs.
    pub(super) fn level_cap(&self) -> Level {
        self.required_level().max(Level::Polling)
    }

    /// The id of a runner manager for `GRIT_ASSUME_TERMINATED`: its instance id, or the id of its drain resource.
    pub(super) fn identifier(&self, key: &str) -> String {
        let manager = self.runner_managers.iter().flatten().find(|(name, _)| *name == key);
        let instance = manager.and_then(|(_, it)| it.as_ref_option()?.instance_id.as_ref_option());
        let drain = self.drains.iter().flatten().find(|(name, _)| *name == key);
        let drain = drain.and_then(|(_, id)| id.as_ref_option());
        let known = instance.into_iter().chain(drain).find(|id| !id.is_empty());
        known.cloned().unwrap_or_else(|| "INSTANCE_ID".to_owned())
    }

    /// A known runner manager.
    pub(super) fn manager(&self, key: &str) -> Option<&RunnerManagerArgs> {
        self.runner_managers.as_ref_option()?.get(key)?.as_ref_option()
    }

    fn check_together(&self, path: &AttributePath, problems: &mut Problems) {
        if let (Value::Value(_), false) = (&self.min_jobs, self.level.is_unknown())
            && self.level_cap() < Level::Working
        {
            let path = path.clone().attribute("min_jobs");
            problems.add(values::min_jobs_without_working(self.required_level().as_str()).at(path));
        }
        self.check_stable_for(problems);
    }

    /// Rejects a `stable_for` that exceeds a timeout.
    fn check_stable_for(&self, problems: &mut Problems) {
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
                problems.add(
                    values::stable_for_exceeds_timeout(text, name, limit)
                        .at(AttributePath::new("stable_for")),
                );
                return;
            }
        }
    }
}

/// Warns about runner managers that the plan keeps and that were not healthy at the last refresh.
pub(super) fn warn_of_unhealthy(state: &HealthState, planned: &HealthState) {
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
        call().warn(health::unhealthy_at_refresh(&found).at(AttributePath::new("runner_managers")));
    }
}

impl EnumAttribute for Level {
    const VALUES: &'static [(Self, &'static str)] = &[
        (Self::Process, "process"),
        (Self::Ready, "ready"),
        (Self::Polling, "polling"),
        (Self::Working, "working"),
    ];
    /// A lower level does not prove that the runner takes jobs, and an idle runner reaches no higher one.
    const DEFAULT: Self = Self::Polling;
}

/// The runner managers that have no entry in `drains`, where that attribute is used.
pub(super) fn missing_drains(planned: &HealthState) -> Vec<&str> {
    let (Value::Value(managers), Value::Value(drains)) = (&planned.runner_managers, &planned.drains) else {
        return Vec::new();
    };
    managers.keys().filter(|key| !drains.contains_key(*key)).map(String::as_str).collect()
}
