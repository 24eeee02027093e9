//! `grit_runner_shutdown`: retires the runner managers of another deployment version. Its create and update shut them down.
//!
//! - Nothing is lost if a call fails or is interrupted, because the drain is stored on the host. A failed create stores nothing: the next one
//!   finds each drain in progress, or complete, and sends no second signal. A tainted object would be replaced, with the same effect.
//! - A failed update stores the collected evidence, with the status `incomplete`. The next apply continues with the other managers.
//! - A manager counts as terminated by the evidence of its wrapper, or by the user's explicit confirmation, as for a drain.
//! - It never shuts down a manager that the same configuration keeps: see [`run`](crate::run).
//!
//! Read and destroy make no connection.

mod evidence;
mod operation;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource, Walk, call,
    schema::{AttributePath, Schema, Value},
};
use tokio::time::Instant;

use crate::{
    config::{enum_attribute::member, manager, object::Object as _},
    context::{Context, unique_suffix},
    explain::{drain::Subject, shutdown},
    fleet::drain::Mode,
    run::Event,
};
use evidence::Evidence;
use state::{INCOMPLETE, Operation, ShutdownState};

#[derive(Debug)]
pub struct RunnerShutdown {
    pub context: Arc<Context>,
}

impl RunnerShutdown {
    /// Refuses two keys of one manager, and managers that the same configuration keeps.
    fn refuse_managers(&self, planned: &ShutdownState) -> Result<(), Problems> {
        self.context.refuse_managers(&planned.runner_managers, &Event::Retired)
    }
}

#[async_trait]
impl Resource for RunnerShutdown {
    type State = ShutdownState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn validate(&self, config: ShutdownState) -> Result<(), Problems> {
        config.check()?;
        self.context.require_addresses(&config.runner_managers)
    }

    async fn plan_create(&self, mut proposed: ShutdownState) -> Result<ShutdownState, Problems> {
        self.refuse_managers(&proposed)?;
        warn_of_forceful(&proposed, None);
        proposed.id = Value::Unknown;
        proposed.status = Value::Unknown;
        proposed.managers = Value::Unknown;
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        prior: ShutdownState,
        mut proposed: ShutdownState,
    ) -> Result<(ShutdownState, Vec<AttributePath>), Problems> {
        self.refuse_managers(&proposed)?;
        let incomplete = prior.status == Value::Value(INCOMPLETE.to_owned());
        if incomplete || proposed != prior {
            warn_of_forceful(&proposed, Some(&prior));
            proposed.status = Value::Unknown;
            proposed.managers = Value::Unknown;
        }
        Ok((proposed, vec![]))
    }

    async fn create(&self, mut planned: ShutdownState) -> Result<ShutdownState, Problems> {
        let start = Instant::now();
        let id = format!("shutdown#{}", unique_suffix());
        planned.id = Value::Value(id.clone());
        self.shut_down(None, planned, &Operation { id, subject: Subject::ShutdownCreate, start }).await
    }

    async fn update(&self, prior: ShutdownState, planned: ShutdownState) -> Result<ShutdownState, Problems> {
        let start = Instant::now();
        // A new id: this is another drain.
        let id = format!("{}.{}", planned.id(), unique_suffix());
        self.shut_down(Some(&prior), planned, &Operation { id, subject: Subject::ShutdownUpdate, start })
            .await
    }
}

/// Warns at plan about the managers whose jobs would be aborted. In the apply the warning would come after the abort.
fn warn_of_forceful(planned: &ShutdownState, prior: Option<&ShutdownState>) {
    if member::<Mode>(&planned.options().mode) != Mode::Forceful || call().walk == Walk::Apply {
        return;
    }
    let repeat = prior.is_some_and(|prior| prior.triggers != planned.triggers);
    let is_terminated = |key: &str| {
        !repeat && prior.and_then(|it| it.evidence_for(planned, key)).is_some_and(Evidence::is_terminated)
    };
    let managers = manager::known(&planned.runner_managers);
    let open: Vec<_> = managers.map(|(key, _)| key.as_str()).filter(|key| !is_terminated(key)).collect();
    if !open.is_empty() {
        call().warn(shutdown::planned_forceful(&open).at(AttributePath::new("mode")));
    }
}
