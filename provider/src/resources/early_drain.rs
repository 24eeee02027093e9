//! A drain that a health check starts before the destroy of its drain resource: what the plan of the drain resource passes to the health check.
//!
//! Terraform plans and reads a health check after all drain resources that the health check refers to. So the plan of a health check can contain
//! the drains that the run will end. The apply, which is often another process, gets this with the private data of the health check.

use grit_plugin::schema::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{config::drain::DrainOptions, manager::WrapperIdentity};

/// The part of the first request that is an option of the drain resource. It is stored as private data, and has no secrets.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EarlyDrain {
    pub(super) instance: String,
    pub(super) manager: WrapperIdentity,
    mode: Value<String>,
    reason: Value<String>,
}

impl EarlyDrain {
    pub(super) fn new(instance: &str, manager: WrapperIdentity, options: &DrainOptions) -> Self {
        Self {
            instance: instance.to_owned(),
            manager,
            mode: options.mode.clone(),
            reason: options.reason.clone(),
        }
    }

    pub(super) fn options(&self) -> DrainOptions {
        DrainOptions { mode: self.mode.clone(), reason: self.reason.clone(), ..DrainOptions::default() }
    }

    /// As private data.
    pub(super) fn to_json(&self) -> Option<Json> {
        serde_json::to_value(self).ok()
    }

    pub(super) fn of_json(json: &Json) -> Option<Self> {
        Self::deserialize(json).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_of_a_drain_is_read_again() {
        let options = DrainOptions { reason: Value::Value("roll".to_owned()), ..DrainOptions::default() };
        let early = EarlyDrain::new("i-1", WrapperIdentity::example("h w"), &options);
        assert!(EarlyDrain::of_json(&early.to_json().unwrap()).unwrap() == early);
        assert_eq!(EarlyDrain::of_json(&Json::Null).map(|_| ()), None);
    }
}
