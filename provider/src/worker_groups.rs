//! Finds runner managers that use the same autoscaling group, in the maps of all health checks of this process.
//!
//! A runner manager removes instances that it did not create, so two managers must not have one group. The groups are known only from the
//! reports of the wrappers: each health check adds them after its wait, and after its refresh. The second health check with a group finds
//! the conflict. Limits: a health check that an apply does not change is known only to the refresh, and each provider configuration (alias)
//! is a separate process.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// The autoscaling groups of the runner managers that this process has read.
#[derive(Debug, Default)]
pub struct WorkerGroups(Mutex<BTreeMap<String, Managers>>);

/// The keys of runner managers by their identity (host and wrapper address): a manager can be in several maps.
type Managers = BTreeMap<String, BTreeSet<String>>;

/// A runner manager with a group.
#[derive(Debug)]
pub struct GroupMember {
    pub group: String,
    pub identity: String,
    pub key: String,
}

impl WorkerGroups {
    /// Removes everything: a new run begins.
    pub fn reset(&self) {
        self.0.lock().clear();
    }

    /// Adds the runner managers of one health check. Returns each of their groups that several managers use, with the keys of those.
    pub fn add(&self, members: Vec<GroupMember>) -> BTreeMap<String, Vec<String>> {
        let mut groups = self.0.lock();
        let mut added = BTreeSet::new();
        for GroupMember { group, identity, key } in members {
            groups.entry(group.clone()).or_default().entry(identity).or_default().insert(key);
            added.insert(group);
        }
        let shared = added.into_iter().filter_map(|group| {
            let managers = groups.get(&group).filter(|managers| managers.len() > 1)?;
            let keys: BTreeSet<_> = managers.values().flatten().cloned().collect();
            Some((group, keys.into_iter().collect()))
        });
        shared.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(group: &str, identity: &str, key: &str) -> GroupMember {
        GroupMember { group: group.to_owned(), identity: identity.to_owned(), key: key.to_owned() }
    }

    #[test]
    fn group_of_two_managers_is_found_across_health_checks() {
        let groups = WorkerGroups::default();
        assert!(groups.add(vec![member("g", "h1 w", "a"), member("other", "h2 w", "b")]).is_empty());
        let found = groups.add(vec![member("g", "h3 w", "c")]);
        assert_eq!(found, BTreeMap::from([("g".to_owned(), vec!["a".to_owned(), "c".to_owned()])]));
        groups.reset();
        assert!(groups.add(vec![member("g", "h3 w", "c")]).is_empty());
    }

    #[test]
    fn group_of_one_manager_in_two_maps_is_not_shared() {
        let groups = WorkerGroups::default();
        assert!(groups.add(vec![member("g", "h1 w", "canary")]).is_empty());
        assert!(groups.add(vec![member("g", "h1 w", "a")]).is_empty());
    }
}
