//! Texts for the plan check that prevents drains by accident.

use grit_plugin::{Problem, schema::AttributePath};

use super::{code::Code, shutdown};
use crate::run::{Conflict, InvalidSwitch, PLAN_CHECK, Refusal, SharedBy, assumed};

/// Explains why a plan is refused.
pub(crate) fn refused(refusal: &Refusal) -> Problem {
    let (explained, attribute) = match refusal {
        Refusal::Conflict { instance, conflict } => (self::conflict(instance, *conflict), "instance_id"),
        Refusal::SharedRunner(shared) => (shared_runner(shared), "runner_manager"),
        Refusal::Kept { name, by } => (shutdown::manager_is_kept(name, *by), "runner_manager"),
    };
    explained.at(AttributePath::new(attribute))
}

/// Explains that a drain resource without an instance may belong to one that this plan destroys.
pub(crate) fn instance_not_known() -> Problem {
    Problem::new(
        Code::Refused,
        "Instance of the drain resource is not known yet",
        "This grit_runner_drain has no `instance_id` in the state. `instance_id` in the configuration becomes known only in the apply, \
         so this plan may replace the instance. The old instance would be destroyed without a drain of its runner.",
        "Set `instance_id` to a value that is known at plan time, and apply without changes to the instance. If the old instance no \
         longer exists, remove the drain resource from the state with `terraform state rm` (this does not drain a runner), and apply again.",
    )
}

/// What to do if `terraform destroy` is refused.
const DESTROY: &str =
    "`terraform destroy` first makes a normal plan: use the variable values of the last apply.";

/// What a plan does to the drain resources of `instance`.
fn conflict(instance: &str, conflict: Conflict) -> Problem {
    match conflict {
        Conflict::Superseded => Problem::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state already contains a grit_runner_drain for instance {instance:?}, and this plan creates another drain resource \
                 for the same instance. Destroying the old drain resource would shut down the runner although its instance is kept."
            ),
            format!(
                "Find the cause, and correct it:\n\
                 - Changed address, key, index or module of the drain resource (also an index of `count` that now belongs to another \
                 instance): add a `moved` block from the old address to the new address.\n\
                 - `-replace` of the drain resource: run the command without this option.\n\
                 - Taint: run `terraform untaint`. For `terraform destroy`, you can use `-refresh=false` instead.\n\
                 - {DESTROY}\n\
                 - Two drain resources for the same instance: remove one, or correct its `instance_id`.\n\n\
                 To drain this runner on purpose, remove its drain resource together with its instance, or run once with \
                 {PLAN_CHECK}=off."
            ),
        ),
        Conflict::Shared => Problem::new(
            Code::Refused,
            "Plan would drain a runner whose instance is kept",
            format!(
                "The state contains two grit_runner_drain resources for instance {instance:?}. This plan destroys only one of them, and \
                 keeps the instance. The destroy would shut down the runner."
            ),
            format!(
                "Find the drain resource that the configuration no longer contains, or whose `instance_id` is wrong. Run `terraform state \
                 rm` on it (this does not drain the runner). If the configuration still contains this resource, correct its \
                 `instance_id`; the next apply creates the resource. {DESTROY}\n\nTo drain this runner on purpose, run once with {PLAN_CHECK}=off."
            ),
        ),
        Conflict::SameAddress => Problem::new(
            Code::Refused,
            "Plan would drain the runner of another instance",
            format!(
                "The grit_runner_drain of instance {instance:?} and the grit_runner_drain of another instance have the same host and wrapper address. \
                 This plan destroys one drain resource and keeps the other. The destroy would shut down the runner of the instance that \
                 is kept."
            ),
            format!(
                "If the instance of the destroyed drain resource no longer exists, run `terraform state rm` on this drain resource (this \
                 does not drain a runner). If both instances exist, correct the addresses. To drain this runner on purpose, run once \
                 with {PLAN_CHECK}=off."
            ),
        ),
        Conflict::Twice => Problem::new(
            Code::Refused,
            "Two drain resources for one instance",
            format!(
                "This plan creates two grit_runner_drain resources for instance {instance:?}. Destroying only one of these drain resources would \
                 shut down the runner of the other."
            ),
            "Remove one drain resource, or set a different `instance_id` in each.",
        ),
    }
}

/// Explains why a plan with two drain resources of one runner manager is refused.
fn shared_runner(SharedBy { instance, other }: &SharedBy) -> Problem {
    Problem::new(
        Code::Refused,
        "Two drain resources with one runner manager",
        format!(
            "The grit_runner_drain resources of instances {instance:?} and {other:?} have the same host and wrapper address in \
             `runner_manager`. A destroy would drain one runner, and treat its exit as the exit of both runners. Terraform would \
             then destroy the other instance although its runner may still run jobs."
        ),
        format!(
            "Correct the wrong `runner_manager`: often it uses the key or the index of another instance. If this plan \
             destroys the drain resources, apply the correction first.\n\nIf one of the instances no longer exists, run `terraform state \
             rm` on its drain resource (this does not drain a runner). If this plan destroys both drain resources, you can instead run once \
             with {}=<id of the instance that no longer exists>.\n\nTo skip \
             this check, run once with {PLAN_CHECK}=off.",
            assumed::VARIABLE
        ),
    )
}

/// The same run drains the runner manager of this drain resource for another instance.
pub(crate) fn drained_for_other(manager: &str, address: &str, shared: &SharedBy) -> Problem {
    let SharedBy { instance, other } = shared;
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "The grit_runner_drain resources of instances {instance:?} and {other:?} have the same host and wrapper address ({address}). \
             This run drains the runner at this address for instance {other:?}. The exit of this runner does not show that the runner of \
             instance {instance:?} has exited. No shutdown was requested for instance {instance:?}, and the instance was kept."
        ),
        format!(
            "Do not repeat the command yet: it would destroy instance {instance:?} although its runner may still run. First run \
             `grit-wrapper drain --wait` on the host of instance {instance:?}, or correct the address in `runner_manager` and apply. Only \
             if instance {instance:?} no longer exists, run the command once with {}={instance}.",
            assumed::VARIABLE
        ),
    )
}

/// Warns that the check is disabled.
pub(crate) fn check_disabled() -> Problem {
    Problem::new(
        Code::Notice,
        "Check for accidental drains is disabled",
        format!(
            "{PLAN_CHECK}=off: this run does not refuse plans that would drain a runner whose instance is kept."
        ),
        format!("Unset {PLAN_CHECK} before the next run."),
    )
}

pub(crate) fn invalid_switch(invalid: &InvalidSwitch) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Environment variable has an invalid value",
        format!("{invalid}."),
        format!("Unset {PLAN_CHECK}. `off` allows plans that would drain a runner whose instance is kept."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::samples::all;

    #[test]
    fn plan_refusals_match_snapshot() {
        let shared = SharedBy { instance: "i-0124".to_owned(), other: "i-0123".to_owned() };
        insta::assert_snapshot!(all(vec![
            conflict("i-0123", Conflict::Superseded),
            conflict("i-0123", Conflict::Shared),
            conflict("i-0123", Conflict::Twice),
            conflict("i-0123", Conflict::SameAddress),
            shared_runner(&shared),
            drained_for_other("m2", "10.0.0.7", &shared),
        ]));
    }
}
