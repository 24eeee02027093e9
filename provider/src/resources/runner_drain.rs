//! `grit_runner_drain`: a guard on one runner manager. Its destroy drains the runner, and what it refers to is destroyed after it.
//!
//! Create, read and update touch no network and cannot fail: a create that failed would leave a tainted guard, whose replacement
//! drains a live runner (docs/adr/0002-order-of-operations.md). All work is in the destroy, which can be repeated at any time.

mod state;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Value as Json, json};

use super::{add_error, configured, unique_suffix};
use crate::{
    args::duration::human,
    call::call,
    client::{RunnerStatus, WrapperClient},
    config::{Known, Shared},
    explain::{self, Code, Explained, operation},
    fleet::{self, drain::Drained},
    schema::{
        AttributePath, Diagnostics, DiagnosticsExt, MoveSource, Resource, ResourceExt, Schema, Value,
        ValueEmpty,
    },
};
use state::DrainState;

/// How long the check of one peer may take.
const PEER_LIMIT: Duration = Duration::from_secs(30);

/// The resource.
#[derive(Debug)]
pub struct RunnerDrain {
    shared: Arc<Shared>,
}

impl RunnerDrain {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Refuses when too few peers are healthy, unless the drain has begun already.
    async fn peers_allow(
        &self,
        state: &DrainState,
        name: &str,
        client: &WrapperClient,
        known: &Known,
        diags: &mut Diagnostics,
    ) -> Option<()> {
        let Value::Value(guard) = &state.guard else { return Some(()) };
        if let Ok(look) = client.look().await
            && matches!(look.report.status, RunnerStatus::InShutdown | RunnerStatus::Stopped)
        {
            return Some(());
        }
        let mut targets = BTreeMap::new();
        for (key, peer) in guard.peers.iter().flatten() {
            let Value::Value(peer) = peer else { continue };
            targets.insert(key.clone(), peer.target(key));
        }
        let looks = fleet::for_each(targets, known.max_parallel, |key, target| async move {
            let target = target.map_err(|error| format!("{key} ({error})"))?;
            let client = known.connector.client(target);
            match tokio::time::timeout(PEER_LIMIT, client.look()).await {
                Ok(Ok(look)) if look.report.status == RunnerStatus::Running => Ok(()),
                Ok(Ok(look)) => Err(format!("{key} (status `{}`)", look.report.status)),
                Ok(Err(error)) => Err(format!("{key} ({error})")),
                Err(_) => Err(format!("{key} (no answer within {})", human(PEER_LIMIT))),
            }
        })
        .await;
        let healthy = looks.values().filter(|look| look.is_ok()).count();
        let wanted = usize::try_from(guard.min_healthy.unwrap_or(1)).unwrap_or(usize::MAX);
        if healthy >= wanted {
            return Some(());
        }
        let unhealthy: Vec<_> = looks.into_values().filter_map(Result::err).collect();
        let explained = operation::too_few_peers(name, healthy, wanted, &unhealthy);
        add_error(diags, AttributePath::new("guard"), &explained);
        None
    }
}

impl ResourceExt for RunnerDrain {
    fn observe_stored_state(&self, state: &Json) {
        if let Some(instance) = state.get("instance_id").and_then(Json::as_str) {
            self.shared.guard.stored(instance);
        }
    }

    /// Adopts the usual "drain by destroy provisioner" constructs. The guard starts without a drain; the next apply fills it in place.
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        match source.type_name.as_str() {
            "terraform_data" | "null_resource" => {
                Some(json!({ "id": format!("adopted#{}", unique_suffix()) }))
            }
            other => {
                diags.fail(
                    "This resource cannot be adopted",
                    format!(
                        "grit_runner_drain takes the place of `terraform_data` and `null_resource`, not of `{other}`. Remove the \
                         `moved` block and let Terraform create the guard: that has no side effects."
                    ),
                );
                None
            }
        }
    }
}

#[async_trait]
impl Resource for RunnerDrain {
    type State<'a> = DrainState;
    type PrivateState<'a> = ValueEmpty;
    type ProviderMetaState<'a> = ValueEmpty;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(state::schema())
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: DrainState) -> Option<()> {
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn read<'a>(
        &self,
        _: &mut Diagnostics,
        state: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        // No network: an unreachable host must not make plan and destroy impossible, and a runner that ended is no reason to
        // forget its guard.
        Some((state, private))
    }

    async fn plan_create<'a>(
        &self,
        diags: &mut Diagnostics,
        mut proposed: DrainState,
        _: DrainState,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        if let Value::Value(instance) = &proposed.instance_id
            && !self.shared.guard.may_create(instance)
        {
            add_error(diags, AttributePath::new("instance_id"), &operation::second_guard(instance));
            return None;
        }
        proposed.id = Value::Unknown;
        Some((proposed, Value::Null))
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        proposed: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty, Vec<AttributePath>)> {
        // An adopted guard has no instance yet: filling it in is an update.
        let replaced = prior.instance_id.is_value() && prior.instance_id != proposed.instance_id;
        if replaced {
            // Terraform does not ask for the destroy half of a replacement while it plans.
            prior.warn_of_drain(diags);
        }
        let paths = if replaced { vec![AttributePath::new("instance_id")] } else { vec![] };
        Some((proposed, private, paths))
    }

    async fn plan_destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<ValueEmpty> {
        if let Value::Value(instance) = &prior.instance_id
            && !self.shared.guard.may_destroy(instance)
        {
            add_error(diags, AttributePath::root(), &operation::second_guard(instance));
            return None;
        }
        if prior.instance_id.is_value() {
            prior.warn_of_drain(diags);
        }
        Some(private)
    }

    async fn create<'a>(
        &self,
        _: &mut Diagnostics,
        mut planned: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        planned.id = Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()));
        if let Value::Value(instance) = &planned.instance_id {
            self.shared.guard.created(instance);
        }
        Some((planned, private))
    }

    async fn update<'a>(
        &self,
        _: &mut Diagnostics,
        _: DrainState,
        planned: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        Some((planned, private))
    }

    async fn destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        let (Value::Value(instance), Value::Value(manager)) = (&prior.instance_id, &prior.runner_manager)
        else {
            // Adopted by a `moved` block and never applied: it guards nothing yet.
            return Some(());
        };
        let name = prior.name();
        if self.shared.guard.is_superseded(instance) {
            diags.warn(
                format!("Runner manager {name} was not drained"),
                format!(
                    "This guard of instance {instance:?} was replaced by another one for the same instance in the same apply, so the \
                     runner was left running. Make `instance_id` a value that is known at plan while the instance stays."
                ),
            );
            return Some(());
        }
        let known = configured(&self.shared, diags)?;
        let target = match manager.target(&name) {
            Ok(target) => target,
            Err(error) => {
                let explained = Explained::new(
                    Code::InvalidConfig,
                    "Runner manager cannot be used",
                    format!("The stored guard of {name:?} has an {error}."),
                    "Correct it in the configuration and apply that first.",
                );
                add_error(diags, AttributePath::new("runner_manager"), &explained);
                return None;
            }
        };
        let client = known.connector.client(target);
        let stop = call().stop;
        let reason = prior.reason.as_ref_option().map_or("", String::as_str);
        tracing::info!(manager = name, reason, "drain begins");
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            allowed = self.peers_allow(&prior, &name, &client, &known, diags) => allowed?,
        }
        match fleet::drain::run(&name, &client, &prior.policy(&known), &stop).await {
            Ok(Drained::AlreadyStopped { reason }) => {
                tracing::info!(manager = name, reason, "the runner had ended before");
            }
            Ok(Drained::Terminated { waited, forced, reason }) => {
                tracing::info!(
                    manager = name,
                    waited = human(waited),
                    forced,
                    reason,
                    "the runner has ended"
                );
                if forced {
                    diags.warn(
                        format!("Runner manager {name} was shut down forcefully"),
                        format!(
                            "It was not drained within {} (`on_timeout = \"force\"`): jobs that were left were aborted.",
                            human(prior.timeout())
                        ),
                    );
                }
            }
            Ok(Drained::AssumedTerminated { attempts, error }) => {
                let explained = explain::explain(&name, &error);
                diags.warn(
                    format!("Runner manager {name} was taken for terminated"),
                    format!(
                        "It was not reached in {attempts} attempts, and `on_unreachable = \"assume_terminated\"` says what that means. \
                         {}",
                        explained.happened
                    ),
                );
            }
            Err(failure) => {
                add_error(diags, AttributePath::root(), &operation::not_drained(&name, &failure));
                return None;
            }
        }
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<(DrainState, ValueEmpty)> {
        diags.fail(
            "A drain guard cannot be imported",
            "It exists in Terraform's state alone. Write the resource block and apply: creating it has no side effects.",
        );
        None
    }
}
