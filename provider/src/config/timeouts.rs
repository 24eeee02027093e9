//! The `timeouts` object, and durations as attributes.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    duration,
    explain::values,
    schema::{Attribute, AttributePath, AttributeType, Diagnostics, Value, attributes, optional},
};

/// `timeouts = { create, update }` of a resource that waits when it is created or changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitTimeouts {
    pub create: Value<String>,
    pub update: Value<String>,
}

impl WaitTimeouts {
    pub(crate) fn attributes(default: &str) -> HashMap<String, Attribute> {
        attributes([
            (
                "create",
                optional(
                    AttributeType::String,
                    &format!("Timeout of the wait at create. Default `{default}`."),
                ),
            ),
            (
                "update",
                optional(
                    AttributeType::String,
                    &format!("Timeout of the wait at update. Default `{default}`."),
                ),
            ),
        ])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.create, path.clone().attribute("create"), diags);
        check_limit(&self.update, path.clone().attribute("update"), diags);
    }
}

/// `timeouts = { read }` of a data source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadTimeout {
    pub read: Value<String>,
}

impl ReadTimeout {
    pub(crate) fn attributes(default: &str) -> HashMap<String, Attribute> {
        let description = format!("Timeout of the whole read. Default `{default}`.");
        attributes([("read", optional(AttributeType::String, &description))])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.read, path.clone().attribute("read"), diags);
    }
}

/// `timeouts = { delete }` of a resource that waits when it is destroyed. Terraform hands destroy the last *applied* value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeleteTimeout {
    pub delete: Value<String>,
}

impl DeleteTimeout {
    pub(crate) fn attributes(default: &str) -> HashMap<String, Attribute> {
        attributes([(
            "delete",
            optional(
                AttributeType::String,
                &format!(
                    "Timeout of the whole drain, from the request to the exit of the process. Default `{default}`. Multi-day values are \
                     allowed, e.g. `2d`. Destroy uses the value of the last apply."
                ),
            ),
        )])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.delete, path.clone().attribute("delete"), diags);
    }
}

/// The least that a limit may be: in less, not even one question to a wrapper is answered.
const SHORTEST: Duration = Duration::from_secs(1);

/// Refuses a text that is no duration, and one too short for any work. Null and unknown pass.
fn check_limit(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    check_duration(value, path.clone(), diags);
    if let Value::Value(text) = value
        && duration::parse(text).is_ok_and(|limit| limit < SHORTEST)
    {
        values::duration_too_short(&path, text, "1s").error(path, diags);
    }
}

/// The duration of an attribute; `default` where it is null. Malformed ones were refused by [`check_duration`].
pub(crate) fn duration_or(value: &Value<String>, default: Duration) -> Duration {
    value.as_ref_option().and_then(|text| duration::parse(text).ok()).unwrap_or(default)
}

/// Refuses a text that is no duration. Null and unknown pass.
///
/// The text names the attribute, because Terraform points at the whole object when the attribute is in one.
pub(crate) fn check_duration(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    if let Value::Value(text) = value
        && let Err(error) = duration::parse(text)
    {
        let named = format!("`{path}`: {text:?}");
        values::duration(&named, error, duration::ACCEPTED).error(path, diags);
    }
}
