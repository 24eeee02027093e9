//! `start_drains`: after a successful update, the health check requests the drains that the same plan ends, all at once.
//!
//! Terraform starts the destroys of the drain resources after this, at most 10 at a time. Each destroy finds its drain in progress, and waits for its
//! end. A request that fails is only logged: the destroy repeats it.
//!
//! The plan of a health check contains the drains that end (see [`EarlyDrain`]), and passes them to the apply:
//!
//! | core | by |
//! |---|---|
//! | protocol 6.11 (Terraform 1.16) | the private data of the plan |
//! | others | the private data of the read, which the apply's plan also receives; nothing with `-refresh=false` |
//!
//! An apply that fails before the health check leaves the data of its read in the state, where a later plan with `-refresh=false` finds it. That plan
//! is refused, because its apply could not know that the data is old.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use grit_plugin::{
    Problems, Walk, call,
    schema::{AttributePath, Value},
};
use serde_json::{Map, Value as Json};
use tokio::time::Instant;

use super::{
    RunnerHealth,
    refresh::time_limit,
    state::{HealthState, START_DRAINS},
};
use crate::{
    client::{Client, Wrapper as _},
    config::{manager, provider_block::Configuration},
    explain::start_drains,
    fleet::{
        self, Failure, Reason,
        drain::{DrainPolicy, NotDrained, Until},
        draining::Draining,
    },
    manager::{Identities, Manager, WrapperIdentity},
    resources::early_drain::EarlyDrain,
    run::{Event, Row},
};

/// The drains that a plan ends, by the id of the drain resource.
type Ending = Map<String, Json>;

/// The drains that an update will start, by key.
pub(super) type Candidates = BTreeMap<String, Candidate>;

/// One drain to start.
pub(super) struct Candidate {
    /// The id of the drain resource.
    id: String,
    early: EarlyDrain,
    manager: Manager,
    client: Client,
}

/// Why a drain is left to its destroy.
enum Left {
    To(&'static str),
    NotDrained(Failure<NotDrained>),
}

impl RunnerHealth {
    /// The drains of this health check that the plan ends, as far as the plan has reached: those of a runner manager in its map.
    pub(super) fn ending(&self, state: &HealthState) -> Ending {
        let selectors = self.context.selectors();
        let drains = state.drains.iter().flatten().filter_map(|(key, id)| {
            let (id, manager) = (id.as_ref_option()?, state.manager(key)?);
            let json = self.context.run.early_drain(id)?;
            let is_same = EarlyDrain::of_json(&json)?.manager == manager.identity(selectors?)?;
            is_same.then(|| (id.clone(), json))
        });
        drains.collect()
    }

    /// The planned `started_drains`: the keys of the drains that the update will start. The plan and its apply must arrive at the same value.
    pub(super) fn plan_starts(
        &self,
        prior: &HealthState,
        planned: &HealthState,
    ) -> Result<Value<Vec<Value<String>>>, Problems> {
        let starts = match (&planned.start_drains, &planned.drains) {
            (Value::Unknown, _) | (Value::Value(true), Value::Unknown) => return Ok(Value::Unknown),
            (starts, _) => starts.unwrap_or(START_DRAINS),
        };
        let leaving = leaving(prior, planned);
        // A health check without managers has proved nothing.
        let proves = planned.drains.as_ref_option().is_some_and(|drains| !drains.is_empty());
        let ending = if starts { self.planned_ending(prior, planned, &leaving)? } else { Ending::new() };
        let started: Vec<_> = leaving
            .iter()
            .filter(|(_, id)| proves && ending.contains_key(*id))
            .map(|(key, _)| Value::Value((*key).clone()))
            .collect();
        call().keep(ending.into());
        Ok(if started.is_empty() { Value::Null } else { Value::Value(started) })
    }

    /// The drains that end, for this plan and for its apply.
    fn planned_ending(
        &self,
        prior: &HealthState,
        planned: &HealthState,
        leaving: &[(&String, &String)],
    ) -> Result<Ending, Problems> {
        let call = call();
        let is_read = prior.id.as_ref_option().is_some_and(|id| self.context.run.is_read(id));
        if call.private.is_stored_by_plan && call.walk == Walk::Plan {
            return Ok(self.ending(prior));
        }
        let kept = kept();
        let is_old = |(_, id): &&(&String, &String)| kept.contains_key(*id);
        let old: Vec<_> = leaving.iter().filter(is_old).map(|(key, _)| key.as_str()).collect();
        if !is_read && !old.is_empty() && self.is_plan(planned) {
            return Err(start_drains::old_ending_drains(&old).at(AttributePath::new("start_drains")).into());
        }
        Ok(kept)
    }

    /// Whether this is a plan, which can be refused. An apply sends a drain resource that stays only to update it, which shows that it is an apply.
    fn is_plan(&self, planned: &HealthState) -> bool {
        let mut ids = planned.drains.iter().flatten().filter_map(|(_, id)| id.as_ref_option());
        match call().walk {
            Walk::Plan => true,
            Walk::Apply => false,
            Walk::Unknown => ids.any(|id| self.context.run.is_stored(id)),
        }
    }

    /// The drains of `started_drains` in the planned state. A drain whose runner manager differs from the plan is left out.
    pub(super) fn candidates(&self, prior: &HealthState, planned: &HealthState) -> Candidates {
        let Some(configuration) = self.context.configuration() else { return Candidates::new() };
        let ending = kept();
        let keys = planned.started_drains.iter().flatten().filter_map(Value::as_ref_option);
        let candidate = |key: &String| {
            let id = prior.drains.as_ref_option()?.get(key)?.as_ref_option()?.clone();
            let (early, manager) = (EarlyDrain::of_json(ending.get(&id)?)?, prior.manager(key)?);
            let manager = manager.resolve(key, &configuration).ok()?;
            if manager.identity != early.manager {
                Left::To("the provider block selects another host than in the plan").log(key);
                return None;
            }
            Some(Candidate { id, early, client: manager.client(), manager })
        };
        keys.filter_map(|key| Some((key.clone(), candidate(key)?))).collect()
    }

    /// Connects to the wrappers while the health check waits, so that the requests need no handshakes. Never returns; errors come again with the
    /// requests.
    pub(super) async fn connect(candidates: &Candidates) -> Infallible {
        futures::future::join_all(candidates.values().map(|drain| drain.client.read_status())).await;
        std::future::pending().await
    }

    /// Requests the drains, without waiting for their end. `state`: the health check after its update.
    pub(super) async fn start_drains(&self, candidates: Candidates, state: &HealthState) {
        let Some(configuration) = &self.context.configuration() else { return };
        let selectors = configuration.selectors();
        let kept = manager::known(&state.runner_managers).filter_map(|(_, it)| it.identity(selectors));
        let kept = &kept.collect::<BTreeSet<_>>();
        let deadline = Instant::now() + time_limit(candidates.len());
        fleet::for_each(candidates, |key, drain| async move {
            match self.start_drain(&drain, configuration, kept, deadline).await {
                Ok(()) => tracing::info!(manager = key, "drain requested by the health check"),
                Err(left) => left.log(&key),
            }
        })
        .await;
    }

    /// `kept`: the runner managers of the health check.
    async fn start_drain(
        &self,
        drain: &Candidate,
        configuration: &Configuration,
        kept: &BTreeSet<WrapperIdentity>,
        deadline: Instant,
    ) -> Result<(), Left> {
        let (Candidate { id, early, manager, client }, run) = (drain, &self.context.run);
        if kept.contains(&early.manager) || run.successor(&early.instance, &early.manager).is_some() {
            return Err(Left::To("another drain resource of this run has the same instance or address"));
        }
        if run.assumed().contains([early.instance.as_str(), id.as_str()]) {
            return Err(Left::To("the instance is assumed terminated"));
        }
        let row = Row::of_manager(Event::Drained, id, Identities::of(early.manager.clone()));
        let row = Row { instance: Some(early.instance.clone()), ..row };
        if !run.record(row, call().walk).is_empty() {
            return Err(Left::To("another drain resource has the same runner manager"));
        }
        let (start, options) = (Instant::now(), early.options());
        let policy = options.policy(configuration, id, start, deadline - start, false);
        let retry = configuration.retry(None, Some(1));
        let policy = &DrainPolicy { until: Until::Accepted, retry, ..policy };
        let draining = Draining { run, manager, policy, identifier: "", gitlab: None };
        draining.run(client, &call().stop).await.0.map(|_| ()).map_err(Left::NotDrained)
    }
}

/// What the last call of this object kept.
fn kept() -> Ending {
    match &call().private.kept {
        Some(Json::Object(kept)) => kept.clone(),
        _ => Ending::new(),
    }
}

/// The drain resources whose ids leave `drains`, by key.
fn leaving<'a>(prior: &'a HealthState, planned: &HealthState) -> Vec<(&'a String, &'a String)> {
    let stays = planned.drains.iter().flatten().filter_map(|(_, id)| id.as_ref_option());
    let stays: BTreeSet<_> = stays.collect();
    let ids = prior.drains.iter().flatten().filter_map(|(key, id)| Some((key, id.as_ref_option()?)));
    ids.filter(|(_, id)| !stays.contains(id)).collect()
}

impl Left {
    fn log(&self, manager: &str) {
        let why = match self {
            Self::To(why) => (*why).to_owned(),
            Self::NotDrained(failure) => match &failure.reason {
                Reason::Invalid(invalid) => invalid.to_string(),
                Reason::Unreached { error, .. } => error.to_string(),
                Reason::Interrupted(_) => "Terraform was stopped".to_owned(),
                Reason::Problem(NotDrained::NetworkUnproved { error, .. }) => error.to_string(),
                Reason::Problem(NotDrained::Cancelled(_)) => "the drain was cancelled on the host".to_owned(),
                Reason::Problem(NotDrained::TimedOut { .. } | NotDrained::Replaced { .. }) => {
                    "the wrapper did not accept the drain in time".to_owned()
                }
            },
        };
        tracing::warn!(
            manager,
            "the health check did not start the drain: {why}. The drain starts when its drain resource is destroyed"
        );
    }
}
