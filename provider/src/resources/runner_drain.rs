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
    Problem, Problems, Resource, Walk, call,
    schema::{AttributePath, Schema, Value},
};
use serde_json::Value as Json;
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
use state::DrainState;

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
    fn refuse_shared(shared: Option<SharedBy>) -> Result<(), Problem> {
        match shared {
            Some(shared) => Err(plan::shared_runner(&shared).at(AttributePath::new("runner_manager"))),
            None => Ok(()),
        }
    }

    /// Refuses a manager that a shutdown resource retires.
    ///
    /// In what may be an apply the error is a warning, because a failed create could leave a deposed drain without a current one. The refresh of
    /// a stored drain, the health check and the shutdown resource refuse the same plan.
    fn refuse_retired(&self, planned: &DrainState, walk: Walk) -> Result<(), Problem> {
        let Value::Value(manager) = &planned.runner_manager else { return Ok(()) };
        if !self
            .shared
            .overlap
            .keeps(&manager.identities(self.shared.selectors(), planned.instance()), KeptBy::Drain)
        {
            return Ok(());
        }
        let problem = shutdown::manager_is_kept(&planned.name(), KeptBy::Drain)
            .at(AttributePath::new("runner_manager"));
        if walk == Walk::Plan || walk == Walk::Unknown && self.shared.overlap.is_plan(&planned.name()) {
            return Err(problem);
        }
        call().warn(problem);
        Ok(())
    }
}

#[async_trait]
impl Resource for RunnerDrain {
    type State = DrainState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn validate(&self, config: DrainState) -> Result<(), Problems> {
        // In an apply, the following plan decides: an update may fail, a create must not.
        if call().walk == Walk::Plan { config.check() } else { Ok(()) }
    }

    async fn plan_create(&self, mut proposed: DrainState) -> Result<DrainState, Problems> {
        let walk = call().walk;
        if let Some(instance) = proposed.instance()
            && let Err(conflict) = self.shared.guard.plans_new(instance, &call().private.object, walk)
        {
            let problem = plan::conflict(instance, conflict).at(AttributePath::new("instance_id"));
            if self.shared.guard.refuses_new(instance, conflict, walk).await {
                return Err(problem.into());
            }
            call().warn(problem);
        }
        let shared = self.shared_by(&proposed, proposed.instance(), SharedRunners::keeps);
        if walk == Walk::Plan {
            Self::refuse_shared(shared)?;
        } else if let Some(shared) = shared {
            // It may be an apply. The health check refuses the same plan.
            call().warn(plan::shared_runner(&shared).at(AttributePath::new("runner_manager")));
            self.shared.shared_runners.report(shared);
        }
        self.refuse_retired(&proposed, walk)?;
        if let Err(found) = proposed.check() {
            if walk == Walk::Plan {
                return Err(found);
            }
            found.into_iter().for_each(|problem| call().warn(drain::stored_anyway(problem)));
        }
        proposed.id = Value::Unknown;
        Ok(proposed)
    }

    /// Terraform reads only in a plan, which may be refused.
    async fn read(&self, state: DrainState) -> Result<Option<DrainState>, Problems> {
        match self.shared.overlap.saw_plan() {
            Some(name) => Err(shutdown::manager_is_kept(&name, KeptBy::Drain).into()),
            None => Ok(Some(state)),
        }
    }

    async fn plan_update(
        &self,
        prior: DrainState,
        mut proposed: DrainState,
    ) -> Result<(DrainState, Vec<AttributePath>), Problems> {
        proposed.check()?;
        // A drain resource that was stored without an instance id has no instance yet: setting it is an update.
        let replaced = prior.instance().is_some() && prior.instance_id != proposed.instance_id;
        if replaced && prior.is_imported() {
            let problem = import::other_instance(prior.instance().unwrap_or_default());
            return Err(problem.at(AttributePath::new("instance_id")).into());
        }
        // Only in a plan: values are known in an apply. One that was stored without a runner manager, too, has no runner to drain.
        let has_runner = self.manager_of(&prior).is_some();
        if prior.instance().is_none() && has_runner && proposed.instance_id.is_unknown() {
            return Err(import::instance_not_known().at(AttributePath::new("instance_id")).into());
        }
        if let Some(instance) = prior.instance().or(proposed.instance()) {
            let guard = &self.shared.guard;
            let fits = if replaced {
                guard.plans_end(instance, prior.id(), self.manager_of(&prior).as_deref())
            } else {
                guard.plans_kept(instance, prior.id(), self.manager_of(&proposed).as_deref())
            };
            if let Err(conflict) = fits {
                return Err(plan::conflict(instance, conflict).at(AttributePath::new("instance_id")).into());
            }
        }
        if prior.instance().is_none() || prior.is_imported() {
            proposed.id = Value::Unknown;
        }
        if replaced {
            Self::refuse_shared(self.end_is_shared_by(&prior, SharedRunners::ends))?;
            self.note_end(&prior);
            // Terraform does not plan the destroy of a replacement separately.
            prior.warn_of_drain(Some(&proposed.instance_id));
        } else {
            // An error in an update is harmless in every walk.
            let instance = prior.instance().or(proposed.instance());
            Self::refuse_shared(self.shared_by(&proposed, instance, SharedRunners::keeps))?;
            self.refuse_retired(&proposed, Walk::Plan)?;
        }
        let paths = if replaced { vec![AttributePath::new("instance_id")] } else { vec![] };
        Ok((proposed, paths))
    }

    async fn plan_destroy(&self, prior: DrainState) -> Result<(), Problems> {
        if let Some(instance) = prior.instance()
            && let Err(conflict) =
                self.shared.guard.plans_end(instance, prior.id(), self.manager_of(&prior).as_deref())
        {
            return Err(plan::conflict(instance, conflict).into());
        }
        Self::refuse_shared(self.end_is_shared_by(&prior, SharedRunners::ends))?;
        if self.note_end(&prior) && call().walk != Walk::Apply && !parallelism_is_set() {
            call().warn(start_drains::drains_wait(true));
        }
        // Terraform plans again in the apply, where the warning would be too late.
        if prior.runner_manager.is_value() && call().walk != Walk::Apply {
            prior.warn_of_drain(None);
        }
        Ok(())
    }

    async fn create(&self, mut planned: DrainState) -> Result<DrainState, Problems> {
        planned.id = new_id(&planned);
        if let Some(instance) = planned.instance() {
            self.shared.guard.created(instance, self.manager_of(&planned));
        }
        Ok(planned)
    }

    async fn update(&self, _: DrainState, mut planned: DrainState) -> Result<DrainState, Problems> {
        if planned.id.is_unknown() {
            planned.id = new_id(&planned);
        }
        Ok(planned)
    }

    async fn destroy(&self, prior: DrainState) -> Result<(), Problems> {
        let start = Instant::now();
        let name = prior.name();
        if let (Some(instance), Some(manager)) = (prior.instance(), self.manager_of(&prior))
            && let Some(successor) = self.shared.guard.successor(instance, &manager)
        {
            return match successor {
                Successor::SameManager => {
                    call().warn(drain::superseded(&name, instance));
                    Ok(())
                }
                Successor::OtherManager => Err(drain::instance_id_twice(&name, instance).into()),
                // A connection would shut down the runner of the other instance.
                Successor::OtherInstance(_) if prior.assume_setting() == Some(AssumeSetting::Variable) => {
                    call().warn(drain::assumed_at_used_address(&name, instance));
                    Ok(())
                }
                Successor::OtherInstance(other) => {
                    let problem = drain::address_is_used(&name, prior.address(), instance, &other);
                    Err(problem.at(AttributePath::new("runner_manager")).into())
                }
            };
        }
        let known = configured(&self.shared)?;
        let key = prior.identifiers().next().unwrap_or_default();
        let client = match prior.client(&known) {
            Ok(manager) => manager,
            Err(_) if prior.assume_setting() == Some(AssumeSetting::Variable) => {
                call().warn(drain::assumed_without_target(&name, key));
                return Ok(());
            }
            Err((attribute, problem)) => {
                let problem = drain::no_target(prior.id(), &attribute, &problem, key);
                return Err(problem.at(AttributePath::new("runner_manager")).into());
            }
        };
        if let Some(shared) = self.end_is_shared_by(&prior, SharedRunners::drains) {
            let problem = plan::drained_for_other(&name, prior.address(), &shared);
            return Err(problem.at(AttributePath::new("runner_manager")).into());
        }
        self.shut_down(&prior, &client, &known, start).await?;
        if let Some(instance) = prior.instance() {
            self.shared.guard.destroyed(instance, prior.id());
        }
        Ok(())
    }

    /// Imports by the identifier of the instance. The other attributes cannot be derived from it: the next apply adds them in place, and until
    /// then a destroy is refused.
    async fn import(&self, instance: String) -> Result<DrainState, Problems> {
        if instance.trim().is_empty() {
            return Err(import::without_instance().into());
        }
        let state = DrainState::imported(instance.clone(), &unique_suffix());
        if let Err(conflict) = self.shared.guard.imports(&instance, state.id()) {
            return Err(plan::conflict(&instance, conflict).into());
        }
        call().warn(import::incomplete(&instance));
        Ok(state)
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
}

/// Readable and unique.
fn new_id(planned: &DrainState) -> Value<String> {
    Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()))
}
