//! The attributes of a health check, their checks, and the evidence.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::{
    Problems, call,
    schema::{AttributePath, Number, Value},
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::{
    client::{Level, RunnerStatus, Snapshot},
    config::{
        computed::{optional_value, rfc3339},
        enum_attribute::{self, EnumAttribute, member},
        manager::{self, RunnerManagerArgs, RunnerManagers},
        number::{check_whole, whole},
        observed::Observed,
        provider_block::Configuration,
        retry::RetryArgs,
        timeouts::{WaitTimeouts, check_duration, duration_or},
    },
    duration,
    explain::{health, values},
    fleet::health::HealthPolicy,
};

pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(600);

/// Defaults of attributes.
pub(super) const MIN_JOBS: u64 = 1;
pub(super) const STABLE_FOR: Duration = Duration::ZERO;
pub(super) const START_IF_STOPPED: bool = false;
pub(super) const START_DRAINS: bool = false;
pub(super) const ALLOW_SHARED_WORKER_GROUP: bool = false;

pub(super) const HEALTHY: &str = "healthy";
pub(super) const UNHEALTHY: &str = "unhealthy";

/// State and configuration. Has no `Debug`: a runner manager may contain a private key.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthState {
    pub(super) id: Value<String>,
    pub(super) runner_managers: RunnerManagers,
    pub(super) guards: Value<BTreeMap<String, Value<String>>>,
    pub(super) level: Value<String>,
    #[serde(default)]
    pub(super) min_jobs: Value<Number>,
    #[serde(default)]
    pub(super) allow_shared_worker_group: Value<bool>,
    pub(super) stable_for: Value<String>,
    pub(super) expected_version: Value<String>,
    pub(super) start_if_stopped: Value<bool>,
    #[serde(default)]
    pub(super) start_drains: Value<bool>,
    pub(super) retry: Value<RetryArgs>,
    pub(super) triggers: Value<BTreeMap<String, Value<String>>>,
    pub(super) timeouts: Value<WaitTimeouts>,
    pub(super) status: Value<String>,
    pub(super) managers: Value<BTreeMap<String, Value<Evidence>>>,
    #[serde(default)]
    pub(super) started_drains: Value<Vec<Value<String>>>,
}

/// The verified health of one runner manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// The last reported state of the runner; `unreachable` if the wrapper did not respond.
    pub(super) state: Value<String>,
    pub(super) level: Value<String>,
    pub(super) version: Value<String>,
    pub(super) pid: Value<i64>,
    pub(super) started_at: Value<String>,
    pub(super) jobs: Value<i64>,
    /// Jobs that had succeeded on the process when it was verified.
    #[serde(default)]
    pub(super) jobs_succeeded: Value<i64>,
    /// The result of boot-verify.
    #[serde(default)]
    pub(super) verified: Value<bool>,
    /// State of the circuit breaker of the job router.
    #[serde(default)]
    pub(super) job_router: Value<String>,
    #[serde(default)]
    pub(super) worker_groups: Value<Vec<Value<String>>>,
    pub(super) wrapper: Value<String>,
    /// The time of verification, RFC 3339 in UTC.
    pub(super) verified_at: Value<String>,
    /// Why it was not healthy at the last refresh.
    #[serde(default)]
    pub(super) problem: Value<String>,
}

/// The values of `level`. `Auto` is the maximum level that the wrapper can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Auto,
    Level(Level),
}

impl EnumAttribute for Wanted {
    const VALUES: &'static [(Self, &'static str)] = &[
        (Self::Auto, "auto"),
        (Self::Level(Level::Process), Level::Process.as_str()),
        (Self::Level(Level::Ready), Level::Ready.as_str()),
        (Self::Level(Level::Polling), Level::Polling.as_str()),
        (Self::Level(Level::Working), Level::Working.as_str()),
    ];
}

impl Evidence {
    /// The evidence in `snapshot`. Upstream's wrapper reports only that the process was started.
    pub(super) fn new(snapshot: &Snapshot, level_cap: Level, now: OffsetDateTime) -> Self {
        let detail = snapshot.detail.as_deref();
        let level = detail.map_or(Level::Process, |detail| detail.level.min(level_cap));
        let seen = Observed::of(snapshot);
        Self {
            state: Value::Value(snapshot.report.status.to_string()),
            level: Value::Value(level.to_string()),
            version: seen.version,
            pid: seen.pid,
            started_at: seen.started_at,
            jobs: seen.jobs,
            jobs_succeeded: seen.jobs_succeeded,
            verified: seen.verified,
            job_router: seen.job_router,
            worker_groups: seen.worker_groups,
            wrapper: seen.wrapper,
            verified_at: optional_value(rfc3339(now)),
            problem: Value::Null,
        }
    }
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
            level: match member(&self.level) {
                Wanted::Auto => None,
                Wanted::Level(level) => Some(level),
            },
            expected_version: self.expected_version.as_ref_option().filter(|text| !text.is_empty()).cloned(),
            start_if_stopped: self.start_if_stopped.unwrap_or(START_IF_STOPPED),
            // A booting host refuses connections for minutes: by default, only the timeout limits the attempts.
            retry: configuration.retry(self.retry.as_ref_option(), None),
        }
    }

    /// The highest level that the evidence records: a job that ends must not change the state of a check that waits for no jobs.
    pub(super) fn level_cap(&self) -> Level {
        if member::<Wanted>(&self.level) == Wanted::Level(Level::Working) {
            Level::Working
        } else {
            Level::Polling
        }
    }

    /// The autoscaling groups in the evidence, with the keys of their managers.
    pub(super) fn worker_groups(&self) -> impl Iterator<Item = (&String, &String)> {
        let evidence = self.managers.iter().flatten();
        let evidence = evidence.filter_map(|(key, evidence)| Some((key, evidence.as_ref_option()?)));
        evidence.flat_map(|(key, evidence)| {
            let groups = evidence.worker_groups.iter().flatten().filter_map(Value::as_ref_option);
            groups.map(move |group| (key, group))
        })
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

    /// A known runner manager.
    pub(super) fn manager(&self, key: &str) -> Option<&RunnerManagerArgs> {
        self.runner_managers.as_ref_option()?.get(key)?.as_ref_option()
    }

    pub(super) fn check(&self) -> Result<(), Problems> {
        let mut found = Problems::default();
        let problems = &mut found;
        manager::check_map(&self.runner_managers, problems);
        enum_attribute::check::<Wanted>(&self.level, AttributePath::new("level"), problems);
        check_whole(&self.min_jobs, 1..=1_000_000, AttributePath::new("min_jobs"), problems);
        if let (Value::Value(_), false) = (&self.min_jobs, self.level.is_unknown())
            && self.level_cap() < Level::Working
        {
            let level = self.level.as_ref_option().map_or("auto", String::as_str);
            problems.add(values::min_jobs_without_working(level).at(AttributePath::new("min_jobs")));
        }
        check_duration(&self.stable_for, AttributePath::new("stable_for"), problems);
        RetryArgs::check(&self.retry, problems);
        WaitTimeouts::check(&self.timeouts, problems);
        self.check_stable_for(problems);
        found.or(())
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

/// The runner managers that have no entry in `guards`, where that attribute is used.
pub(super) fn missing_guards(planned: &HealthState) -> Vec<&str> {
    let (Value::Value(managers), Value::Value(guards)) = (&planned.runner_managers, &planned.guards) else {
        return Vec::new();
    };
    managers.keys().filter(|key| !guards.contains_key(*key)).map(String::as_str).collect()
}

/// The drain resources that the plan removes from `guards`, by key.
pub(super) fn removed_guards(prior: &HealthState, planned: &HealthState) -> Vec<(String, String)> {
    let Value::Value(stays) = &planned.guards else { return Vec::new() };
    let ids = prior.guards.iter().flatten().filter_map(|(key, id)| Some((key, id.as_ref_option()?)));
    let removed = ids.filter(|(key, _)| !stays.contains_key(*key));
    removed.map(|(key, id)| (key.clone(), id.clone())).collect()
}
