//! `grit_runner_health`: create and update wait until all runner managers of a map are healthy.
//!
//! No attribute replaces it, and each change repeats the wait. A failed create stores nothing, and a failed update keeps the prior state,
//! so that the next apply waits again. With the planned state, old runners could be drained although the new ones are not healthy
//! (docs/adr/0002-order-of-operations.md).

mod evidence;
mod refresh;
mod start_drains;
mod state;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource, Walk, call,
    schema::{AttributePath, Schema, Value},
};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::{
    config::{manager, object::Object as _, timeouts::WaitTimeouts},
    context::{Context, unique_suffix},
    duration::human,
    explain::{
        self,
        health::{self, HealthWords},
        plan,
    },
    fleet::{
        self, Failure, Outcomes,
        health::{GitlabWord, HealthPolicy, Healthy, NotHealthy},
    },
    manager::Identities,
    run::{Event, Row},
};
use evidence::Evidence;
use state::{HEALTH_TIMEOUT, HealthState, missing_drains, warn_of_unhealthy};

#[derive(Debug)]
pub struct RunnerHealth {
    pub context: Arc<Context>,
}

impl RunnerHealth {
    /// Rejects a plan that creates a second drain resource for one instance, or for one runner manager.
    ///
    /// The plan of a drain resource can only warn, because it may belong to an apply. This resource is planned after the drain resources,
    /// and their new ids are unknown, which proves that this is a plan.
    fn refuse_contradictions(&self) -> Result<(), Problems> {
        if call().walk != Walk::Plan {
            return Ok(());
        }
        let refused = self.context.run.contradictions();
        let refused = refused.iter().map(|refusal| plan::refused(refusal).at(AttributePath::new("drains")));
        refused.collect::<Problems>().or(())
    }

    /// Refuses two keys of one manager, and managers that a shutdown resource retires.
    fn refuse_managers(&self, planned: &HealthState) -> Result<(), Problems> {
        self.context.refuse_managers(&planned.runner_managers, &Event::Checked)
    }

    /// Waits until all runner managers of `planned` are healthy, and stores the evidence in it.
    async fn wait_until_healthy(
        &self,
        mut planned: HealthState,
        timeout: Duration,
        start: Instant,
    ) -> Result<HealthState, Problems> {
        let mut problems = Problems::default();
        // Values that were unknown in the plan.
        self.context.refuse_same_managers(&planned.runner_managers, &mut problems);
        problems.or(())?;
        let outcomes = if manager::known(&planned.runner_managers).next().is_none() {
            Outcomes::new()
        } else {
            let configuration = &*self.context.configured()?;
            let gitlab = configuration.gitlab().and_then(Result::ok);
            let gitlab = gitlab.map(|gitlab| Arc::new(GitlabWord::new(gitlab.clone())));
            let policy = &HealthPolicy { gitlab, ..planned.policy(configuration, start, timeout) };
            let stop = &call().stop;
            let managers = manager::resolve(&planned.runner_managers, configuration);
            fleet::over(managers, |manager| async move {
                let healthy = fleet::health::wait(&manager.name, &manager.client(), policy, stop).await?;
                let waited = human(healthy.waited);
                tracing::info!(manager = manager.name, waited, "runner manager is healthy");
                Ok(healthy)
            })
            .await
        };
        failures(&planned, &outcomes, self.context.run.has_drains()).or(())?;
        self.warn_of_unconfirmed(&outcomes);
        let (now, level_cap) = (OffsetDateTime::now_utc(), planned.level_cap());
        let evidence = outcomes.into_iter().filter_map(|(key, outcome)| {
            Some((key, Value::Value(Evidence::new(&outcome.ok()?.snapshot, level_cap, now))))
        });
        planned.managers = Value::Value(evidence.collect());
        planned.status = planned.healthy();
        Ok(planned)
    }

    /// Warns about healthy runner managers that GitLab could not confirm.
    fn warn_of_unconfirmed(&self, outcomes: &Outcomes<Result<Healthy, Failure<NotHealthy>>>) {
        let configuration = self.context.configuration();
        // The `gitlab` object cannot be used.
        let unusable = configuration.as_ref().and_then(|it| it.gitlab()?.err());
        let healthy =
            outcomes.iter().filter_map(|(key, outcome)| Some((key.as_str(), outcome.as_ref().ok()?)));
        let unconfirmed = healthy.flat_map(|(key, healthy)| {
            unusable.iter().chain(&healthy.unconfirmed).map(move |why| (key, why))
        });
        let unconfirmed: Vec<_> = unconfirmed.collect();
        if !unconfirmed.is_empty() {
            call()
                .warn(explain::receipt::unconfirmed(&unconfirmed).at(AttributePath::new("runner_managers")));
        }
    }
}

/// Warns about a low level, and about runner managers without a drain resource in `drains`. Terraform plans again in the apply, where it would be a
/// repetition.
fn warn_at_plan(planned: &HealthState) {
    if call().walk == Walk::Apply {
        return;
    }
    if let Some(level) = planned.low_level() {
        call().warn(health::low_level(level).at(AttributePath::new("level")));
    }
    let missing = missing_drains(planned);
    if !missing.is_empty() {
        call().warn(health::without_drain(&missing).at(AttributePath::new("drains")));
    }
}

/// One error for each runner manager that is not healthy.
fn failures(
    planned: &HealthState,
    outcomes: &Outcomes<Result<Healthy, Failure<NotHealthy>>>,
    has_drains: bool,
) -> Problems {
    let healthy: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(key, _)| key.as_str()).collect();
    let others = &health::other_managers(&healthy, outcomes.len(), has_drains);
    let failed = outcomes.iter().filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?)));
    // The first error has the command for all hosts that may never start.
    let gone = failed.clone().filter(|(_, failure)| health::offers_confirmation(failure));
    let mut ids = gone.map(|(key, _)| planned.identifier(key)).collect::<Vec<_>>().join(",");
    let explained = failed.map(|(manager, failure)| {
        let id = if health::offers_confirmation(failure) { std::mem::take(&mut ids) } else { String::new() };
        explain::failure(&HealthWords { manager, others, id: &id }, failure)
    });
    explained.collect()
}

#[async_trait]
impl Resource for RunnerHealth {
    type State = HealthState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn validate(&self, config: HealthState) -> Result<(), Problems> {
        // Also in an apply: a failed health check prevents the destroys that depend on it.
        config.check()?;
        self.context.require_addresses(&config.runner_managers)
    }

    async fn read(&self, mut state: HealthState) -> Result<Option<HealthState>, Problems> {
        let Some(configuration) = self.context.configuration() else { return Ok(Some(state)) };
        let stop = call().stop;
        let seen = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Some(state)),
            seen = refresh::check(&configuration, &state) => seen,
        };
        seen.into_state(&mut state);
        call().keep(self.ending(&state).into());
        let id = state.id.as_ref_option().map_or("", String::as_str);
        self.context.run.record(Row::of_manager(Event::HealthRead, id, Identities::default()), call().walk);
        Ok(Some(state))
    }

    async fn plan_create(&self, mut proposed: HealthState) -> Result<HealthState, Problems> {
        self.refuse_contradictions()?;
        self.refuse_managers(&proposed)?;
        warn_at_plan(&proposed);
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
        self.refuse_contradictions()?;
        self.refuse_managers(&proposed)?;
        warn_at_plan(&proposed);
        let drifted = !prior.is_healthy();
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
            biased;
            state = self.wait_until_healthy(planned, timeout, start) => state?,
            never = Self::connect(&candidates) => match never {},
        };
        self.start_drains(candidates, &state).await;
        Ok(state)
    }

    /// In `terraform destroy`, the drain resources of this health check are planned after it. In a plan without their blocks, they can be planned before.
    async fn plan_destroy(&self, _: HealthState) -> Result<(), Problems> {
        self.context.run.record(Row::of_manager(Event::HealthEnding, "", Identities::default()), call().walk);
        let ending = self.context.run.ending_managers();
        if call().walk != Walk::Apply && !ending.is_empty() {
            call().warn(explain::drain::planned_with_health(&ending));
        }
        Ok(())
    }
}
