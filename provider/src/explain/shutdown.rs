//! Texts for `grit_runner_shutdown`, beside those of a drain.

use grit_plugin::Problem;

use super::code::Code;
use crate::run::Keeper;

/// Explains why the runner manager `name` is not shut down: the same configuration keeps it.
pub(crate) fn manager_is_kept(name: &str, by: Keeper) -> Problem {
    let keeper = match by {
        Keeper::Drain => "grit_runner_drain",
        Keeper::Health => "grit_runner_health",
    };
    Problem::new(
        Code::Refused,
        "Plan would shut down a runner manager of this configuration",
        format!(
            "A grit_runner_shutdown and a {keeper} of this configuration contain the same runner manager {name:?}. The apply would shut \
             down a runner that this deployment version uses."
        ),
        "Remove the runner manager from `runner_managers` of the grit_runner_shutdown: this map must contain only managers of the other \
         deployment version. Check the directory or the state from which the map was read.",
    )
}

/// How many of the `total` runner managers have terminated; empty for a single one.
pub(crate) fn terminated_managers(terminated: &[&str], total: usize) -> String {
    match terminated {
        _ if total < 2 => String::new(),
        [] => format!("None of the {total} runner managers has terminated."),
        some => format!("{} of {total} runner managers have terminated: {}.", some.len(), some.join(", ")),
    }
}

/// Warns at plan that running jobs are aborted.
pub(crate) fn planned_forceful(managers: &[&str]) -> Problem {
    Problem::new(
        Code::Notice,
        "Running jobs will be aborted",
        format!(
            "`mode` is \"forceful\": the running jobs of these runner managers are ABORTED: {}.",
            managers.join(", ")
        ),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::samples::all;

    #[test]
    fn shutdown_texts_match_snapshot() {
        insta::assert_snapshot!(all(vec![
            manager_is_kept("m1", Keeper::Drain),
            manager_is_kept("m1", Keeper::Health),
            planned_forceful(&["m1", "m2"]),
        ]));
    }

    #[test]
    fn terminated_managers_are_counted_and_named() {
        assert_eq!(terminated_managers(&["a"], 1), "");
        assert_eq!(terminated_managers(&[], 2), "None of the 2 runner managers has terminated.");
        assert_eq!(terminated_managers(&["a", "c"], 3), "2 of 3 runner managers have terminated: a, c.");
    }
}
