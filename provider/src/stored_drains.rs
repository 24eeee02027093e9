//! Which guards the state holds, so that the plan of a health gate can warn of one that was taken out of the state.
//!
//! Terraform shows each stored guard to the provider before it plans the gate that refers to the guards. A guard that the gate refers to
//! by its prior state, and that was not shown, is not in the state any more: it was drained, or somebody took it out.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What this process was shown.
#[derive(Debug, Default)]
pub struct StoredDrains {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// A refresh ran: the process plans. One that applies is shown a guard only when the guard's turn has come.
    plans: bool,
}

impl StoredDrains {
    /// Forgets everything: a new run begins.
    pub fn reset(&self) {
        *self.lock() = Seen::default();
    }

    /// The state holds this guard.
    pub fn stored(&self, id: &str) {
        self.lock().ids.insert(id.to_owned());
    }

    /// A refresh runs in this process.
    pub fn refreshed(&self) {
        self.lock().plans = true;
    }

    /// Whether this process plans, and was not shown this guard.
    pub fn is_missing(&self, id: &str) -> bool {
        let seen = self.lock();
        seen.plans && !seen.ids.contains(id)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_is_missing_only_after_refresh() {
        let guards = StoredDrains::default();
        guards.stored("m1@h#1");
        assert!(!guards.is_missing("m2@h#2"));
        guards.refreshed();
        assert!(guards.is_missing("m2@h#2"));
        assert!(!guards.is_missing("m1@h#1"));
        guards.reset();
        assert!(!guards.is_missing("m2@h#2"));
    }
}
