//! Finds drain resources of different instances that have one runner manager.
//!
//! The exit of one runner would be the evidence for both, and Terraform could destroy the instance of a runner that was not asked to exit. The
//! usual cause is a wrong key or index in the configuration. These sets, of this process and without network, show it:
//!
//! - `kept`: drain resources that a plan keeps or creates;
//! - `ending`: drain resources that a plan destroys or replaces;
//! - `drained`: drain resources whose destroy has started.
//!
//! Two drain resources in one set are refused, and the second one names both. One that ends and one that is kept or created at its address is
//! the case of a reused address, of which [`plan_guard`](crate::plan_guard) has the rules.
//!
//! Managers are compared by what a connection reaches, with the user. Unknown values are not compared.

use std::collections::BTreeMap;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub struct SharedRunners(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    off: bool,
    kept: Instances,
    ending: Instances,
    drained: Instances,
    reported: Vec<SharedBy>,
}

/// The first instance at each wrapper.
type Instances = BTreeMap<String, String>;

/// Two instances whose drain resources have one runner manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBy {
    pub instance: String,
    pub other: String,
}

impl SharedRunners {
    /// A new run starts. `off`: nothing is refused.
    pub fn reset(&self, off: bool) {
        *self.0.lock() = Sets { off, ..Sets::default() };
    }

    /// A plan keeps or creates the drain resource of this instance.
    pub fn keeps(&self, wrapper: &str, instance: &str) -> Result<(), SharedBy> {
        self.add(|sets| &mut sets.kept, wrapper, instance)
    }

    /// A plan destroys or replaces the drain resource of this instance.
    pub fn ends(&self, wrapper: &str, instance: &str) -> Result<(), SharedBy> {
        self.add(|sets| &mut sets.ending, wrapper, instance)
    }

    /// The destroy of the drain resource of this instance starts.
    ///
    /// Also the failed drain of another instance counts: its runner may exit later.
    pub fn drains(&self, wrapper: &str, instance: &str) -> Result<(), SharedBy> {
        self.add(|sets| &mut sets.drained, wrapper, instance)
    }

    /// Two drain resources were only reported, because the call may have been of an apply. A health check refuses them if this is a plan.
    pub fn report(&self, shared: SharedBy) {
        self.0.lock().reported.push(shared);
    }

    pub fn reported(&self) -> Vec<SharedBy> {
        self.0.lock().reported.clone()
    }

    fn add(
        &self,
        of: impl Fn(&mut Sets) -> &mut Instances,
        wrapper: &str,
        instance: &str,
    ) -> Result<(), SharedBy> {
        let mut sets = self.0.lock();
        let first = of(&mut sets).entry(wrapper.to_owned()).or_insert_with(|| instance.to_owned()).clone();
        if sets.off || first == instance {
            return Ok(());
        }
        Err(SharedBy { instance: instance.to_owned(), other: first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(instance: &str, other: &str) -> Result<(), SharedBy> {
        Err(SharedBy { instance: instance.to_owned(), other: other.to_owned() })
    }

    #[test]
    fn second_instance_of_one_runner_is_refused_in_each_set() {
        for add in [SharedRunners::keeps, SharedRunners::ends, SharedRunners::drains] {
            let runners = SharedRunners::default();
            assert_eq!(add(&runners, "h w", "i-1"), Ok(()));
            assert_eq!(add(&runners, "h w", "i-1"), Ok(()), "one instance, planned twice");
            assert_eq!(add(&runners, "h2 w", "i-2"), Ok(()));
            assert_eq!(add(&runners, "h w", "i-2"), shared("i-2", "i-1"));
            runners.reset(false);
            assert_eq!(add(&runners, "h w", "i-2"), Ok(()));
        }
    }

    #[test]
    fn replacement_at_a_fixed_address_passes() {
        let runners = SharedRunners::default();
        assert_eq!(runners.ends("h w", "i-1"), Ok(()));
        assert_eq!(runners.keeps("h w", "i-2"), Ok(()));
        assert_eq!(runners.drains("h w", "i-1"), Ok(()));
    }

    #[test]
    fn nothing_is_refused_while_the_check_is_off() {
        let runners = SharedRunners::default();
        runners.reset(true);
        for instance in ["i-1", "i-2"] {
            assert_eq!(runners.keeps("h w", instance), Ok(()));
            assert_eq!(runners.ends("h w", instance), Ok(()));
            assert_eq!(runners.drains("h w", instance), Ok(()));
        }
    }
}
