//! `grit_runner_shutdown`: retires the runner managers of another deployment version. Its create and update shut them down.
//!
//! - Nothing is lost if a call fails or is interrupted, because the drain is stored on the host. A failed create stores nothing: the next one
//!   finds each drain in progress, or complete, and sends no second signal. A tainted object would be replaced, with the same effect.
//! - A failed update stores the collected evidence, with the status `incomplete`. The next apply continues with the other managers.
//! - A manager counts as terminated by the evidence of its wrapper, or by the user's explicit confirmation, as for a drain.
//! - It never shuts down a manager that the same configuration keeps: see [`plan_overlap`](crate::plan_overlap).
//!
//! Read and destroy make no connection.

mod evidence;
mod operation;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Walk, call,
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Resource, Schema, Value},
};
use tokio::time::Instant;

use super::unique_suffix;
use crate::{
    config::{enum_attribute::member, manager},
    explain::{drain::Subject, protocol, shutdown},
    fleet::drain::Mode,
    process::Shared,
};
use evidence::Evidence;
use state::{INCOMPLETE, ShutdownState};

#[derive(Debug)]
pub struct RunnerShutdown {
    pub shared: Arc<Shared>,
}

impl RunnerShutdown {
    /// Refuses two keys of one manager, and managers that the same configuration keeps.
    fn refuse_managers(&self, planned: &ShutdownState, diags: &mut Diagnostics) -> Option<()> {
        self.shared.refuse_same_managers(&planned.runner_managers, diags);
        for (key, manager) in planned.known_managers() {
            if let Some(by) = self.shared.overlap.retires(&manager.identities(self.shared.selectors(), None))
            {
                shutdown::manager_is_kept(key, by).error(manager::at(key), diags);
            }
        }
        (!diags.has_errors()).then_some(())
    }
}

#[async_trait]
impl Resource for RunnerShutdown {
    type State<'a> = ShutdownState;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(state::schema())
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: ShutdownState) -> Option<()> {
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn plan_create<'a>(
        &self,
        diags: &mut Diagnostics,
        mut proposed: ShutdownState,
    ) -> Option<ShutdownState> {
        self.refuse_managers(&proposed, diags)?;
        warn_of_forceful(&proposed, None, diags);
        proposed.id = Value::Unknown;
        proposed.status = Value::Unknown;
        proposed.managers = Value::Unknown;
        Some(proposed)
    }

    async fn plan_update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: ShutdownState,
        mut proposed: ShutdownState,
    ) -> Option<(ShutdownState, Vec<AttributePath>)> {
        self.refuse_managers(&proposed, diags)?;
        let incomplete = prior.status == Value::Value(INCOMPLETE.to_owned());
        if incomplete || proposed != prior {
            warn_of_forceful(&proposed, Some(&prior), diags);
            proposed.status = Value::Unknown;
            proposed.managers = Value::Unknown;
        }
        Some((proposed, vec![]))
    }

    async fn create<'a>(&self, diags: &mut Diagnostics, mut planned: ShutdownState) -> Option<ShutdownState> {
        let start = Instant::now();
        let id = format!("shutdown#{}", unique_suffix());
        planned.id = Value::Value(id.clone());
        self.shut_down(diags, None, planned, (id, Subject::ShutdownCreate, start)).await
    }

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: ShutdownState,
        planned: ShutdownState,
    ) -> Option<ShutdownState> {
        let start = Instant::now();
        // A new id: the wrapper adds a changed callback to the drain in progress only for a new request.
        let id = format!("{}.{}", planned.id(), unique_suffix());
        let operation = (id, Subject::ShutdownUpdate, start);
        self.shut_down(diags, Some(&prior), planned, operation).await
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<ShutdownState> {
        protocol::import_not_supported("grit_runner_shutdown", "joins a shutdown in progress")
            .error(AttributePath::root(), diags);
        None
    }
}

/// Warns at plan about the managers whose jobs would be aborted. In the apply the warning would come after the abort.
fn warn_of_forceful(planned: &ShutdownState, prior: Option<&ShutdownState>, diags: &mut Diagnostics) {
    if member::<Mode>(&planned.mode) != Mode::Forceful || call().walk == Walk::Apply {
        return;
    }
    let repeat = prior.is_some_and(|prior| prior.triggers != planned.triggers);
    let is_terminated = |key: &str| {
        !repeat && prior.and_then(|it| it.evidence_for(planned, key)).is_some_and(Evidence::is_terminated)
    };
    let open: Vec<_> =
        planned.known_managers().map(|(key, _)| key.as_str()).filter(|key| !is_terminated(key)).collect();
    if !open.is_empty() {
        shutdown::planned_forceful(&open).warning(AttributePath::new("mode"), diags);
    }
}
