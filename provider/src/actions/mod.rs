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

use std::sync::Arc;

use grit_plugin::{
    Problem, Problems, call,
    schema::{Attribute, AttributePath},
};
use tokio::time::Instant;

use self::progress::{Reporter, Watched};
use crate::{
    client::Client,
    config::{
        manager::{RunnerManagers, check_managers, required_managers},
        provider_block::Configuration,
    },
    context::Context,
    fleet::{self, Failure},
    manager::{Manager, at},
};

/// The attribute `runner_managers`; `purpose` completes its description.
fn managers_attribute(purpose: &str) -> Attribute {
    required_managers(&format!(
        "The runner managers {purpose}. Messages identify each one by its key in this map."
    ))
}

/// The configuration for an invocation, or the errors of values that were unknown when the action was checked: an entry that is null must not be left
/// out.
fn configured(context: &Context, managers: &RunnerManagers) -> Result<Arc<Configuration>, Problems> {
    let mut problems = Problems::default();
    check_managers(managers, &AttributePath::new("runner_managers"), &mut problems);
    problems.or(())?;
    Ok(context.configured()?)
}

/// A runner manager with which an action has succeeded.
struct Done {
    /// The last progress line about it.
    line: String,
    warnings: Vec<Problem>,
}

/// Runs the operation of an action over all runner managers of its map, with progress lines. Reports the warnings, and returns the errors.
///
/// `operation` gets a client that reports what it reads.
async fn over<P, F>(
    managers: fleet::Managers,
    start: Instant,
    operation: impl Fn(Manager, Watched<Client>) -> F,
    explain: impl Fn(&str, &Failure<P>) -> Problem,
) -> Result<(), Problems>
where
    F: Future<Output = Result<Done, Failure<P>>>,
{
    let reporter = Reporter::new(call().progress, start, managers.keys());
    let outcomes = fleet::over(managers, |manager| {
        let (reporter, name) = (reporter.clone(), manager.name.clone());
        let wrapper = reporter.watch(&name, manager.client());
        let work = operation(manager, wrapper);
        async move {
            let done = work.await?;
            reporter.finished(&name, &done.line);
            Ok(done.warnings)
        }
    });
    let mut problems = Problems::default();
    for (key, outcome) in reporter.during(outcomes).await {
        match outcome {
            Ok(warnings) => warnings.into_iter().for_each(|warning| call().warn(warning.at(at(&key)))),
            Err(failure) => problems.add(explain(&key, &failure)),
        }
    }
    problems.or(())
}

#[cfg(test)]
mod tests {
    use grit_plugin::Block;
    use serde_json::json;

    use super::*;

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
        let context = Arc::<Context>::default;
        for (managers, text) in [
            (json!(null), "`runner_managers` is required and must not be null."),
            (json!({ "m1": null }), "`runner_managers[\"m1\"]` is null. Remove the element, or set a value."),
        ] {
            for errors in [
                invoke(Drain { context: context() }, &managers).await,
                invoke(Start { context: context() }, &managers).await,
                invoke(CancelDrain { context: context() }, &managers).await,
            ] {
                let [error] = errors.as_slice() else { panic!("{errors:?}") };
                assert!(error.starts_with(text), "{error}");
            }
        }
    }
}
