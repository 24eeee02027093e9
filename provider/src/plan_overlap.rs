//! Refuses a plan in which a `grit_runner_shutdown` would shut down a runner manager that the same configuration keeps.
//!
//! A shutdown resource retires the managers of *another* deployment version. A wrong variable or a wrong state path can put the managers
//! of this version into its map. The sets of this process, without network, show that:
//!
//! - `kept`: managers that a `grit_runner_drain` keeps or creates, and managers of a `grit_runner_health`;
//! - `retired`: managers of a `grit_runner_shutdown`.
//!
//! Terraform plans objects in parallel, so the two resources arrive in any order: each call first adds to its set, then compares with the
//! other set, under one lock. The second one is refused. A shutdown compares once more before its first request, for values that became
//! known only in the apply: with the resources that the apply creates or changes, because Terraform passes no others.
//!
//! Two entries are the same manager if host and wrapper address are equal (two instances at one address cannot be distinguished
//! over the network), or instance id and wrapper address. Limit: each provider configuration (alias) is a separate process, with separate
//! sets.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// What this process has planned.
#[derive(Debug, Default)]
pub struct PlanOverlap(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    kept: BTreeMap<String, KeptBy>,
    retired: BTreeSet<String>,
    is_plan: bool,
    /// A drain that keeps a retired manager, in what may be an apply.
    reported: Option<String>,
}

/// The resource that keeps a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptBy {
    Drain,
    Health,
}

impl PlanOverlap {
    /// Removes everything: a new run begins.
    pub fn reset(&self) {
        *self.0.lock() = Sets::default();
    }

    /// A resource keeps the manager with these identities. True: a shutdown resource retires it.
    pub fn keeps(&self, identities: &[String], by: KeptBy) -> bool {
        let mut sets = self.0.lock();
        for identity in identities {
            // A drain resource is the more precise cause.
            let known = sets.kept.entry(identity.clone()).or_insert(by);
            *known = (*known).min(by);
        }
        identities.iter().any(|identity| sets.retired.contains(identity))
    }

    /// Whether this is a plan, in which the drain `name` may be refused. If that is not known yet, [`Self::saw_plan`] returns it.
    pub fn is_plan(&self, name: &str) -> bool {
        let mut sets = self.0.lock();
        if !sets.is_plan {
            sets.reported = Some(name.to_owned());
        }
        sets.is_plan
    }

    /// A call that only a plan makes. Returns the drain that was not refused before.
    pub fn saw_plan(&self) -> Option<String> {
        let mut sets = self.0.lock();
        sets.is_plan = true;
        sets.reported.take()
    }

    /// A shutdown resource retires the manager with these identities. Returns the resource that keeps it.
    pub fn retires(&self, identities: &[String]) -> Option<KeptBy> {
        let mut sets = self.0.lock();
        sets.retired.extend(identities.iter().cloned());
        identities.iter().filter_map(|identity| sets.kept.get(identity).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_is_refused_before_or_after_plan_is_known() {
        let overlap = PlanOverlap::default();
        assert!(!overlap.is_plan("m1"));
        assert_eq!(overlap.saw_plan().as_deref(), Some("m1"));
        assert_eq!(overlap.saw_plan(), None);
        assert!(overlap.is_plan("m1"));
        overlap.reset();
        assert!(!overlap.is_plan("m1"));
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn overlap_is_found_in_both_orders() {
        for by in [KeptBy::Drain, KeptBy::Health] {
            let overlap = PlanOverlap::default();
            assert!(!overlap.keeps(&ids(&["a", "i-1 w"]), by));
            assert_eq!(overlap.retires(&ids(&["b", "i-1 w"])), Some(by));

            let overlap = PlanOverlap::default();
            assert_eq!(overlap.retires(&ids(&["a"])), None);
            assert!(overlap.keeps(&ids(&["a", "i-1 w"]), by));
        }
    }

    #[test]
    fn other_managers_and_unknown_identities_do_not_overlap() {
        let overlap = PlanOverlap::default();
        assert_eq!(overlap.retires(&ids(&["a", "i-1 w"])), None);
        assert_eq!(overlap.retires(&[]), None);
        assert!(!overlap.keeps(&ids(&["b", "i-2 w"]), KeptBy::Drain));
        assert!(!overlap.keeps(&[], KeptBy::Health));
        overlap.reset();
        assert!(!overlap.keeps(&ids(&["a"]), KeptBy::Drain));
    }

    #[test]
    fn drain_resource_is_named_before_health_check() {
        for order in [[KeptBy::Drain, KeptBy::Health], [KeptBy::Health, KeptBy::Drain]] {
            let overlap = PlanOverlap::default();
            for by in order {
                overlap.keeps(&ids(&["a"]), by);
            }
            assert_eq!(overlap.retires(&ids(&["a"])), Some(KeptBy::Drain));
        }
    }
}
