//! What this run has seen, and what it therefore refuses.
//!
//! Terraform calls the provider for one object at a time, in parallel and in any order, and gives it no view of the plan as a whole. Each call
//! adds a [`Row`] to the [`ledger`], and gets what the row and the rows before it contradict, under one lock: of two calls that contradict
//! each other, the second one is refused. The [`rules`] are pure functions of the ledger. There is no network here.
//!
//! Limits: each provider configuration (alias) is a separate process, with a ledger of its own. The apply of a saved plan is another process than its
//! plan, and receives only the objects that it changes.

pub(crate) mod assumed;
mod ledger;
mod refusal;
mod rules;

use std::sync::Arc;

use grit_plugin::Walk;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value as Json;

use crate::manager::WrapperIdentity;
use assumed::Assumed;
use ledger::Ledger;
pub(crate) use ledger::{Event, Row};
pub(crate) use refusal::{Conflict, Keeper, Refusal, SharedBy, Successor};

/// `off`: plans are not refused, and a destroyed drain resource always drains.
pub(crate) const PLAN_CHECK: &str = "GRIT_PLAN_CHECK";

/// The variable has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{PLAN_CHECK} is {0:?}; it must be `on`, `off` or unset")]
pub(crate) struct InvalidSwitch(String);

/// What one run has seen. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run(Arc<Mutex<Ledger>>);

impl Run {
    /// A new run starts: a process of `--debug` serves several. `variable` reads environment variables. Returns whether the check of plans is off.
    pub(crate) fn start(&self, variable: impl Fn(&str) -> Option<String>) -> Result<bool, InvalidSwitch> {
        let switch = variable(PLAN_CHECK).unwrap_or_default();
        let off = match switch.trim().to_ascii_lowercase().as_str() {
            "" | "on" => Ok(false),
            "off" => Ok(true),
            _ => Err(InvalidSwitch(switch)),
        };
        let assumed = Assumed::new(variable(assumed::VARIABLE));
        *self.ledger() = Ledger::new(off.clone().unwrap_or(false), assumed);
        off
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock()
    }

    /// The instances that the user has named as terminated.
    pub(crate) fn assumed(&self) -> Assumed {
        self.ledger().assumed.clone()
    }

    /// Adds what a call has shown. Returns what contradicts it.
    ///
    /// A refusal of [`Event::New`] is an error only in a plan (docs/adr/0002-order-of-operations.md): see [`Self::contradictions`]. Those of other
    /// events are errors in a plan and in an apply.
    pub(crate) fn record(&self, row: Row, walk: Walk) -> Vec<Refusal> {
        let mut ledger = self.ledger();
        let refusals = rules::refusals(&ledger, &row, walk);
        ledger.add(row);
        refusals
    }

    /// What contradicts the new drain resources: for a call that proves a plan. The plan of a drain resource alone can belong to an apply.
    pub(crate) fn contradictions(&self) -> Vec<Refusal> {
        rules::contradictions(&self.ledger())
    }

    /// Whether a stored drain resource of the instance ends.
    pub(crate) fn is_ending(&self, instance: &str) -> bool {
        self.ledger().of(&Event::is_ending).any(|row| row.is_of(instance))
    }

    /// The drain resource `id` was destroyed.
    pub(crate) fn destroyed(&self, id: &str) {
        self.ledger().remove(id);
    }

    /// The drain resource of the same instance, or at the same wrapper, that was created in this run.
    pub(crate) fn successor(&self, instance: &str, manager: &WrapperIdentity) -> Option<Successor> {
        rules::successor(&self.ledger(), instance, manager)
    }

    /// Whether this process has received the drain resource `id` from the state. A plan sends each one before the health check that refers to it; an
    /// apply sends it only to change it.
    pub(crate) fn is_stored(&self, id: &str) -> bool {
        self.ledger().of(&Event::is_stored).any(|row| row.object == id)
    }

    /// Whether this process has read the health check `id`.
    pub(crate) fn is_read(&self, id: &str) -> bool {
        self.ledger().of(&|event| matches!(event, Event::HealthRead)).any(|row| row.object == id)
    }

    /// What a health check needs to start the drain of the drain resource `id` before its destroy; `None` if the drain does not end, or if only its
    /// destroy can start it.
    pub(crate) fn early_drain(&self, id: &str) -> Option<Json> {
        self.ledger().early_drain(id)
    }

    /// Whether this run destroys a health check. Its drain resources are planned after it.
    pub(crate) fn ends_health_check(&self) -> bool {
        self.ledger().of(&|event| *event == Event::HealthEnding).next().is_some()
    }

    /// The runner managers whose drain resources this run has planned to destroy or replace.
    pub(crate) fn ending_managers(&self) -> Vec<String> {
        let ledger = self.ledger();
        let names: std::collections::BTreeSet<_> =
            ledger.of(&Event::is_ending).map(|row| row.name.clone()).collect();
        names.into_iter().collect()
    }

    /// Whether to report, once, that the wrapper of a runner manager has a TCP address.
    pub(crate) fn reports_unprotected(&self, wrapper: WrapperIdentity) -> bool {
        self.ledger().reports_unprotected(wrapper)
    }

    /// This process starts to drain a runner manager.
    pub(crate) fn drain_begins(&self) {
        self.ledger().has_drains = true;
    }

    /// Whether this process drains a runner manager, or has drained one.
    pub(crate) fn has_drains(&self) -> bool {
        self.ledger().has_drains
    }
}

#[cfg(test)]
mod tests;
