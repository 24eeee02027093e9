//! Texts for drains that a health check starts.

use grit_plugin::Problem;

use super::code::Code;

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
        insta::assert_snapshot!(all(vec![old_ending_drains(&["m1", "m2"])]));
    }
}
