//! Refuses plans that would drain a live runner by accident.
//!
//! `-replace` of a drain, a taint, or a rename without a `moved` block make Terraform destroy a guard and create another one for the
//! same instance. The destroy would shut down the runner of an instance that stays. Three sets, all of this process alone and
//! without network, tell such a plan from a roll, where the old guard's instance goes too:
//!
//! - `stored`: instances of the guards that Terraform holds in its state;
//! - `planned`: instances of the guards that Terraform plans to create;
//! - `created`: instances of the guards that this process has created.
//!
//! A new guard for a stored instance is refused, and so is the destroy of a guard whose instance gets a new one. Where the instance
//! only became known during the apply, it is too late to refuse: the destroy of the superseded guard then succeeds without a drain.
//!
//! Prototyped and measured before it was written (every case of the tests in `plan_guard` of the promises). Limits: each alias of
//! the provider is a process of its own, and the last rule needs `create_before_destroy` on the drain.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Set to `off`: plans are not refused, and a destroyed guard always drains.
pub const VARIABLE: &str = "GRIT_PLAN_GUARD";

/// What this process knows of guarded instances.
#[derive(Debug, Default)]
pub struct PlanGuard {
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    stored: BTreeSet<String>,
    planned: BTreeSet<String>,
    created: BTreeSet<String>,
}

impl PlanGuard {
    /// Forgets everything: a new run begins.
    pub fn reset(&self) {
        *self.lock() = Sets::default();
    }

    /// The state holds a guard for this instance.
    pub fn stored(&self, instance: &str) {
        self.lock().stored.insert(instance.to_owned());
    }

    /// A guard for this instance is about to be planned. False: it would supersede a stored one.
    #[must_use]
    pub fn may_create(&self, instance: &str) -> bool {
        let mut sets = self.lock();
        sets.planned.insert(instance.to_owned());
        switched_off() || !sets.stored.contains(instance)
    }

    /// The destroy of this instance's guard is about to be planned. False: another guard for it is planned too.
    #[must_use]
    pub fn may_destroy(&self, instance: &str) -> bool {
        let sets = self.lock();
        switched_off() || !sets.planned.contains(instance) || sets.created.contains(instance)
    }

    /// A guard for this instance was created.
    pub fn created(&self, instance: &str) {
        self.lock().created.insert(instance.to_owned());
    }

    /// Whether the guard that is being destroyed has a successor for the same instance.
    pub fn is_superseded(&self, instance: &str) -> bool {
        !switched_off() && self.lock().created.contains(instance)
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn switched_off() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_passes() {
        let guard = PlanGuard::default();
        guard.stored("i-1");
        assert!(guard.may_create("i-2"));
        assert!(guard.may_destroy("i-1"));
        guard.created("i-2");
        assert!(!guard.is_superseded("i-1"));
    }

    #[test]
    fn a_second_guard_for_a_guarded_instance_is_refused_whichever_is_planned_first() {
        let guard = PlanGuard::default();
        guard.stored("i-1");
        assert!(!guard.may_create("i-1"));

        let other_order = PlanGuard::default();
        assert!(other_order.may_create("i-1"));
        assert!(!other_order.may_destroy("i-1"));
    }

    #[test]
    fn an_instance_that_only_the_apply_made_known_is_not_drained() {
        let guard = PlanGuard::default();
        guard.created("i-1");
        assert!(guard.may_destroy("i-1"));
        assert!(guard.is_superseded("i-1"));
        guard.reset();
        assert!(!guard.is_superseded("i-1"));
    }
}
