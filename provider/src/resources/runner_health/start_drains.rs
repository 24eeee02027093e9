//! `start_drains`: after a successful update, the health check requests the drains that the same plan ends, all at once.
//!
//! Terraform starts the destroys of the drain resources after this, at most 10 at a time. Each destroy finds its drain in progress, and waits for its
//! end. A request that fails is only logged: the destroy repeats it.
//!
//! A plan knows which drains end (see [`ending_drains`](crate::ending_drains)), and passes them to the apply:
//!
//! | core | by |
//! |---|---|
//! | protocol 6.11 (Terraform 1.16) | the private data of the plan |
//! | others | the private data of the read, which the apply's plan gets, too; nothing with `-refresh=false` |
//!
//! An apply that fails before the health check leaves the data of its read in the state, where a later plan with `-refresh=false` finds it. That plan
//! is refused, because its apply could not know that the data is old.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use grit_plugin::{
    Problem, Walk, call,
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
    assume_terminated,
    client::{Wrapper, WrapperClient},
    config::provider_block::Configured,
    ending_drains::parallelism_is_set,
    explain::start_drains,
    fleet::{
        self,
        drain::{DrainPolicy, NotDrained, Until},
    },
    log_key,
    process::ConfigurationState,
    resources::{draining::Draining, early_drain::EarlyDrain},
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
    client: WrapperClient,
}

/// Why a drain is left to its destroy.
enum Left {
    To(&'static str),
    NotDrained(NotDrained),
}

impl RunnerHealth {
    /// The drains of this health check that the plan ends, as far as the plan has reached: those of a runner manager in its map.
    pub(super) fn ending(&self, state: &HealthState) -> Ending {
        let selectors = self.shared.selectors();
        let drains = state.guards.iter().flatten().filter_map(|(key, id)| {
            let (id, manager) = (id.as_ref_option()?, state.manager(key)?);
            let json = self.shared.ending_drains.request(id)?;
            let is_same = EarlyDrain::of_json(&json)?.manager == manager.identity(selectors)?;
            is_same.then(|| (id.clone(), json))
        });
        drains.collect()
    }

    /// The planned `started_drains`: the keys of the drains that the update will start. The plan and its apply must arrive at the same value.
    pub(super) fn plan_starts(
        &self,
        prior: &HealthState,
        planned: &HealthState,
    ) -> Result<Value<Vec<Value<String>>>, Problem> {
        let starts = match (&planned.start_drains, &planned.guards) {
            (Value::Unknown, _) | (Value::Value(true), Value::Unknown) => return Ok(Value::Unknown),
            (starts, _) => starts.unwrap_or(START_DRAINS),
        };
        let leaving = leaving(prior, planned);
        // A health check without managers has proved nothing.
        let proves = planned.guards.as_ref_option().is_some_and(|guards| !guards.is_empty());
        let ending = if starts { self.planned_ending(prior, planned, &leaving)? } else { Ending::new() };
        let started: Vec<_> = leaving
            .iter()
            .filter(|(_, id)| proves && ending.contains_key(*id))
            .map(|(key, _)| *key)
            .collect();
        let is_alone = |(key, id): &&(&String, &String)| {
            !started.contains(key) && self.shared.ending_drains.is_ending(id)
        };
        let alone = leaving.iter().filter(is_alone).count();
        if self.shared.ending_drains.are_alone(alone) && call().walk != Walk::Apply && !parallelism_is_set() {
            call().warn(start_drains::drains_wait(false).at(AttributePath::new("start_drains")));
        }
        let started: Vec<_> = started.into_iter().map(|key| Value::Value(key.clone())).collect();
        call().keep(ending.into());
        Ok(if started.is_empty() { Value::Null } else { Value::Value(started) })
    }

    /// The drains that end, for this plan and for its apply.
    fn planned_ending(
        &self,
        prior: &HealthState,
        planned: &HealthState,
        leaving: &[(&String, &String)],
    ) -> Result<Ending, Problem> {
        let call = call();
        let is_read = prior.id.as_ref_option().is_some_and(|id| self.shared.ending_drains.is_refreshed(id));
        if call.private.is_stored_by_plan && call.walk == Walk::Plan {
            return Ok(self.ending(prior));
        }
        let kept = kept();
        let is_old = |(_, id): &&(&String, &String)| kept.contains_key(*id);
        let old: Vec<_> = leaving.iter().filter(is_old).map(|(key, _)| key.as_str()).collect();
        if !is_read && !old.is_empty() && self.is_plan(planned) {
            return Err(start_drains::old_ending_drains(&old).at(AttributePath::new("start_drains")));
        }
        Ok(kept)
    }

    /// Whether this is a plan, which can be refused. An apply sends a drain resource that stays only to update it, which shows that it is an apply.
    fn is_plan(&self, planned: &HealthState) -> bool {
        let mut ids = planned.guards.iter().flatten().filter_map(|(_, id)| id.as_ref_option());
        match call().walk {
            Walk::Plan => true,
            Walk::Apply => false,
            Walk::Unknown => ids.any(|id| self.shared.stored_drains.is_stored(id)),
        }
    }

    /// The drains of `started_drains` in the planned state. One whose runner manager is not the one of the plan is left out.
    pub(super) fn candidates(&self, prior: &HealthState, planned: &HealthState) -> Candidates {
        let ConfigurationState::Configured(known) = self.shared.configuration() else {
            return Candidates::new();
        };
        let ending = kept();
        let keys = planned.started_drains.iter().flatten().filter_map(Value::as_ref_option);
        let candidate = |key: &String| {
            let id = prior.guards.as_ref_option()?.get(key)?.as_ref_option()?.clone();
            let (early, manager) = (EarlyDrain::of_json(ending.get(&id)?)?, prior.manager(key)?);
            if manager.identity(known.selectors()).as_ref() != Some(&early.manager) {
                Left::To("the provider block selects another host than in the plan").log(key);
                return None;
            }
            Some(Candidate { id, early, client: manager.client(key, &known).ok()? })
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
        let ConfigurationState::Configured(known) = self.shared.configuration() else { return };
        if candidates.is_empty() {
            return;
        }
        let selectors = known.selectors();
        let managers = state.runner_managers.iter().flatten();
        let kept: BTreeSet<_> =
            managers.filter_map(|(_, it)| it.as_ref_option()?.identity(selectors)).collect();
        let deadline = Instant::now() + time_limit(candidates.len());
        let (known, kept) = (&known, &kept);
        fleet::for_each(candidates, |key, drain| async move {
            match self.start_drain(&key, &drain, known, kept, deadline).await {
                Ok(()) => tracing::info!({ log_key::MANAGER } = key, "drain requested by the health check"),
                Err(left) => left.log(&key),
            }
        })
        .await;
    }

    /// `kept`: the identities of the runner managers of the health check.
    async fn start_drain(
        &self,
        key: &str,
        drain: &Candidate,
        known: &Configured,
        kept: &BTreeSet<String>,
        deadline: Instant,
    ) -> Result<(), Left> {
        let Candidate { id, early, client } = drain;
        if kept.contains(&early.manager)
            || self.shared.guard.successor(&early.instance, &early.manager).is_some()
        {
            return Err(Left::To("another drain resource of this run has its instance or its address"));
        }
        if assume_terminated::names([early.instance.as_str(), id.as_str()]) {
            return Err(Left::To("the instance is assumed terminated"));
        }
        // Upstream's wrapper accepts a callback only with the first request.
        if early.has_callback && !is_grit_wrapper(&client.until(deadline)).await {
            return Err(Left::To("its callback must be in the first request"));
        }
        if self.shared.shared_runners.drains(&early.manager, &early.instance).is_err() {
            return Err(Left::To("another drain resource has the same runner manager"));
        }
        let (start, retry) = (Instant::now(), known.retry(None, Some(1)));
        let policy = early.options().policy(id, start, deadline - start, retry);
        let policy = DrainPolicy { until: Until::Accepted, ..policy };
        let draining = Draining { shared: &self.shared, known, name: key, client, options: early.options() };
        draining.run(client, &policy, &call().stop).await.map(|_| ()).map_err(Left::NotDrained)
    }
}

async fn is_grit_wrapper(client: &WrapperClient) -> bool {
    client.read_status().await.is_ok_and(|snapshot| snapshot.detail.is_some())
}

/// What the last call of this object kept.
fn kept() -> Ending {
    match &call().private.kept {
        Some(Json::Object(kept)) => kept.clone(),
        _ => Ending::new(),
    }
}

/// The drain resources whose ids leave `guards`, by key.
fn leaving<'a>(prior: &'a HealthState, planned: &HealthState) -> Vec<(&'a String, &'a String)> {
    let stays = planned.guards.iter().flatten().filter_map(|(_, id)| id.as_ref_option());
    let stays: BTreeSet<_> = stays.collect();
    let ids = prior.guards.iter().flatten().filter_map(|(key, id)| Some((key, id.as_ref_option()?)));
    ids.filter(|(_, id)| !stays.contains(id)).collect()
}

impl Left {
    fn log(&self, manager: &str) {
        let why = match self {
            Self::To(why) => (*why).to_owned(),
            Self::NotDrained(NotDrained::Connect { error, .. }) => error.to_string(),
            Self::NotDrained(NotDrained::TooFewPeers { .. }) => "too few peers are healthy".to_owned(),
            Self::NotDrained(NotDrained::Interrupted { .. }) => "Terraform was stopped".to_owned(),
            Self::NotDrained(NotDrained::TimedOut { .. } | NotDrained::Replaced { .. }) => {
                "the wrapper did not accept the drain in time".to_owned()
            }
        };
        tracing::warn!(
            { log_key::MANAGER } = manager,
            "drain was not requested by the health check; its destroy requests it: {why}"
        );
    }
}
