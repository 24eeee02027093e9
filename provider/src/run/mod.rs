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

use std::{sync::Arc, time::Duration};

use grit_plugin::Walk;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value as Json;
use tokio::time::sleep;

use crate::manager::WrapperIdentity;
use assumed::Assumed;
use ledger::Ledger;
pub(crate) use ledger::{Event, Row};
pub(crate) use refusal::{Conflict, Keeper, Refusal, SharedBy, Successor};

/// `off`: plans are not refused, and a destroyed drain resource always drains.
pub(crate) const PLAN_GUARD: &str = "GRIT_PLAN_GUARD";

/// The wait for the plan of an update.
const UPDATE_PAUSE: Duration = Duration::from_millis(50);
const UPDATE_LOOKS: u32 = 20;

/// The variable has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{PLAN_GUARD} is {0:?}; it must be `on`, `off` or unset")]
pub(crate) struct InvalidSwitch(String);

/// What one run has seen. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run(Arc<Mutex<Ledger>>);

impl Run {
    /// A new run starts: a process of `--debug` serves several. `variable` reads environment variables. Returns whether the check of plans is off.
    pub(crate) fn start(&self, variable: impl Fn(&str) -> Option<String>) -> Result<bool, InvalidSwitch> {
        let switch = variable(PLAN_GUARD).unwrap_or_default();
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
    /// A refusal of [`Event::New`] is an error only if [`Self::is_refused`] says so. Those of other events are errors in a plan and in an apply.
    pub(crate) fn record(&self, row: Row, walk: Walk) -> Vec<Refusal> {
        let mut ledger = self.ledger();
        let refusals = rules::refusals(&ledger, &row, walk);
        ledger.add(row);
        refusals
    }

    /// Whether a refusal of a new drain resource is an error, which must not happen in an apply (docs/adr/0002-order-of-operations.md). Otherwise
    /// the call warns, and a later call that proves a plan reports it: see [`Self::take_undecided`].
    ///
    /// In what may be an apply, a stored drain resource of the same instance can be one that the apply updates. Its update is planned just after
    /// its state was sent; this waits for it for at most a second.
    pub(crate) async fn is_refused(&self, refusal: &Refusal, walk: Walk) -> bool {
        let refused = match (walk, refusal) {
            (Walk::Plan, _) => return true,
            (Walk::Unknown, Refusal::Conflict { instance, conflict: Conflict::Superseded }) => {
                self.is_no_update(instance).await
            }
            (Walk::Unknown | Walk::Apply, _) => false,
        };
        let undecided = &mut self.ledger().undecided;
        if !undecided.contains(refusal) {
            undecided.push(refusal.clone());
        }
        refused
    }

    async fn is_no_update(&self, instance: &str) -> bool {
        for _ in 0..UPDATE_LOOKS {
            {
                let ledger = self.ledger();
                // An apply destroys a drain resource at once.
                if ledger.of(&Event::is_ending).any(|row| row.is_of(instance)) {
                    return true;
                }
                if ledger.of(&Event::is_kept).any(|row| row.is_of(instance)) {
                    return false;
                }
            }
            sleep(UPDATE_PAUSE).await;
        }
        // A taint, for example, in a plan without a refresh: an apply has deposed the stored one.
        true
    }

    /// The refusals of new drain resources that were warnings, once: for a call that only a plan makes, which reports them as errors.
    pub(crate) fn take_undecided(&self) -> Vec<Refusal> {
        std::mem::take(&mut self.ledger().undecided)
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
