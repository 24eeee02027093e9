//! The actions, one file each, named as in the registry: `terraform apply -invoke=action.grit_drain.NAME` (Terraform 1.14).
//!
//! An action is for people: it runs when they invoke it, and shows progress. It is not a part of the order of a rollout, which only the
//! resources keep.

mod cancel_drain;
mod drain;
mod progress;
mod start;

pub use cancel_drain::CancelDrain;
pub use drain::Drain;
pub use start::Start;

use crate::{
    config::manager::{self, required_managers},
    explain::Explained,
    fleet::Outcomes,
    schema::{Attribute, Diagnostics, DiagnosticsExt as _},
};

/// The attribute `runner_managers`; `purpose` completes its description.
fn managers_attribute(purpose: &str) -> Attribute {
    required_managers(&format!(
        "The runner managers {purpose}. Messages identify each one by its key in this map."
    ))
}

/// Adds the warnings about each runner manager, or the error if it failed.
fn report(outcomes: Outcomes<Result<Vec<Explained>, Explained>>, diags: &mut Diagnostics) -> Option<()> {
    for (key, outcome) in outcomes {
        match outcome {
            Ok(warnings) => {
                warnings.into_iter().for_each(|warning| warning.warning(manager::at(&key), diags));
            }
            Err(explained) => explained.error(manager::at(&key), diags),
        }
    }
    (!diags.has_errors()).then_some(())
}
