//! Texts for the destroy of a drain resource whose instance id or address another one has, which the same apply created.

use grit_plugin::Problem;

use super::subject::{assumed_title, unset_variable};
use crate::{explain::code::Code, run::assumed};

/// Warns that the runner was not drained: another drain resource of the same instance was created in the same apply.
pub(crate) fn superseded(manager: &str, instance: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Drain of {manager} was skipped"),
        format!(
            "This apply replaced the drain resource of instance {instance:?}, but not the instance. Therefore, the runner was not drained \
             and keeps running."
        ),
        "To prevent this warning, use an `instance_id` that is known at plan time and changes only with the instance.",
    )
}

/// A drain resource was replaced by one with the same instance id and another address: the instance may be kept, or be destroyed next.
pub(crate) fn instance_id_twice(manager: &str, instance: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "This apply replaced this drain resource. The new one has the same `instance_id` {instance:?}, but another host or wrapper \
             address in `runner_manager`. If the instance was also replaced, Terraform would now destroy the old instance without a \
             drain. Therefore, this destroy fails, and the old instance is kept."
        ),
        "If only the host or wrapper address changed: remove the drain resource from the state with `terraform state rm` (this does not drain the \
         runner), and apply again.\n\nIf the instance was replaced: drain the old runner with `grit-wrapper drain --wait` on its host, \
         and set an `instance_id` that is different for each instance.",
    )
}

/// The address in the state is that of another instance now, so the runner of the old instance cannot be reached at it.
pub(crate) fn address_is_used(manager: &str, address: &str, instance: &str, other: &str) -> Problem {
    Problem::new(
        Code::Refused,
        format!("Runner manager {manager} was not drained"),
        format!(
            "The address {address} of instance {instance:?} now belongs to instance {other:?}, whose drain resource was created in this \
             apply. A shutdown request to this address would drain the runner of instance {other:?}, so no request was sent."
        ),
        format!(
            "If instance {instance:?} still exists, first drain its runner with `grit-wrapper drain --wait` on its host. Then run \
             `terraform state rm` on the drain resource of instance {instance:?} (this does not drain a runner), and apply again. If \
             both drain resources have the same Terraform address, the command removes both, and the apply creates the drain resource \
             of instance {other:?} again."
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
