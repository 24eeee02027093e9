//! The drain resources that this plan destroys or replaces, for the health checks that start their drains (`start_drains`).
//!
//! Terraform plans a health check after all drain resources that it refers to, and reads it after that, too. So a health check knows in its
//! plan which drains the run will end. The apply, which is often another process, gets this with the private data of the health check.
//!
//! The entry of a drain resource is the part of its first request that the health check does not have, without secrets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use parking_lot::Mutex;

/// Terraform's default of `-parallelism`.
pub(crate) const PARALLELISM: usize = 10;

#[derive(Debug, Default)]
pub struct EndingDrains(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// By the id of the drain resource; `None` if only its destroy can start the drain.
    ending: BTreeMap<String, Option<Json>>,
    /// The ids of the health checks that this process has read.
    refreshed: BTreeSet<String>,
    /// A health check is destroyed: its drains cannot be started early.
    health_ends: bool,
    /// Drains that end and are started by their destroys alone.
    alone: usize,
}

impl EndingDrains {
    /// A new run starts.
    pub fn reset(&self) {
        *self.0.lock() = Seen::default();
    }

    /// The plan destroys or replaces this drain resource. True: it is the first one for which Terraform has no free operation, and no health check
    /// can start it.
    pub fn ends(&self, id: &str, request: Option<Json>) -> bool {
        let mut seen = self.0.lock();
        let is_new = seen.ending.insert(id.to_owned(), request).is_none();
        is_new && seen.health_ends && seen.ending.len() == PARALLELISM + 1
    }

    /// The plan destroys a health check.
    pub fn health_check_ends(&self) {
        self.0.lock().health_ends = true;
    }

    /// A health check was read.
    pub fn refreshed(&self, health_check: &str) {
        self.0.lock().refreshed.insert(health_check.to_owned());
    }

    /// Whether this process has read the health check.
    pub fn is_refreshed(&self, health_check: &str) -> bool {
        self.0.lock().refreshed.contains(health_check)
    }

    pub fn is_ending(&self, id: &str) -> bool {
        self.0.lock().ending.contains_key(id)
    }

    /// The entry of this drain resource, if it ends and its drain can be started early.
    pub fn request(&self, id: &str) -> Option<Json> {
        self.0.lock().ending.get(id).cloned().flatten()
    }

    /// Of a health check, this number of drains end that it does not start. True: with those of other health checks, Terraform has no free operation
    /// for one of these, and this was not so before.
    pub fn are_alone(&self, drains: usize) -> bool {
        let mut seen = self.0.lock();
        let before = seen.alone;
        seen.alone += drains;
        before <= PARALLELISM && seen.alone > PARALLELISM
    }
}

/// Whether the environment sets `-parallelism` for the commands that apply.
pub(crate) fn parallelism_is_set() -> bool {
    let names = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_ARGS_apply", "TF_CLI_ARGS_destroy"];
    names.iter().any(|name| std::env::var(name).is_ok_and(|arguments| arguments.contains("-parallelism")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eleventh_drain_is_reported_once() {
        let drains = EndingDrains::default();
        for health_ends in [false, true] {
            drains.reset();
            if health_ends {
                drains.health_check_ends();
            }
            let reported: Vec<_> = (0..30).filter(|n| drains.ends(&format!("d{}", n / 2), None)).collect();
            assert_eq!(reported, if health_ends { vec![20] } else { vec![] }, "each is planned twice");
        }
        drains.reset();
        assert_eq!([10, 0, 1, 20].map(|count| drains.are_alone(count)), [false, false, true, false]);
    }
}
