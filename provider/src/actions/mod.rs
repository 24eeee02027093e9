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

use std::{collections::BTreeMap, time::Duration};

use crate::{
    config::{
        manager::{RunnerManagerArgs, RunnerManagers},
        timeouts::{InvokeTimeout, duration_or},
    },
    duration::human,
    schema::{Attribute, AttributePath, AttributeType, Value, optional, required},
};

/// The attribute `runner_managers`.
fn managers_attribute(purpose: &str) -> Attribute {
    required(
        AttributeType::AttributeMap(RunnerManagerArgs::attributes()),
        &format!("The runner managers {purpose}. Messages identify each one by its key in this map."),
    )
}

fn timeouts_attribute(default: Duration) -> Attribute {
    optional(AttributeType::AttributeSingle(InvokeTimeout::attributes(&human(default))), "Timeouts.")
}

fn managers(map: &RunnerManagers) -> BTreeMap<String, RunnerManagerArgs> {
    let entries = map.iter().flatten();
    entries.filter_map(|(key, manager)| Some((key.clone(), manager.as_ref_option()?.clone()))).collect()
}

fn timeout(timeouts: &Value<InvokeTimeout>, default: Duration) -> Duration {
    timeouts.as_ref_option().map_or(default, |timeouts| duration_or(&timeouts.invoke, default))
}

/// Where a diagnostic about one runner manager points.
fn at(manager: &str) -> AttributePath {
    AttributePath::new("runner_managers").key(manager.to_owned())
}
