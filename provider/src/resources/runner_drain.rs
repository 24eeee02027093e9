//! `grit_runner_drain`: a guard on one runner manager. Its destroy drains the runner, and what it refers to is destroyed after it.
//!
//! Two laws (docs/adr/0002-order-of-operations.md has the experiments behind them):
//!
//! 1. **The create of a guard never fails once Terraform calls it.** In a replacement with `create_before_destroy`, the old guard is deposed by
//!    then. If the new one fails, also in the plan that Terraform makes again during the apply, the old guard has no current object beside
//!    it. Terraform reads the dependencies of a deposed object from its current one: the next apply would destroy the instance before or
//!    during its drain. A create that fails with a state leaves a tainted guard, whose replacement drains a live runner. So create
//!    touches no network, and a bad value that becomes known only in the apply is stored, with a warning at its attribute. The health
//!    gate takes the same values and fails on them, which keeps the order. What is known in the plan is refused there, because nothing has
//!    begun yet. [`Walk`] says whether a call belongs to a plan.
//! 2. **The destroy of a guard never succeeds without evidence**: the wrapper said that the process ended, or the user said that the host is
//!    gone. A guard whose target is missing or malformed cannot ask a wrapper, so its destroy is an error that says how to go on. A guard
//!    that was superseded in the same apply is not drained, and the user is warned (see [`plan_guard`](crate::plan_guard)).
//!
//! An error in an update, or in its plan, is harmless: Terraform keeps the guard as it was. Read touches no network. The destroy can
//! be repeated at any time.

mod shut_down;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{configured, unique_suffix};
use crate::{
    call::{Walk, call},
    explain::{
        drain::{self, AssumeSetting},
        plan, protocol,
    },
    plan_guard::Conflict,
    process::Shared,
    schema::{
        AttributePath, Diagnostics, DiagnosticsExt, MoveSource, Resource, ResourceExt, Schema, Value,
        ValueEmpty,
    },
};
use state::DrainState;

/// The resource.
#[derive(Debug)]
pub struct RunnerDrain {
    shared: Arc<Shared>,
}

impl RunnerDrain {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl ResourceExt for RunnerDrain {
    fn observe_stored_state(&self, state: &Json) {
        let text = |name: &str| state.get(name).and_then(Json::as_str).unwrap_or_default();
        self.shared.stored_drains.stored(text("id"));
        if !text("instance_id").is_empty() {
            self.shared.guard.stored(text("instance_id"), text("id"));
        }
    }

    /// Adopts the usual "drain by destroy provisioner" constructs. The guard starts without a drain; the next apply fills it in place.
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        match source.type_name.as_str() {
            "terraform_data" | "null_resource" => {
                Some(json!({ "id": format!("adopted#{}", unique_suffix()) }))
            }
            other => {
                drain::moved_not_supported(other).error(AttributePath::root(), diags);
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
        // In an apply the plan that follows decides: an update may fail, a create must not.
        if call().walk == Walk::Plan {
            config.check(diags);
        }
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
        let walk = call().walk;
        if let Some(instance) = proposed.instance()
            && let Err(conflict) = self.shared.guard.plans_new(instance, walk)
        {
            let explained = plan::conflict(instance, conflict);
            let path = AttributePath::new("instance_id");
            if conflict == Conflict::Twice && walk != Walk::Plan {
                explained.warning(path, diags);
            } else {
                explained.error(path, diags);
                return None;
            }
        }
        let mut found = Diagnostics::default();
        proposed.check(&mut found);
        if walk == Walk::Plan && found.has_errors() {
            diags.errors.append(&mut found.errors);
            return None;
        }
        for error in found.errors {
            drain::stored_anyway(error, diags);
        }
        proposed.id = Value::Unknown;
        Some((proposed, Value::Null))
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        mut proposed: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty, Vec<AttributePath>)> {
        proposed.check(diags);
        if diags.has_errors() {
            return None;
        }
        // A guard that was adopted, or stored without an identifier, has no instance yet: filling it in is an update.
        let replaced = prior.instance().is_some() && prior.instance_id != proposed.instance_id;
        if let Some(instance) = prior.instance() {
            let guard = &self.shared.guard;
            let fits = if replaced {
                guard.plans_end(instance, prior.id())
            } else {
                guard.plans_kept(instance, prior.id())
            };
            if let Err(conflict) = fits {
                plan::conflict(instance, conflict).error(AttributePath::new("instance_id"), diags);
                return None;
            }
        } else {
            proposed.id = Value::Unknown;
        }
        if replaced {
            // Terraform does not ask for the destroy half of a replacement while it plans.
            prior.warn_of_drain(Some(&proposed.instance_id), diags);
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
        if let Some(instance) = prior.instance()
            && let Err(conflict) = self.shared.guard.plans_end(instance, prior.id())
        {
            plan::conflict(instance, conflict).error(AttributePath::root(), diags);
            return None;
        }
        // Terraform asks again in the apply, where a warning would come after the drain.
        if prior.runner_manager.is_value() && call().walk != Walk::Apply {
            prior.warn_of_drain(None, diags);
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
        planned.id = new_id(&planned);
        if let Some(instance) = planned.instance() {
            self.shared.guard.created(instance);
        }
        Some((planned, private))
    }

    async fn update<'a>(
        &self,
        _: &mut Diagnostics,
        _: DrainState,
        mut planned: DrainState,
        _: DrainState,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(DrainState, ValueEmpty)> {
        if planned.id.is_unknown() {
            planned.id = new_id(&planned);
        }
        Some((planned, private))
    }

    async fn destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        let start = Instant::now();
        let name = prior.name();
        if let Some(instance) = prior.instance()
            && self.shared.guard.is_superseded(instance)
        {
            drain::superseded(&name, instance).warning(AttributePath::root(), diags);
            return Some(());
        }
        let known = configured(&self.shared, diags)?;
        let key = prior.identifiers().next().unwrap_or_default();
        let client = match prior.client(&known) {
            Ok(client) => client,
            Err(_) if prior.assume_setting() == Some(AssumeSetting::Variable) => {
                drain::assumed_without_target(&name, key).warning(AttributePath::root(), diags);
                return Some(());
            }
            Err((attribute, problem)) => {
                drain::no_target(prior.id(), &attribute, &problem, key)
                    .error(AttributePath::new("runner_manager"), diags);
                return None;
            }
        };
        self.shut_down(diags, &prior, &client, &known, start).await?;
        if let Some(instance) = prior.instance() {
            self.shared.guard.destroyed(instance, prior.id());
        }
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<(DrainState, ValueEmpty)> {
        protocol::import_not_supported("grit_runner_drain", "has no side effects")
            .error(AttributePath::root(), diags);
        None
    }
}

/// Readable, unique, and new for each guard.
fn new_id(planned: &DrainState) -> Value<String> {
    Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()))
}
