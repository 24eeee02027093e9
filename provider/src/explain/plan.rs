//! Texts for the plan check that prevents drains by accident.

use super::diagnostic::{Code, Explained};
use crate::plan_guard::{Conflict, InvalidSwitch, VARIABLE};

/// Explains why a plan is refused, for what it does to the drain resources of `instance`.
pub(crate) fn conflict(instance: &str, conflict: Conflict) -> Explained {
    match conflict {
        Conflict::Superseded => Explained::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state already contains a grit_runner_drain for instance {instance:?}, and this plan creates another one for the same \
                 instance. Destroying the old one would shut down the runner although its instance is kept. Possible causes: `-replace` of \
                 the drain resource, a taint, a rename without a `moved` block, or an index of `count` that now belongs to another instance."
            ),
            format!(
                "After a rename (address, key, index or module): add a `moved` block from the old address to the new one. After a taint: \
                 run `terraform untaint`; before `terraform destroy`, untaint or use `-refresh=false`. `terraform destroy` plans the \
                 configuration first: run it with the values of the last apply. If two drain resources have the same instance: remove one, \
                 or correct its `instance_id`. To drain this runner on purpose, remove its drain resource together \
                 with its instance, or run once with {VARIABLE}=off."
            ),
        ),
        Conflict::Shared => Explained::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state contains two grit_runner_drain for instance {instance:?}. This plan destroys one of them, which would shut \
                 down the runner, and keeps the other one and the instance."
            ),
            format!(
                "Run `terraform state rm` on the wrong drain resource: this removes it from the state without a drain. If the resource is \
                 still in the configuration, correct its `instance_id`; the next apply creates it again. `terraform destroy` plans the \
                 configuration first: run it with the values of the last apply. To drain this runner on purpose, run once with \
                 {VARIABLE}=off."
            ),
        ),
        Conflict::SameAddress => Explained::new(
            Code::Refused,
            "Plan would drain the runner of another instance",
            format!(
                "This plan destroys the grit_runner_drain of one instance, and keeps that of another instance with the same address; one of the \
                 two is {instance:?}. The destroy would shut down the runner of the instance that is kept."
            ),
            format!(
                "If the instance of the destroyed drain resource does not exist any more: run `terraform state rm` on this drain resource, which \
                 drains nothing. If both instances exist, correct the addresses. To drain this runner on purpose, run once with {VARIABLE}=off."
            ),
        ),
        Conflict::Twice => Explained::new(
            Code::Refused,
            "Two drain resources for one instance",
            format!(
                "This plan creates two grit_runner_drain for instance {instance:?}. Destroying either one would shut down the runner of \
                 the other one."
            ),
            "Remove one, or set `instance_id` of each to a different instance.",
        ),
    }
}

/// Warns that the check is disabled.
pub(crate) fn check_disabled() -> Explained {
    Explained::new(
        Code::Notice,
        "Check for accidental drains is disabled",
        format!(
            "{VARIABLE}=off: this run does not refuse plans that would drain a runner whose instance is kept."
        ),
        format!("Unset {VARIABLE} before the next run."),
    )
}

pub(crate) fn invalid_switch(invalid: &InvalidSwitch) -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Environment variable has an invalid value",
        format!("{invalid}."),
        format!("Unset {VARIABLE}. `off` allows plans that would drain a runner whose instance is kept."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::diagnostic::tests::all;

    #[test]
    fn plan_refusals_match_snapshot() {
        insta::assert_snapshot!(all(vec![
            conflict("i-0123", Conflict::Superseded),
            conflict("i-0123", Conflict::Shared),
            conflict("i-0123", Conflict::Twice),
            conflict("i-0123", Conflict::SameAddress),
        ]));
    }
}
