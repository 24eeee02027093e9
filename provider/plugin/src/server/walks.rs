//! Whether this process serves a plan or an apply, as far as the calls prove it.
//!
//! Terraform plans a new object twice: in the plan, and in the apply, when unknown values have become known. An error in the second one is
//! dangerous for a resource whose existence keeps an order (see `grit_runner_drain`), so such a resource must know which one it is. The two
//! requests are equal, and a saved plan is applied in another process, often on another machine, so this process cannot remember it. The
//! calls around them differ:
//!
//! | what is seen                                              | what it proves                                                       |
//! |-----------------------------------------------------------|----------------------------------------------------------------------|
//! | a validation before the provider was configured           | nothing is applied: an apply configures every provider first         |
//! | an unknown value in a configuration                       | a plan: in an apply everything that a resource refers to is applied  |
//! | a read of a managed resource                              | a plan: only a plan refreshes                                        |
//! | a plan without a prior state, but with prior private data | a plan: the second half of a replacement; an apply has deposed or destroyed the prior object |
//! | a plan without the private data of a plan, of a core that stores it (protocol 6.11) | a plan                                     |
//! | a plan with the private data of a plan, as the first evidence                       | an apply                                   |
//! | a create, update or destroy                               | an apply                                                             |
//!
//! Otherwise it is unknown, and treated as an apply. The end-to-end tests `drain_validation` check this with Terraform, with and without a saved
//! plan.

use parking_lot::Mutex;

use crate::server::call::Walk;

/// The evidence since Terraform configured the provider.
#[derive(Debug, Default)]
pub(super) struct Walks(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    configured: bool,
    walk: Walk,
}

impl Walks {
    /// Terraform configures the provider: a plan or an apply starts. `unknown`: the provider block contains an unknown value.
    pub(super) fn configured(&self, unknown: bool) {
        let walk = if unknown { Walk::Plan } else { Walk::Unknown };
        *self.0.lock() = Seen { configured: true, walk };
    }

    /// A call that only a plan makes. It does not change a proven apply: an error there could destroy an instance before its drain, and in a plan a
    /// warning in place of an error changes nothing.
    pub(super) fn saw_plan(&self) {
        let mut seen = self.0.lock();
        if seen.walk != Walk::Apply {
            seen.walk = Walk::Plan;
        }
    }

    /// A plan of an object that was planned before: in an apply, or again in one plan, of which the first call has proved that it is one.
    pub(super) fn saw_second_plan(&self) {
        let mut seen = self.0.lock();
        if seen.walk == Walk::Unknown {
            seen.walk = Walk::Apply;
        }
    }

    /// A call that only an apply makes.
    pub(super) fn saw_apply(&self) {
        self.0.lock().walk = Walk::Apply;
    }

    pub(super) fn now(&self) -> Walk {
        let seen = self.0.lock();
        if seen.configured { seen.walk } else { Walk::Plan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_is_plan_before_configure() {
        assert_eq!(Walks::default().now(), Walk::Plan);
    }

    #[test]
    fn walk_is_open_until_plan_or_apply_is_seen() {
        let walks = Walks::default();
        walks.configured(false);
        assert_eq!(walks.now(), Walk::Unknown);
        walks.saw_plan();
        assert_eq!(walks.now(), Walk::Plan);
        // The next walk, in a process that stays for several (`--debug`).
        walks.configured(false);
        assert_eq!(walks.now(), Walk::Unknown);
        walks.saw_apply();
        assert_eq!(walks.now(), Walk::Apply);
        walks.saw_plan();
        assert_eq!(walks.now(), Walk::Apply, "until the next configure");
        walks.configured(true);
        walks.saw_second_plan();
        assert_eq!(walks.now(), Walk::Plan);
        walks.configured(false);
        walks.saw_second_plan();
        assert_eq!(walks.now(), Walk::Apply);
    }
}
