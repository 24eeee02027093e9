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
//! 2. **Destroy never succeeds without evidence or a confirmation**: the wrapper reports that the process has exited (evidence), or the user confirms
//!    that the host is gone. With a missing or invalid target no wrapper can be called, so destroy fails with the next step. A drain resource that was superseded
//!    in the same apply by one of the same manager is not drained, with a warning (see [`rules`](crate::run)).
//!
//! An error in an update, or in its plan, is harmless: Terraform keeps the drain resource. Read does not use the network. Destroy can be
//! repeated at any time.

mod shut_down;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource, Walk, call,
    schema::{AttributePath, Schema, Value},
};
use serde_json::Value as Json;
use tokio::time::Instant;

use super::early_drain::EarlyDrain;
use crate::{
    config::object::Object as _,
    context::{Context, unique_suffix},
    explain::{drain, plan},
    manager::Identities,
    run::{Event, Refusal, Row, Successor},
};
use state::DrainState;

#[derive(Debug)]
pub struct RunnerDrain {
    pub context: Arc<Context>,
}

impl RunnerDrain {
    /// What a call shows about a drain resource.
    fn row(&self, drain: &DrainState, event: Event) -> Row {
        Row {
            event,
            object: drain.id().to_owned(),
            name: drain.name(),
            instance: drain.instance().map(str::to_owned),
            manager: self.context.identities(&drain.runner_manager, drain.instance()),
        }
    }

    /// The plan destroys or replaces this drain resource.
    fn ending(&self, prior: &DrainState) -> Row {
        let gone = self.is_gone(prior);
        let row = self.row(prior, Event::Ending { early: None, gone });
        let early = row.instance.as_deref().zip(row.manager.wrapper.clone());
        let early = early.map(|(instance, manager)| EarlyDrain::new(instance, manager, prior.options()));
        let early = early.and_then(|early| early.to_json());
        Row { event: Event::Ending { early, gone }, ..row }
    }

    /// The user confirms that the instance is gone.
    fn is_gone(&self, drain: &DrainState) -> bool {
        self.context.run.assumed().contains(drain.identifiers())
    }

    /// Adds a row whose refusals are errors in a plan and in an apply.
    fn record(&self, row: Row) -> Result<(), Problems> {
        let refusals = self.context.run.record(row, call().walk);
        refusals.iter().map(plan::refused).collect::<Problems>().or(())
    }

    /// The checks of the values, also with the provider block.
    fn check(&self, planned: &DrainState) -> Result<(), Problems> {
        let mut problems = Problems::default();
        planned.check_at(&AttributePath::root(), &mut problems);
        let path = AttributePath::new("runner_manager");
        problems.extend(self.context.missing_address(&planned.runner_manager, path));
        problems.or(())
    }

    fn warn_of_tcp(&self, planned: &DrainState) {
        let path = AttributePath::new("runner_manager");
        self.context.warn_of_tcp(&planned.name(), &planned.runner_manager, path);
    }

    /// As [`Self::record`], for a new drain resource: in what may be an apply the errors are warnings, because a failed create could leave a deposed
    /// drain resource without a current one. The plan of a stored drain resource, the health check and the shutdown resource refuse the same plan.
    fn record_new(&self, planned: &DrainState) -> Result<(), Problems> {
        self.warn_of_tcp(planned);
        let call = call();
        let row = Row { object: call.private.object.clone(), ..self.row(planned, Event::New) };
        let (run, instance) = (&self.context.run, row.instance.clone());
        let refusals = run.record(row, call.walk);
        let refusals = refusals.iter().map(plan::refused);
        // Asked after the record, so one of the two is refused. An apply destroys a drain resource at once.
        if call.walk == Walk::Plan || instance.is_some_and(|instance| run.is_ending(&instance)) {
            return refusals.collect::<Problems>().or(());
        }
        refusals.for_each(|refused| call.warn(refused));
        Ok(())
    }

    /// The destroy of a drain resource whose instance or wrapper another one has.
    fn leave_to(&self, prior: &DrainState, instance: &str, successor: &Successor) -> Result<(), Problems> {
        let name = prior.name();
        match successor {
            Successor::SameManager => {
                call().warn(drain::superseded(&name, instance));
                Ok(())
            }
            Successor::OtherManager => Err(drain::instance_id_twice(&name, instance).into()),
            // A connection would shut down the runner of the other instance.
            Successor::OtherInstance(_) if self.is_gone(prior) => {
                call().warn(drain::assumed_at_used_address(&name, instance));
                Ok(())
            }
            Successor::OtherInstance(other) => {
                let explained = drain::address_is_used(&name, prior.address(), instance, other);
                Err(explained.at(AttributePath::new("runner_manager")).into())
            }
        }
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
        if call().walk == Walk::Plan { self.check(&config) } else { Ok(()) }
    }

    async fn plan_create(&self, mut proposed: DrainState) -> Result<DrainState, Problems> {
        self.record_new(&proposed)?;
        if let Err(problems) = self.check(&proposed) {
            if call().walk == Walk::Plan {
                return Err(problems);
            }
            problems.into_iter().for_each(|problem| call().warn(drain::stored_anyway(problem)));
        }
        proposed.id = Value::Unknown;
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        prior: DrainState,
        mut proposed: DrainState,
    ) -> Result<(DrainState, Vec<AttributePath>), Problems> {
        self.check(&proposed)?;
        // A drain resource that was stored without an instance id has no instance yet: setting it is an update.
        let replaced = prior.instance().is_some() && prior.instance_id != proposed.instance_id;
        // Only in a plan: values are known in an apply. A resource that was also stored without a runner manager has no runner to drain.
        if prior.instance().is_none() && prior.has_addresses() && proposed.instance_id.is_unknown() {
            return Err(plan::instance_not_known().at(AttributePath::new("instance_id")).into());
        }
        if replaced {
            self.record(self.ending(&prior))?;
            // Terraform does not plan the destroy of a replacement separately.
            prior.warn_of_drain(Some(&proposed.instance_id), false);
            return Ok((proposed, vec![AttributePath::new("instance_id")]));
        }
        self.warn_of_tcp(&proposed);
        let instance = prior.instance().or(proposed.instance()).map(str::to_owned);
        let object = prior.id().to_owned();
        self.record(Row { object, instance, ..self.row(&proposed, Event::Kept) })?;
        if prior.instance().is_none() {
            proposed.id = Value::Unknown;
        }
        Ok((proposed, vec![]))
    }

    async fn plan_destroy(&self, prior: DrainState) -> Result<(), Problems> {
        self.record(self.ending(&prior))?;
        // Terraform plans again in the apply, where a warning would be too late.
        if call().walk != Walk::Apply && prior.runner_manager.is_value() {
            prior.warn_of_drain(None, self.context.run.ends_health_check());
        }
        Ok(())
    }

    async fn create(&self, mut planned: DrainState) -> Result<DrainState, Problems> {
        planned.id = new_id(&planned);
        self.context.run.record(self.row(&planned, Event::Created), Walk::Apply);
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
        let Context { run, .. } = &*self.context;
        let row = self.row(&prior, Event::Drained);
        if let Row { instance: Some(instance), manager: Identities { wrapper: Some(manager), .. }, .. } = &row
            && let Some(successor) = run.successor(instance, manager)
        {
            return self.leave_to(&prior, instance, &successor);
        }
        let configuration = self.context.configured()?;
        let (name, gone) = (prior.name(), self.is_gone(&prior));
        let key = prior.identifiers().next().unwrap_or_default();
        let manager = match prior.resolve(&configuration) {
            Ok(manager) => manager,
            Err(_) if gone => {
                call().warn(drain::assumed_without_target(&name, key));
                return Ok(());
            }
            Err((attribute, problem)) => {
                let explained = drain::no_target(prior.id(), &attribute, &problem, key);
                return Err(explained.at(AttributePath::new("runner_manager")).into());
            }
        };
        if !gone {
            for refusal in run.record(row, Walk::Apply) {
                if let Refusal::SharedRunner(shared) = refusal {
                    let explained = plan::drained_for_other(&name, prior.address(), &shared);
                    return Err(explained.at(AttributePath::new("runner_manager")).into());
                }
            }
        }
        self.shut_down(&prior, &manager, &configuration, start).await?;
        run.destroyed(prior.id());
        Ok(())
    }

    fn observe_stored_state(&self, state: &Json) {
        let text = |name: &str| state.get(name).and_then(Json::as_str).unwrap_or_default();
        let instance = Some(text("instance_id").to_owned()).filter(|instance| !instance.is_empty());
        let (object, name, manager) = (text("id").to_owned(), String::new(), Identities::default());
        let row = Row { event: Event::Stored, object, name, instance, manager };
        self.context.run.record(row, Walk::Unknown);
    }
}

/// Readable and unique.
fn new_id(planned: &DrainState) -> Value<String> {
    Value::Value(format!("{}@{}#{}", planned.name(), planned.address(), unique_suffix()))
}
