//! `grit_runner_health`: create and update wait until all runner managers of a map are healthy.
//!
//! No attribute replaces it, and each change repeats the wait. A failed create stores nothing, and a failed update keeps the prior state,
//! so that the next apply waits again. With the planned state, old runners could be drained although the new ones are not healthy
//! (docs/adr/0002-order-of-operations.md).

mod refresh;
mod schema;
mod start_drains;
mod state;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Problem, Problems, Resource, Walk, call,
    schema::{AttributePath, Schema, Value},
};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{configured, unique_suffix};
use crate::{
    config::{
        manager::{self, InvalidManager, RunnerManagerArgs},
        timeouts::WaitTimeouts,
    },
    duration::human,
    explain::{health, plan, protocol, shutdown},
    fleet::{
        self, Outcomes,
        health::{Healthy, NotHealthy},
    },
    log_key,
    plan_overlap::KeptBy,
    process::{ConfigurationState, Shared},
};
use state::{
    ALLOW_SHARED_WORKER_GROUP, Evidence, HEALTH_TIMEOUT, HEALTHY, HealthState, missing_guards,
    removed_guards, warn_of_unhealthy,
};

/// The number of shared autoscaling groups that are reported. Two managers can share all of their groups, and one shows the mistake.
const MAX_SHARED_GROUPS: usize = 10;

#[derive(Debug)]
pub struct RunnerHealth {
    pub shared: Arc<Shared>,
}

type Outcome = Result<Healthy, WaitFailure>;

enum WaitFailure {
    Invalid(InvalidManager),
    NotHealthy(NotHealthy),
}

impl RunnerHealth {
    /// Rejects a plan that creates a second drain resource for one instance, or for one runner manager.
    ///
    /// The plan of a drain resource can only warn, because it may belong to an apply. This resource is planned after the drain resources,
    /// and their new ids are unknown, which proves that this is a plan.
    fn refuse_twice_guarded(&self) -> Result<(), Problems> {
        let conflicts = self.shared.guard.reported().into_iter();
        let conflicts = conflicts.map(|(instance, conflict)| plan::conflict(&instance, conflict));
        let shared = self.shared.shared_runners.reported();
        let refused = conflicts.chain(shared.iter().map(plan::shared_runner));
        if call().walk != Walk::Plan {
            return Ok(());
        }
        refused.map(|problem| problem.at(AttributePath::new("guards"))).collect::<Problems>().or(())
    }

    /// Refuses two keys of one manager, and managers that a shutdown resource retires.
    fn refuse_managers(&self, planned: &HealthState) -> Result<(), Problems> {
        let mut problems = self.shared.same_managers(&planned.runner_managers);
        for (key, manager) in manager::known(&planned.runner_managers) {
            if self.shared.overlap.keeps(&manager.identities(self.shared.selectors(), None), KeptBy::Health) {
                problems.add(shutdown::manager_is_kept(&key, KeptBy::Health).at(manager::at(&key)));
            }
        }
        problems.or(())
    }

    /// One text for each of the first autoscaling groups that a manager of this resource shares with another manager of this process.
    fn shared_worker_groups(&self, state: &HealthState) -> Vec<Problem> {
        if state.allow_shared_worker_group.unwrap_or(ALLOW_SHARED_WORKER_GROUP) {
            return Vec::new();
        }
        let shared = self.shared.worker_groups.add(state.worker_groups(self.shared.selectors()));
        let shared = shared.iter().take(MAX_SHARED_GROUPS);
        shared.map(|(group, managers)| health::shared_worker_group(group, managers)).collect()
    }

    /// Waits until all runner managers of `planned` are healthy, and stores the evidence in it.
    async fn wait_until_healthy(
        &self,
        mut planned: HealthState,
        timeout: Duration,
        start: Instant,
    ) -> Result<HealthState, Problems> {
        // Values that were unknown in the plan.
        self.shared.same_managers(&planned.runner_managers).or(())?;
        let managers = manager::known(&planned.runner_managers);
        let outcomes = if managers.is_empty() {
            Outcomes::new()
        } else {
            let known = &*configured(&self.shared)?;
            let (policy, stop) = (&planned.policy(known, start, timeout), &call().stop);
            let wait = |key: String, manager: RunnerManagerArgs| async move {
                let client = manager.client(&key, known).map_err(WaitFailure::Invalid)?;
                let outcome = fleet::health::wait(&key, &client, policy, stop).await;
                if let Ok(healthy) = &outcome {
                    let waited = human(healthy.waited);
                    tracing::info!(
                        { log_key::MANAGER } = key,
                        { log_key::WAITED } = waited,
                        "runner manager is healthy"
                    );
                }
                outcome.map_err(WaitFailure::NotHealthy)
            };
            fleet::for_each(managers, wait).await
        };
        failures(&planned, &outcomes).or(())?;
        let (now, level_cap) = (OffsetDateTime::now_utc(), planned.level_cap());
        let evidence = outcomes.into_iter().filter_map(|(key, outcome)| {
            Some((key, Value::Value(Evidence::new(&outcome.ok()?.snapshot, level_cap, now))))
        });
        planned.managers = Value::Value(evidence.collect());
        let shared = self.shared_worker_groups(&planned).into_iter();
        shared.map(|shared| shared.at(AttributePath::new("runner_managers"))).collect::<Problems>().or(())?;
        planned.status = Value::Value(HEALTHY.to_owned());
        Ok(planned)
    }
}

/// Warns about runner managers without a drain resource in `guards`. Terraform plans again in the apply, where it would be a repetition.
fn warn_of_missing_guards(planned: &HealthState) {
    let missing = missing_guards(planned);
    if !missing.is_empty() && call().walk != Walk::Apply {
        call().warn(health::without_guard(&missing).at(AttributePath::new("guards")));
    }
}

/// One error for each runner manager that is not healthy.
fn failures(planned: &HealthState, outcomes: &Outcomes<Outcome>) -> Problems {
    let healthy: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(key, _)| key.as_str()).collect();
    let others = health::healthy_managers(&healthy, outcomes.len());
    let failure = |(key, outcome): (&String, &Outcome)| {
        let problem = match outcome {
            Ok(_) => return None,
            Err(WaitFailure::NotHealthy(failure)) => {
                health::not_healthy(key, failure, &others, &planned.identifier(key))
            }
            Err(WaitFailure::Invalid(error)) => health::invalid_manager(key, error),
        };
        Some(problem.at(manager::at(key)))
    };
    outcomes.iter().filter_map(failure).collect()
}

#[async_trait]
impl Resource for RunnerHealth {
    type State = HealthState;

    fn schema(&self) -> Schema {
        schema::schema()
    }

    async fn validate(&self, config: HealthState) -> Result<(), Problems> {
        // Also in an apply: a failed health check prevents the destroys that depend on it.
        config.check()
    }

    async fn read(&self, mut state: HealthState) -> Result<Option<HealthState>, Problems> {
        self.shared.stored_drains.refreshed();
        let ConfigurationState::Configured(known) = self.shared.configuration() else {
            return Ok(Some(state));
        };
        let stop = call().stop;
        let seen = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Some(state)),
            seen = refresh::check(&known, &state) => seen,
        };
        seen.into_state(&mut state);
        self.shared.ending_drains.refreshed(state.id.as_ref_option().map_or("", String::as_str));
        call().keep(self.ending(&state).into());
        for shared in self.shared_worker_groups(&state) {
            call().warn(shared.at(AttributePath::new("runner_managers")));
        }
        Ok(Some(state))
    }

    async fn plan_create(&self, mut proposed: HealthState) -> Result<HealthState, Problems> {
        self.refuse_twice_guarded()?;
        self.refuse_managers(&proposed)?;
        warn_of_missing_guards(&proposed);
        proposed.id = Value::Unknown;
        proposed.status = Value::Unknown;
        proposed.managers = Value::Unknown;
        proposed.started_drains = Value::Null;
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        prior: HealthState,
        mut proposed: HealthState,
    ) -> Result<(HealthState, Vec<AttributePath>), Problems> {
        self.refuse_twice_guarded()?;
        self.refuse_managers(&proposed)?;
        warn_of_missing_guards(&proposed);
        let missing = removed_guards(&prior, &proposed);
        let missing: Vec<_> =
            missing.into_iter().filter(|(_, id)| self.shared.stored_drains.is_missing(id)).collect();
        if !missing.is_empty() {
            call().warn(health::missing_drains(&missing).at(AttributePath::new("guards")));
        }
        let drifted = prior.status != Value::Value(HEALTHY.to_owned());
        if drifted || proposed != prior {
            // Not about runner managers that this plan removes.
            if drifted {
                warn_of_unhealthy(&prior, &proposed);
            }
            proposed.status = Value::Unknown;
            proposed.managers = Value::Unknown;
            proposed.started_drains = self.plan_starts(&prior, &proposed)?;
        }
        Ok((proposed, vec![]))
    }

    async fn create(&self, mut planned: HealthState) -> Result<HealthState, Problems> {
        let start = Instant::now();
        planned.id = Value::Value(format!("health#{}", unique_suffix()));
        let timeout = WaitTimeouts::create(&planned.timeouts, HEALTH_TIMEOUT);
        self.wait_until_healthy(planned, timeout, start).await
    }

    async fn update(&self, prior: HealthState, planned: HealthState) -> Result<HealthState, Problems> {
        let start = Instant::now();
        let timeout = WaitTimeouts::update(&planned.timeouts, HEALTH_TIMEOUT);
        let candidates = self.candidates(&prior, &planned);
        let state = tokio::select! {
            state = self.wait_until_healthy(planned, timeout, start) => state?,
            never = Self::connect(&candidates) => match never {},
        };
        self.start_drains(candidates, &state).await;
        Ok(state)
    }

    /// The drain resources of this health check are planned after it.
    async fn plan_destroy(&self, _: HealthState) -> Result<(), Problems> {
        self.shared.ending_drains.health_check_ends();
        Ok(())
    }

    async fn import(&self, _: String) -> Result<HealthState, Problems> {
        Err(protocol::import_not_supported("grit_runner_health", "only waits for healthy runner managers")
            .into())
    }
}
