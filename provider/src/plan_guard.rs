//! Rejects plans that would drain a running runner by accident.
//!
//! With `-replace` of a drain resource, a taint, or a rename without a `moved` block, Terraform destroys a drain resource and creates
//! another one for the same instance. The destroy would shut down the runner of an instance that is kept. These sets, of this process and
//! without network, distinguish such a plan from a rollout, in which the old instance is destroyed as well:
//!
//! - `stored`: the drain resources in the state;
//! - `planned`: instances that get a new drain resource;
//! - `imported`: drain resources that an import adds to the state;
//! - `kept`: drain resources that are kept or updated in place;
//! - `ending`: drain resources that are destroyed or replaced;
//! - `created`: instances of the drain resources that this process has created.
//!
//! A plan is rejected if an instance whose drain resource is destroyed gets a new one or has another one that is kept, and if an instance
//! with a stored drain resource gets a second one, and if the address of an instance whose drain resource is destroyed belongs to another
//! one that is kept: the old instance is gone, and the drain would shut down the runner of the other one. Terraform plans objects in parallel, so the two halves of a conflict arrive in any
//! order: each call first adds to its set, then checks the others, under one lock. The second one is rejected.
//!
//! If the instance became known only during the apply, it is too late to reject: the destroy of a superseded drain resource then succeeds
//! without a drain if the new one has the same runner manager, and otherwise fails. That needs `create_before_destroy` on the drain resource. Limit: each provider configuration (alias) is a separate
//! process with its own sets.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use grit_plugin::Walk;
use tokio::time::sleep;

/// `off`: plans are not rejected, and a destroyed drain resource always drains.
pub(crate) const VARIABLE: &str = "GRIT_PLAN_GUARD";

/// The wait for the plan of an update.
const UPDATE_PAUSE: Duration = Duration::from_millis(50);
const UPDATE_LOOKS: u32 = 20;

/// The drain resources of one run, as far as this process knows them.
#[derive(Debug, Default)]
pub struct PlanGuard {
    sets: Mutex<Sets>,
}

/// The ids of drain resources by instance.
type Guards = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Sets {
    off: bool,
    stored: Guards,
    /// By instance, the objects that Terraform plans: it may plan an object again.
    planned: BTreeMap<String, BTreeSet<String>>,
    /// Conflicts of calls that may have been of an apply.
    reported: BTreeMap<String, Conflict>,
    imported: Guards,
    kept: Guards,
    ending: Guards,
    /// By the identity of the runner manager, the instances of `kept` and `ending`.
    kept_at: Guards,
    ending_at: Guards,
    /// By instance, the identity of the runner manager.
    created: BTreeMap<String, Option<String>>,
}

/// Why a plan is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// A drain resource is created for an instance that has one in the state.
    Superseded,
    /// A drain resource is destroyed, and another one of the same instance is kept.
    Shared,
    /// Two drain resources are created for one instance.
    Twice,
    /// A drain resource is destroyed, and one of another instance with the same address is kept.
    SameAddress,
}

/// A drain resource with the instance id or the address of one that is destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Successor {
    SameManager,
    /// At another address: of another instance, or of the same one after a restart.
    OtherManager,
    /// This other instance has the address now.
    OtherInstance(String),
}

/// The variable has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is {0:?}; it must be `on`, `off` or unset")]
pub struct InvalidSwitch(String);

impl PlanGuard {
    /// A new run starts.
    pub fn reset(&self, switch: Option<&str>) -> Result<bool, InvalidSwitch> {
        let off = match switch.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "on") => Ok(false),
            Some("off") => Ok(true),
            Some(_) => Err(InvalidSwitch(switch.unwrap_or_default().to_owned())),
        };
        *self.sets.lock() = Sets { off: off.clone().unwrap_or(false), ..Sets::default() };
        off
    }

    /// The state contains the drain resource `id` of this instance.
    pub fn stored(&self, instance: &str, id: &str) {
        insert(&mut self.sets.lock().stored, instance, id);
    }

    /// A new drain resource of this instance is planned. `object` identifies it in this plan.
    ///
    /// There is no conflict in an apply: its create must not fail. See [`Self::refuses_new`].
    pub fn plans_new(&self, instance: &str, object: &str, walk: Walk) -> Result<(), Conflict> {
        let mut sets = self.sets.lock();
        let planned = sets.planned.entry(instance.to_owned()).or_default();
        planned.insert(object.to_owned());
        let is_only = planned.len() == 1;
        if sets.off || walk == Walk::Apply {
            return Ok(());
        }
        let conflict = if sets.stored.contains_key(instance) {
            Conflict::Superseded
        } else if !is_only {
            Conflict::Twice
        } else {
            return Ok(());
        };
        sets.reported.insert(instance.to_owned(), conflict);
        Err(conflict)
    }

    /// Whether this conflict of a new drain resource is an error. What may be an apply has only a warning: the stored drain resource of an instance
    /// can be one that the apply updates. Its update is planned just after its state was sent; this waits for it for at most a second.
    pub async fn refuses_new(&self, instance: &str, conflict: Conflict, walk: Walk) -> bool {
        if walk != Walk::Unknown || conflict != Conflict::Superseded {
            return walk == Walk::Plan;
        }
        for _ in 0..UPDATE_LOOKS {
            let (is_kept, is_ending) = {
                let sets = self.sets.lock();
                (sets.kept.contains_key(instance), sets.ending.contains_key(instance))
            };
            // An apply destroys a drain resource at once.
            if is_ending {
                return true;
            }
            if is_kept {
                return false;
            }
            sleep(UPDATE_PAUSE).await;
        }
        // A taint, for example, in a plan without a refresh: an apply has deposed the stored one.
        true
    }

    /// The drain resource `id` of this instance is imported. It is kept after that.
    pub fn imports(&self, instance: &str, id: &str) -> Result<(), Conflict> {
        let mut sets = self.sets.lock();
        insert(&mut sets.imported, instance, id);
        if !sets.off && sets.stored.contains_key(instance) { Err(Conflict::Superseded) } else { Ok(()) }
    }

    /// The drain resource `id` of this instance is kept. `manager`: the identity of its planned runner manager.
    pub fn plans_kept(&self, instance: &str, id: &str, manager: Option<&str>) -> Result<(), Conflict> {
        let mut sets = self.sets.lock();
        insert(&mut sets.kept, instance, id);
        let same_address = manager.is_some_and(|manager| {
            insert(&mut sets.kept_at, manager, instance);
            has_other(&sets.ending_at, manager, instance)
        });
        if sets.off {
            Ok(())
        } else if has_other(&sets.ending, instance, id) {
            Err(Conflict::Shared)
        } else if sets.imported.contains_key(instance) && has_other(&sets.kept, instance, id)
            || sets.planned.contains_key(instance) && !sets.created.contains_key(instance)
        {
            Err(Conflict::Superseded)
        } else if same_address {
            Err(Conflict::SameAddress)
        } else {
            Ok(())
        }
    }

    /// The drain resource `id` of this instance is destroyed or replaced. `manager`: the identity of its runner manager in the state.
    pub fn plans_end(&self, instance: &str, id: &str, manager: Option<&str>) -> Result<(), Conflict> {
        let mut sets = self.sets.lock();
        insert(&mut sets.ending, instance, id);
        let same_address = manager.is_some_and(|manager| {
            insert(&mut sets.ending_at, manager, instance);
            has_other(&sets.kept_at, manager, instance)
        });
        if sets.off || sets.created.contains_key(instance) {
            Ok(())
        } else if sets.planned.contains_key(instance) {
            Err(Conflict::Superseded)
        } else if has_other(&sets.kept, instance, id) {
            Err(Conflict::Shared)
        } else if same_address {
            Err(Conflict::SameAddress)
        } else {
            Ok(())
        }
    }

    /// Conflicts of new drain resources, by instance, for which a warning was not enough if this is a plan.
    pub fn reported(&self) -> Vec<(String, Conflict)> {
        self.sets.lock().reported.iter().map(|(instance, conflict)| (instance.clone(), *conflict)).collect()
    }

    /// A drain resource of this instance was created. `manager`: the identity of its runner manager.
    pub fn created(&self, instance: &str, manager: Option<String>) {
        self.sets.lock().created.insert(instance.to_owned(), manager);
    }

    /// The drain resource `id` of this instance was destroyed.
    pub fn destroyed(&self, instance: &str, id: &str) {
        let mut sets = self.sets.lock();
        let Sets { stored, kept, ending, ending_at, .. } = &mut *sets;
        for instances in ending_at.values_mut() {
            instances.remove(instance);
        }
        for guards in [stored, kept, ending] {
            if let Some(ids) = guards.get_mut(instance) {
                ids.remove(id);
                if ids.is_empty() {
                    guards.remove(instance);
                }
            }
        }
    }

    /// The drain resource of the same instance, or at the same address, that was created in this run. `manager`: the identity of the runner
    /// manager in the state.
    pub fn successor(&self, instance: &str, manager: &str) -> Option<Successor> {
        let sets = self.sets.lock();
        if let Some(created) = sets.created.get(instance).filter(|_| !sets.off) {
            let is_same = created.as_deref() == Some(manager);
            return Some(if is_same { Successor::SameManager } else { Successor::OtherManager });
        }
        // Also with the check off: this connection would never reach the old instance.
        let mut others = sets.created.iter().filter(|(other, _)| *other != instance);
        let other = others.find(|(_, created)| created.as_deref() == Some(manager))?;
        Some(Successor::OtherInstance(other.0.clone()))
    }
}

fn insert(guards: &mut Guards, instance: &str, id: &str) {
    guards.entry(instance.to_owned()).or_default().insert(id.to_owned());
}

fn has_other(guards: &Guards, instance: &str, id: &str) -> bool {
    guards.get(instance).is_some_and(|ids| ids.iter().any(|other| other != id))
}

#[cfg(test)]
mod tests;
