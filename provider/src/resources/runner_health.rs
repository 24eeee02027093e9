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
    Problem, Walk, call,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Resource, Schema, Value},
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
    fn refuse_twice_guarded(&self, diags: &mut Diagnostics) -> Option<()> {
        let conflicts = self.shared.guard.reported().into_iter();
        let conflicts = conflicts.map(|(instance, conflict)| plan::conflict(&instance, conflict));
        let shared = self.shared.shared_runners.reported();
        let refused: Vec<_> = conflicts.chain(shared.iter().map(plan::shared_runner)).collect();
        if call().walk != Walk::Plan || refused.is_empty() {
            return Some(());
        }
        for explained in refused {
            explained.error(AttributePath::new("guards"), diags);
        }
        None
    }

    /// Refuses two keys of one manager, and managers that a shutdown resource retires.
    fn refuse_managers(&self, planned: &HealthState, diags: &mut Diagnostics) -> Option<()> {
        self.shared.refuse_same_managers(&planned.runner_managers, diags);
        for (key, manager) in manager::known(&planned.runner_managers) {
            if self.shared.overlap.keeps(&manager.identities(self.shared.selectors(), None), KeptBy::Health) {
                shutdown::manager_is_kept(&key, KeptBy::Health).error(manager::at(&key), diags);
            }
        }
        (!diags.has_errors()).then_some(())
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
        diags: &mut Diagnostics,
        mut planned: HealthState,
        timeout: Duration,
        start: Instant,
    ) -> Option<HealthState> {
        // Values that were unknown in the plan.
        self.shared.refuse_same_managers(&planned.runner_managers, diags);
        if diags.has_errors() {
            return None;
        }
        let managers = manager::known(&planned.runner_managers);
        let outcomes = if managers.is_empty() {
            Outcomes::new()
        } else {
            let known = &*configured(&self.shared, diags)?;
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
        if report_failures(diags, &planned, &outcomes) {
            return None;
        }
        let (now, level_cap) = (OffsetDateTime::now_utc(), planned.level_cap());
        let evidence = outcomes.into_iter().filter_map(|(key, outcome)| {
            Some((key, Value::Value(Evidence::new(&outcome.ok()?.snapshot, level_cap, now))))
        });
        planned.managers = Value::Value(evidence.collect());
        for shared in self.shared_worker_groups(&planned) {
            shared.error(AttributePath::new("runner_managers"), diags);
        }
        if diags.has_errors() {
            return None;
        }
        planned.status = Value::Value(HEALTHY.to_owned());
        Some(planned)
    }
}

/// Warns about runner managers without a drain resource in `guards`. Terraform plans again in the apply, where it would be a repetition.
fn warn_of_missing_guards(planned: &HealthState, diags: &mut Diagnostics) {
    let missing = missing_guards(planned);
    if !missing.is_empty() && call().walk != Walk::Apply {
        health::without_guard(&missing).warning(AttributePath::new("guards"), diags);
    }
}

/// Adds one error for each runner manager that is not healthy. Returns whether there is one.
fn report_failures(diags: &mut Diagnostics, planned: &HealthState, outcomes: &Outcomes<Outcome>) -> bool {
    let healthy: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(key, _)| key.as_str()).collect();
    let others = health::healthy_managers(&healthy, outcomes.len());
    for (key, outcome) in outcomes {
        let explained = match outcome {
            Ok(_) => continue,
            Err(WaitFailure::NotHealthy(failure)) => {
                health::not_healthy(key, failure, &others, &planned.identifier(key))
            }
            Err(WaitFailure::Invalid(error)) => health::invalid_manager(key, error),
        };
        explained.error(manager::at(key), diags);
    }
    healthy.len() < outcomes.len()
}

#[async_trait]
impl Resource for RunnerHealth {
    type State<'a> = HealthState;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(schema::schema())
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: HealthState) -> Option<()> {
        // Also in an apply: a failed health check prevents the destroys that depend on it.
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn read<'a>(&self, diags: &mut Diagnostics, mut state: HealthState) -> Option<HealthState> {
        self.shared.stored_drains.refreshed();
        let ConfigurationState::Configured(known) = self.shared.configuration() else {
            return Some(state);
        };
        let stop = call().stop;
        let seen = tokio::select! {
            biased;
            () = stop.cancelled() => return Some(state),
            seen = refresh::check(&known, &state) => seen,
        };
        seen.into_state(&mut state, diags);
        self.shared.ending_drains.refreshed(state.id.as_ref_option().map_or("", String::as_str));
        call().keep(self.ending(&state).into());
        for shared in self.shared_worker_groups(&state) {
            shared.warning(AttributePath::new("runner_managers"), diags);
        }
        Some(state)
    }

    async fn plan_create<'a>(
        &self,
        diags: &mut Diagnostics,
        mut proposed: HealthState,
    ) -> Option<HealthState> {
        self.refuse_twice_guarded(diags)?;
        self.refuse_managers(&proposed, diags)?;
        warn_of_missing_guards(&proposed, diags);
        proposed.id = Value::Unknown;
        proposed.status = Value::Unknown;
        proposed.managers = Value::Unknown;
        proposed.started_drains = Value::Null;
        Some(proposed)
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: HealthState,
        mut proposed: HealthState,
    ) -> Option<(HealthState, Vec<AttributePath>)> {
        self.refuse_twice_guarded(diags)?;
        self.refuse_managers(&proposed, diags)?;
        warn_of_missing_guards(&proposed, diags);
        let missing = removed_guards(&prior, &proposed);
        let missing: Vec<_> =
            missing.into_iter().filter(|(_, id)| self.shared.stored_drains.is_missing(id)).collect();
        if !missing.is_empty() {
            health::missing_drains(&missing).warning(AttributePath::new("guards"), diags);
        }
        let drifted = prior.status != Value::Value(HEALTHY.to_owned());
        if drifted || proposed != prior {
            // Not about runner managers that this plan removes.
            if drifted {
                warn_of_unhealthy(&prior, &proposed, diags);
            }
            proposed.status = Value::Unknown;
            proposed.managers = Value::Unknown;
            proposed.started_drains = self.plan_starts(&prior, &proposed, diags)?;
        }
        Some((proposed, vec![]))
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, mut planned: HealthState) -> Option<HealthState> {
        let start = Instant::now();
        planned.id = Value::Value(format!("health#{}", unique_suffix()));
        let timeout = WaitTimeouts::create(&planned.timeouts, HEALTH_TIMEOUT);
        self.wait_until_healthy(diags, planned, timeout, start).await
    }

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: HealthState,
        planned: HealthState,
    ) -> Option<HealthState> {
        let start = Instant::now();
        let timeout = WaitTimeouts::update(&planned.timeouts, HEALTH_TIMEOUT);
        let candidates = self.candidates(&prior, &planned);
        let state = tokio::select! {
            state = self.wait_until_healthy(diags, planned, timeout, start) => state?,
            never = Self::connect(&candidates) => match never {},
        };
        self.start_drains(candidates, &state).await;
        Some(state)
    }

    /// The drain resources of this health check are planned after it.
    async fn plan_destroy<'a>(&self, _: &mut Diagnostics, _: HealthState) -> Option<()> {
        self.shared.ending_drains.health_check_ends();
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<HealthState> {
        protocol::import_not_supported("grit_runner_health", "only waits for healthy runner managers")
            .error(AttributePath::root(), diags);
        None
    }
}
