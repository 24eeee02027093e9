//! `grit_runner_drain`: destroy drains one runner manager. Resources that it refers to are destroyed after it.
//!
//! Two laws (docs/adr/0002-order-of-operations.md has the experiments):
//!
//! 1. **Create never fails once Terraform calls it.** In a replacement with `create_before_destroy`, the old drain resource is deposed by
//!    then. If the new one fails, also in the plan that Terraform repeats during the apply, the old one has no current object. Terraform
//!    reads the dependencies of a deposed object from its current one: the next apply would destroy the instance before or during its
//!    drain. A create that fails with a state leaves a tainted object, whose replacement drains a running runner. So create does not use
//!    the network, and an invalid value that becomes known only in the apply is stored, with a warning at its attribute. The health check
//!    has the same values and fails on them, which keeps the order. Values that are known in the plan are rejected in the plan. [`Walk`]
//!    is the phase of Terraform.
//! 2. **Destroy never succeeds without evidence**: the wrapper reports that the process has exited, or the user sets that the host is gone.
//!    With a missing or invalid target no wrapper can be called, so destroy fails with the next step. A drain resource that was superseded
//!    in the same apply by one of the same manager is not drained, with a warning (see [`plan_guard`](crate::plan_guard)).
//!
//! An error in an update, or in its plan, is harmless: Terraform keeps the drain resource. Read does not use the network. Destroy can be
//! repeated at any time.

mod shut_down;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Walk, call,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, MoveSource, Resource, Schema, Value},
};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{configured, early_drain::EarlyDrain, unique_suffix};
use crate::{
    ending_drains::parallelism_is_set,
    explain::{
        drain::{self, AssumeSetting},
        import, plan, shutdown, start_drains,
    },
    plan_guard::Successor,
    plan_overlap::KeptBy,
    process::Shared,
    shared_runners::{SharedBy, SharedRunners},
};
use state::{ADOPTED, DrainState};

#[derive(Debug)]
pub struct RunnerDrain {
    pub shared: Arc<Shared>,
}

impl RunnerDrain {
    /// The identity of the runner manager that a connection reaches.
    fn manager_of(&self, drain: &DrainState) -> Option<String> {
        drain.manager_identity(self.shared.selectors())
    }

    /// The other instance whose drain resource has the same runner manager, if there is one. `add`: to which set of this run.
    fn shared_by(
        &self,
        drain: &DrainState,
        instance: Option<&str>,
        add: impl Fn(&SharedRunners, &str, &str) -> Result<(), SharedBy>,
    ) -> Option<SharedBy> {
        let wrapper = self.shared.wrapper_of(drain.runner_manager.as_ref_option()?)?;
        add(&self.shared.shared_runners, &wrapper, instance?).err()
    }

    /// As [`shared_by`](Self::shared_by), for a drain resource that ends; none if the user confirms that its instance is gone.
    fn end_is_shared_by(
        &self,
        prior: &DrainState,
        add: impl Fn(&SharedRunners, &str, &str) -> Result<(), SharedBy>,
    ) -> Option<SharedBy> {
        if prior.assume_setting() == Some(AssumeSetting::Variable) {
            return None;
        }
        self.shared_by(prior, prior.instance(), add)
    }

    /// The plan destroys or replaces this drain resource. See [`EndingDrains::ends`](crate::ending_drains::EndingDrains::ends).
    fn note_end(&self, prior: &DrainState) -> bool {
        let early = prior.instance().zip(self.manager_of(prior));
        let early = early.and_then(|(instance, manager)| EarlyDrain::new(instance, manager, prior.options()));
        self.shared.ending_drains.ends(prior.id(), early.and_then(|early| early.to_json()))
    }

    /// Refuses a plan with a second drain resource of one runner manager.
    fn refuse_shared(shared: Option<SharedBy>, diags: &mut Diagnostics) -> Option<()> {
        let Some(shared) = shared else { return Some(()) };
        plan::shared_runner(&shared).error(AttributePath::new("runner_manager"), diags);
        None
    }

    /// Refuses a manager that a shutdown resource retires.
    ///
    /// In what may be an apply the error is a warning, because a failed create could leave a deposed drain without a current one. The refresh of
    /// a stored drain, the health check and the shutdown resource refuse the same plan.
    fn refuse_retired(&self, planned: &DrainState, walk: Walk, diags: &mut Diagnostics) -> Option<()> {
        let Value::Value(manager) = &planned.runner_manager else { return Some(()) };
        if !self
            .shared
            .overlap
            .keeps(&manager.identities(self.shared.selectors(), planned.instance()), KeptBy::Drain)
        {
            return Some(());
        }
        let explained = shutdown::manager_is_kept(&planned.name(), KeptBy::Drain);
        let path = AttributePath::new("runner_manager");
        if walk == Walk::Plan || walk == Walk::Unknown && self.shared.overlap.is_plan(&planned.name()) {
            explained.error(path, diags);
            return None;
        }
        explained.warning(path, diags);
        Some(())
    }
}

#[async_trait]
impl Resource for RunnerDrain {
    type State<'a> = DrainState;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(state::schema())
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: DrainState) -> Option<()> {
        // In an apply, the following plan decides: an update may fail, a create must not.
        if call().walk == Walk::Plan {
            config.check(diags);
        }
        (!diags.has_errors()).then_some(())
    }

    async fn plan_create<'a>(&self, diags: &mut Diagnostics, mut proposed: DrainState) -> Option<DrainState> {
        let walk = call().walk;
        if let Some(instance) = proposed.instance()
            && let Err(conflict) = self.shared.guard.plans_new(instance, &call().private.object, walk)
        {
            let explained = plan::conflict(instance, conflict);
            let path = AttributePath::new("instance_id");
            if self.shared.guard.refuses_new(instance, conflict, walk).await {
                explained.error(path, diags);
                return None;
            }
            explained.warning(path, diags);
        }
        let shared = self.shared_by(&proposed, proposed.instance(), SharedRunners::keeps);
        if walk == Walk::Plan {
            Self::refuse_shared(shared, diags)?;
        } else if let Some(shared) = shared {
            // It may be an apply. The health check refuses the same plan.
            plan::shared_runner(&shared).warning(AttributePath::new("runner_manager"), diags);
            self.shared.shared_runners.report(shared);
        }
        self.refuse_retired(&proposed, walk, diags)?;
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
        Some(proposed)
    }

    /// Terraform reads only in a plan, which may be refused.
    async fn read<'a>(&self, diags: &mut Diagnostics, state: DrainState) -> Option<DrainState> {
        if let Some(name) = self.shared.overlap.saw_plan() {
            shutdown::manager_is_kept(&name, KeptBy::Drain).error(AttributePath::root(), diags);
            return None;
        }
        Some(state)
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: DrainState,
        mut proposed: DrainState,
    ) -> Option<(DrainState, Vec<AttributePath>)> {
        proposed.check(diags);
        if diags.has_errors() {
            return None;
        }
        // A drain resource that was moved, or stored without an instance id, has no instance yet: setting it is an update.
        let replaced = prior.instance().is_some() && prior.instance_id != proposed.instance_id;
        if replaced && prior.is_imported() {
            import::other_instance(prior.instance().unwrap_or_default())
                .error(AttributePath::new("instance_id"), diags);
            return None;
        }
        // Only in a plan: values are known in an apply. One that was stored without a runner manager, too, has no runner to drain.
        let may_have_runner = prior.is_adopted() || self.manager_of(&prior).is_some();
        if prior.instance().is_none() && may_have_runner && proposed.instance_id.is_unknown() {
            import::instance_not_known().error(AttributePath::new("instance_id"), diags);
            return None;
        }
        if let Some(instance) = prior.instance().or(proposed.instance()) {
            let guard = &self.shared.guard;
            let fits = if replaced {
                guard.plans_end(instance, prior.id(), self.manager_of(&prior).as_deref())
            } else {
                guard.plans_kept(instance, prior.id(), self.manager_of(&proposed).as_deref())
            };
            if let Err(conflict) = fits {
                plan::conflict(instance, conflict).error(AttributePath::new("instance_id"), diags);
                return None;
            }
        }
        if prior.instance().is_none() || prior.is_imported() {
            proposed.id = Value::Unknown;
        }
        if replaced {
            Self::refuse_shared(self.end_is_shared_by(&prior, SharedRunners::ends), diags)?;
            self.note_end(&prior);
            // Terraform does not plan the destroy of a replacement separately.
            prior.warn_of_drain(Some(&proposed.instance_id), diags);
        } else {
            // An error in an update is harmless in every walk.
            let instance = prior.instance().or(proposed.instance());
            Self::refuse_shared(self.shared_by(&proposed, instance, SharedRunners::keeps), diags)?;
            self.refuse_retired(&proposed, Walk::Plan, diags)?;
        }
        let paths = if replaced { vec![AttributePath::new("instance_id")] } else { vec![] };
        Some((proposed, paths))
    }

    async fn plan_destroy<'a>(&self, diags: &mut Diagnostics, prior: DrainState) -> Option<()> {
        if let Some(instance) = prior.instance()
            && let Err(conflict) =
                self.shared.guard.plans_end(instance, prior.id(), self.manager_of(&prior).as_deref())
        {
            plan::conflict(instance, conflict).error(AttributePath::root(), diags);
            return None;
        }
        Self::refuse_shared(self.end_is_shared_by(&prior, SharedRunners::ends), diags)?;
        if self.note_end(&prior) && call().walk != Walk::Apply && !parallelism_is_set() {
            start_drains::drains_wait(true).warning(AttributePath::root(), diags);
        }
        // Terraform plans again in the apply, where the warning would be too late.
        if prior.runner_manager.is_value() && call().walk != Walk::Apply {
            prior.warn_of_drain(None, diags);
        }
        Some(())
    }

    async fn create<'a>(&self, _: &mut Diagnostics, mut planned: DrainState) -> Option<DrainState> {
        planned.id = new_id(&planned);
        if let Some(instance) = planned.instance() {
            self.shared.guard.created(instance, self.manager_of(&planned));
        }
        Some(planned)
    }

    async fn update<'a>(
        &self,
        _: &mut Diagnostics,
        _: DrainState,
        mut planned: DrainState,
    ) -> Option<DrainState> {
        if planned.id.is_unknown() {
            planned.id = new_id(&planned);
        }
        Some(planned)
    }

    async fn destroy<'a>(&self, diags: &mut Diagnostics, prior: DrainState) -> Option<()> {
        let start = Instant::now();
        let name = prior.name();
        if let (Some(instance), Some(manager)) = (prior.instance(), self.manager_of(&prior))
            && let Some(successor) = self.shared.guard.successor(instance, &manager)
        {
            return match successor {
                Successor::SameManager => {
                    drain::superseded(&name, instance).warning(AttributePath::root(), diags);
                    Some(())
                }
                Successor::OtherManager => {
                    drain::instance_id_twice(&name, instance).error(AttributePath::root(), diags);
                    None
                }
                // A connection would shut down the runner of the other instance.
                Successor::OtherInstance(_) if prior.assume_setting() == Some(AssumeSetting::Variable) => {
                    drain::assumed_at_used_address(&name, instance).warning(AttributePath::root(), diags);
                    Some(())
                }
                Successor::OtherInstance(other) => {
                    let explained = drain::address_is_used(&name, prior.address(), instance, &other);
                    explained.error(AttributePath::new("runner_manager"), diags);
                    None
                }
            };
        }
        let known = configured(&self.shared, diags)?;
        let key = prior.identifiers().next().unwrap_or_default();
        let client = match prior.client(&known) {
            Ok(manager) => manager,
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
        if let Some(shared) = self.end_is_shared_by(&prior, SharedRunners::drains) {
            let explained = plan::drained_for_other(&name, prior.address(), &shared);
            explained.error(AttributePath::new("runner_manager"), diags);
            return None;
        }
        self.shut_down(diags, &prior, &client, &known, start).await?;
        if let Some(instance) = prior.instance() {
            self.shared.guard.destroyed(instance, prior.id());
        }
        Some(())
    }

    /// Imports by the identifier of the instance. The other attributes cannot be derived from it: the next apply adds them in place, and until
    /// then a destroy is refused.
    async fn import<'a>(&self, diags: &mut Diagnostics, instance: String) -> Option<DrainState> {
        if instance.trim().is_empty() {
            import::without_instance().error(AttributePath::root(), diags);
            return None;
        }
        let state = DrainState::imported(instance.clone(), &unique_suffix());
        if let Err(conflict) = self.shared.guard.imports(&instance, state.id()) {
            plan::conflict(&instance, conflict).error(AttributePath::root(), diags);
            return None;
        }
        import::incomplete(&instance).warning(AttributePath::root(), diags);
        Some(state)
    }

    fn identity(&self) -> Option<&'static str> {
        Some("instance_id")
    }

    fn observe_stored_state(&self, state: &Json) {
        let text = |name: &str| state.get(name).and_then(Json::as_str).unwrap_or_default();
        self.shared.stored_drains.stored(text("id"));
        if !text("instance_id").is_empty() {
            self.shared.guard.stored(text("instance_id"), text("id"));
        }
    }

    /// Moves the usual "drain by destroy provisioner" resources. The new drain resource drains nothing until the next apply sets its
    /// attributes.
    fn move_json(&self, diags: &mut Diagnostics, source: MoveSource) -> Option<Json> {
        match source.type_name.as_str() {
            "terraform_data" | "null_resource" => {
                Some(json!({ "id": format!("{ADOPTED}{}", unique_suffix()) }))
            }
            other => {
                drain::moved_not_supported(other).error(AttributePath::root(), diags);
                None
            }
        }
    }
}

/// Readable and unique.
fn new_id(planned: &DrainState) -> Value<String> {
    Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()))
}
