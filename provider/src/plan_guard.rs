//! Refuses plans that would drain a live runner by accident.
//!
//! `-replace` of a drain, a taint, or a rename without a `moved` block make Terraform destroy a guard and create another one for the
//! same instance. The destroy would shut down the runner of an instance that stays. These sets, all of this process alone and without
//! network, tell such a plan from a roll, where the old guard's instance goes too:
//!
//! - `stored`: the guards that Terraform holds in its state;
//! - `planned`: instances that get a new guard;
//! - `kept`: guards that stay as they are or are updated in place;
//! - `ending`: guards that are destroyed or replaced;
//! - `created`: instances of the guards that this process has created.
//!
//! A plan is refused when an instance whose guard ends gets a new guard or has another one that stays, and when an instance whose guard is
//! stored gets a second one. Terraform plans objects side by side, so the two halves of a conflict arrive in any order: each call first
//! adds to its set, then looks at the others, under one lock. Whichever comes second is refused.
//!
//! Where the instance only became known during the apply, it is too late to refuse: the destroy of a superseded guard then succeeds
//! without a drain. That needs `create_before_destroy` on the drain. Limit: each provider configuration (alias) is a process of its own,
//! and sees its own guards only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::call::Walk;

/// Set to `off`: plans are not refused, and a destroyed guard always drains.
pub(crate) const VARIABLE: &str = "GRIT_PLAN_GUARD";

/// What this process has seen of the guards of one run.
#[derive(Debug, Default)]
pub struct PlanGuard {
    sets: Mutex<Sets>,
}

/// Guards by their instance.
type Guards = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Sets {
    off: bool,
    stored: Guards,
    planned: BTreeSet<String>,
    twice: BTreeSet<String>,
    kept: Guards,
    ending: Guards,
    created: BTreeSet<String>,
}

/// What is wrong with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// A guard is created for an instance whose guard is in the state.
    Superseded,
    /// A guard is destroyed, and another one of the same instance stays.
    Shared,
    /// Two guards are created for one instance.
    Twice,
}

/// The variable has a value that means nothing.
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
        *self.lock() = Sets { off: off.clone().unwrap_or(false), ..Sets::default() };
        off
    }

    /// The state holds the guard `id` of this instance.
    pub fn stored(&self, instance: &str, id: &str) {
        insert(&mut self.lock().stored, instance, id);
    }

    /// A new guard of this instance is planned.
    ///
    /// In an apply it is never refused: its create must not fail.
    pub fn plans_new(&self, instance: &str, walk: Walk) -> Result<(), Conflict> {
        let mut sets = self.lock();
        let first = sets.planned.insert(instance.to_owned());
        if sets.off || walk == Walk::Apply {
            return Ok(());
        }
        if sets.stored.contains_key(instance) {
            return Err(Conflict::Superseded);
        }
        if !first {
            sets.twice.insert(instance.to_owned());
            return Err(Conflict::Twice);
        }
        Ok(())
    }

    /// The guard `id` of this instance stays.
    pub fn plans_kept(&self, instance: &str, id: &str) -> Result<(), Conflict> {
        let mut sets = self.lock();
        insert(&mut sets.kept, instance, id);
        if !sets.off && has_other(&sets.ending, instance, id) { Err(Conflict::Shared) } else { Ok(()) }
    }

    /// The guard `id` of this instance is destroyed or replaced.
    pub fn plans_end(&self, instance: &str, id: &str) -> Result<(), Conflict> {
        let mut sets = self.lock();
        insert(&mut sets.ending, instance, id);
        if sets.off || sets.created.contains(instance) {
            Ok(())
        } else if sets.planned.contains(instance) {
            Err(Conflict::Superseded)
        } else if has_other(&sets.kept, instance, id) {
            Err(Conflict::Shared)
        } else {
            Ok(())
        }
    }

    /// Instances that get two new guards by this plan.
    pub fn planned_twice(&self) -> Vec<String> {
        let sets = self.lock();
        if sets.off { Vec::new() } else { sets.twice.iter().cloned().collect() }
    }

    /// A guard of this instance was created.
    pub fn created(&self, instance: &str) {
        self.lock().created.insert(instance.to_owned());
    }

    /// The guard `id` of this instance was destroyed.
    pub fn destroyed(&self, instance: &str, id: &str) {
        let mut sets = self.lock();
        let Sets { stored, kept, ending, .. } = &mut *sets;
        for guards in [stored, kept, ending] {
            if let Some(ids) = guards.get_mut(instance) {
                ids.remove(id);
            }
        }
        sets.stored.retain(|_, ids| !ids.is_empty());
    }

    /// Whether the guard that is being destroyed has a successor for the same instance.
    pub fn is_superseded(&self, instance: &str) -> bool {
        let sets = self.lock();
        !sets.off && sets.created.contains(instance)
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
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
