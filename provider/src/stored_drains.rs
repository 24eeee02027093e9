//! The drain resources in the state. The plan of a health check uses them to warn about a drain resource that was removed from the state.
//!
//! Terraform sends each stored drain resource to the provider before it plans the health check that refers to it. A drain resource in the
//! prior state of the health check that was not sent is not in the state any more.

use std::collections::BTreeSet;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub struct StoredDrains {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// A refresh ran: this process plans. A process that applies receives each drain resource only when Terraform destroys or updates it.
    plans: bool,
}

impl StoredDrains {
    /// A new run starts.
    pub fn reset(&self) {
        *self.seen.lock() = Seen::default();
    }

    /// The state contains this drain resource.
    pub fn stored(&self, id: &str) {
        self.seen.lock().ids.insert(id.to_owned());
    }

    pub fn refreshed(&self) {
        self.seen.lock().plans = true;
    }

    /// Whether this process has received the drain resource.
    pub fn is_stored(&self, id: &str) -> bool {
        self.seen.lock().ids.contains(id)
    }

    /// Whether this process plans, and the drain resource is not in the state.
    pub fn is_missing(&self, id: &str) -> bool {
        let seen = self.seen.lock();
        seen.plans && !seen.ids.contains(id)
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
