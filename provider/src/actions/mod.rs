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

use std::collections::BTreeMap;

use grit_plugin::{Problem, Problems, call, schema::Attribute};

use crate::{
    config::manager::{self, RunnerManagerArgs, RunnerManagers, required_managers},
    fleet::Outcomes,
};

/// The attribute `runner_managers`; `purpose` completes its description.
fn managers_attribute(purpose: &str) -> Attribute {
    required_managers(&format!(
        "The runner managers {purpose}. Messages identify each one by its key in this map."
    ))
}

/// The runner managers by key, or the errors of values that were unknown when the action was validated: an entry that is null must not be left
/// out.
fn known_managers(managers: &RunnerManagers) -> Result<BTreeMap<String, RunnerManagerArgs>, Problems> {
    let mut problems = Problems::default();
    manager::check_map(managers, &mut problems);
    problems.or(manager::known(managers))
}

/// Adds the warnings about each runner manager, and returns the errors of those that failed.
fn report(outcomes: Outcomes<Result<Vec<Problem>, Problem>>) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for (key, outcome) in outcomes {
        match outcome {
            Ok(warnings) => {
                warnings.into_iter().for_each(|warning| call().warn(warning.at(manager::at(&key))));
            }
            Err(problem) => problems.add(problem.at(manager::at(&key))),
        }
    }
    problems.or(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::process::Shared;
    use grit_plugin::Block;

    /// The errors of an action whose map became known at invoke.
    async fn invoke<A: Block>(action: A, managers: &serde_json::Value) -> Vec<String>
    where
        A::Config: serde::de::DeserializeOwned,
    {
        let schema = action.schema();
        let mut config: serde_json::Map<_, _> =
            schema.block.attributes.keys().map(|name| (name.clone(), json!(null))).collect();
        config.insert("runner_managers".to_owned(), managers.clone());
        let config = serde_json::from_value(config.into()).unwrap();
        let problems = action.run(config).await.err().unwrap();
        problems.iter().map(Problem::detail).collect()
    }

    #[tokio::test]
    async fn null_entry_that_became_known_at_invoke_is_an_error() {
        let shared = Arc::<Shared>::default;
        for (managers, path) in
            [(json!(null), "`runner_managers`"), (json!({ "m1": null }), "`runner_managers[\"m1\"]`")]
        {
            for errors in [
                invoke(Drain { shared: shared() }, &managers).await,
                invoke(Start { shared: shared() }, &managers).await,
                invoke(CancelDrain { shared: shared() }, &managers).await,
            ] {
                let [error] = errors.as_slice() else { panic!("{errors:?}") };
                assert!(error.starts_with(&format!("{path} is required and must not be null.")), "{error}");
            }
        }
    }
}
