//! Texts for imports of drain resources.

use grit_plugin::Problem;

use super::code::Code;

/// Warns that an import has only the identifier of the instance.
pub(crate) fn incomplete(instance: &str) -> Problem {
    Problem::new(
        Code::Notice,
        "Imported drain resource is incomplete",
        format!(
            "The import of the grit_runner_drain for instance {instance:?} contains only `instance_id`. The apply adds `runner_manager` \
             and the other attributes from the configuration, without a connection to the host."
        ),
        "Apply the configuration before you replace or destroy the instance. Until then, destroying this drain resource fails.",
    )
}

pub(crate) fn without_instance() -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Import id is empty",
        "A grit_runner_drain is imported by the `instance_id` of its instance, and this id is empty.",
        "Use the value of `instance_id` as the import id, or as `instance_id` in the identity of the `import` block.",
    )
}

/// Explains that the configuration has another instance than the drain resource that was imported for `instance`.
pub(crate) fn other_instance(instance: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Imported drain resource belongs to another instance",
        format!(
            "The grit_runner_drain was imported for instance {instance:?}, and `instance_id` in the configuration is different or not \
             known yet. Terraform would replace the drain resource, and could not drain the old runner, because an import does not \
             contain `runner_manager`."
        ),
        "1. If the drain resource is already in the state, remove it with `terraform state rm` (this does not drain the runner).\n\
         2. Import the drain resource with the `instance_id` of the configuration, and apply without changes to the instance.\n\
         3. Replace the instance in a later apply.",
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::samples::all;

    #[test]
    fn import_errors_match_snapshot() {
        insta::assert_snapshot!(all(vec![
            incomplete("i-0123"),
            without_instance(),
            other_instance("i-0123"),
            instance_not_known(),
        ]));
    }
}
