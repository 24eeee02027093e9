//! Texts for drains that a health check starts, and for plans whose drains do not all start at the same time.

use grit_plugin::Problem;

use super::code::Code;
use crate::run::PARALLELISM;

/// Warns at plan that drains wait for each other. `is_destroy`: the plan destroys a health check, so it cannot start them.
pub(crate) fn drains_wait(is_destroy: bool) -> Problem {
    Problem::new(
        Code::Notice,
        "Not all drains start at the same time",
        format!(
            "This plan destroys more than {PARALLELISM} drain resources. By default, Terraform runs {PARALLELISM} operations at a time \
             (`-parallelism`), so the other drains start later. Until its drain starts, a runner accepts new jobs."
        ),
        if is_destroy {
            "To start all drains at once, set `-parallelism` to the number of runner managers, for example with \
             `TF_CLI_ARGS_destroy=-parallelism=100`. If this variable or TF_CLI_ARGS contains `-parallelism`, this warning is not shown."
        } else {
            "To start all drains at once, set `start_drains = true` in the health check. Alternatively, set `-parallelism` to the number \
             of runner managers (this setting applies to all resources), for example with `TF_CLI_ARGS_apply=-parallelism=100`. If this \
             variable or TF_CLI_ARGS contains `-parallelism`, this warning is not shown."
        },
    )
}

/// Explains why a plan without a refresh is refused: the state has the drains that an earlier plan ended, of these runner managers.
pub(crate) fn old_ending_drains(keys: &[&str]) -> Problem {
    Problem::new(
        Code::Refused,
        "Plan with `start_drains` needs a refresh",
        format!(
            "A previous apply ended before the update of this health check, so the state still lists drains of that apply: {}. Without a \
             refresh (`-refresh=false`), the list stays in the state, and the apply of this plan could drain a runner manager that the \
             configuration contains.",
            keys.join(", ")
        ),
        "Run the command once without `-refresh=false`, or with `start_drains = false`.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::samples::all;

    #[test]
    fn start_drains_texts_match_snapshot() {
        insta::assert_snapshot!(all(vec![
            drains_wait(false),
            drains_wait(true),
            old_ending_drains(&["m1", "m2"]),
        ]));
    }
}
