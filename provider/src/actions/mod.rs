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

use std::time::Duration;

use crate::{
    config::{
        manager::required_managers,
        timeouts::{InvokeTimeout, duration_or},
    },
    duration::human,
    schema::{Attribute, Value, object},
};

fn managers_attribute(purpose: &str) -> Attribute {
    required_managers(&format!(
        "The runner managers {purpose}. Messages identify each one by its key in this map."
    ))
}

fn timeouts_attribute(default: Duration) -> Attribute {
    object(InvokeTimeout::attributes(&human(default)))("Timeouts.")
}

fn timeout(timeouts: &Value<InvokeTimeout>, default: Duration) -> Duration {
    timeouts.as_ref_option().map_or(default, |timeouts| duration_or(&timeouts.invoke, default))
}
