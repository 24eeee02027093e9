//! Texts for the destroy of a drain resource whose instance id or address another one has, which the same apply created.

use grit_plugin::Problem;

use super::subject::{assumed_title, unset_variable};
use crate::{explain::code::Code, run::assumed};

/// Warns that the runner was not drained: another drain resource of the same instance was created in the same apply.
pub(crate) fn superseded(manager: &str, instance: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "This drain was replaced in the same apply although its instance {instance:?} was not, so the runner was not drained."
        ),
        "Use an `instance_id` that is known at plan time and changes only with the instance.",
    )
}

/// A drain resource was replaced by one with the same instance id and another address: the instance may be kept, or be destroyed next.
pub(crate) fn instance_id_twice(manager: &str, instance: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "This drain was replaced in the same apply by one with the same `instance_id` {instance:?} and another address. If the instance was \
             replaced, too, Terraform would destroy it next, so this destroy fails and the old instance stays."
        ),
        "If the instance was replaced: set an `instance_id` that is different for each instance, and drain the old runner with \
         `grit-wrapper drain --wait` on its host. In both cases: remove the drain resource from the state with `terraform state rm`, and \
         apply again. This creates it without a drain.",
    )
}

/// The address in the state is that of another instance now, so the runner of the old instance cannot be reached at it.
pub(crate) fn address_is_used(manager: &str, address: &str, instance: &str, other: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "The address {address} of instance {instance:?} now belongs to instance {other:?}, whose drain resource was created in this \
             apply: a connection would shut down the runner of that instance. No shutdown was requested."
        ),
        format!(
            "If instance {instance:?} does not exist any more: run `terraform state rm` on the drain resource, which drains nothing, and apply \
             again, which creates it again. If the instance exists, first drain its runner with `grit-wrapper drain --wait` on its host."
        ),
    )
}

/// Warns that such a drain resource was destroyed, because `GRIT_ASSUME_TERMINATED` contains its instance.
pub(crate) fn assumed_at_used_address(manager: &str, instance: &str) -> Problem {
    Problem::new(
        Code::Notice,
        assumed_title(manager),
        format!(
            "The address of this drain now belongs to another instance, so no shutdown was requested. Because {}={instance} is set, the \
             runner is treated as terminated.",
            assumed::VARIABLE
        ),
        unset_variable(),
    )
}
