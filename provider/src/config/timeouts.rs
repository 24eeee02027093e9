//! The `timeouts` object, and attributes with durations.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    duration,
    explain::values,
    schema::{Attribute, AttributePath, AttributeType, Diagnostics, Value, attributes, optional},
};

/// `timeouts = { create, update }` of a resource that waits at create and update.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitTimeouts {
    pub create: Value<String>,
    pub update: Value<String>,
}

impl WaitTimeouts {
    /// `scope` names the parts of the operation.
    pub(crate) fn attributes(default: &str, scope: &str) -> HashMap<String, Attribute> {
        attributes([
            (
                "create",
                optional(
                    AttributeType::String,
                    &format!("Timeout of the whole create{scope}. Default `{default}`; minimum `1s`."),
                ),
            ),
            (
                "update",
                optional(
                    AttributeType::String,
                    &format!("Timeout of the whole update{scope}. Default `{default}`; minimum `1s`."),
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
        let description = format!("Timeout of the whole read. Default `{default}`; minimum `1s`.");
        attributes([("read", optional(AttributeType::String, &description))])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.read, path.clone().attribute("read"), diags);
    }
}

/// `timeouts = { delete }` of a resource that waits at destroy. Destroy receives the value of the last apply.
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
                    "Timeout of the whole drain: connections, the check of the peers, the request, and the wait for the exit of the process. \
                     Default `{default}`; minimum `1s`; days are allowed, as in `2d`. With `on_timeout = \"force\"` it is the timeout of \
                     the graceful part. Destroy uses the value of the last apply."
                ),
            ),
        )])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.delete, path.clone().attribute("delete"), diags);
    }
}

/// `timeouts = { invoke }` of an action.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InvokeTimeout {
    pub invoke: Value<String>,
}

impl InvokeTimeout {
    pub(crate) fn attributes(default: &str) -> HashMap<String, Attribute> {
        attributes([(
            "invoke",
            optional(
                AttributeType::String,
                &format!("Timeout of the whole action. Default `{default}`; minimum `1s`."),
            ),
        )])
    }

    pub(crate) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_limit(&self.invoke, path.clone().attribute("invoke"), diags);
    }
}

/// The minimum of a timeout.
const SHORTEST: Duration = Duration::from_secs(1);

/// Rejects invalid and too short durations. Accepts null and unknown.
fn check_limit(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    check_duration(value, path.clone(), diags);
    if let Value::Value(text) = value
        && duration::parse(text).is_ok_and(|limit| limit < SHORTEST)
    {
        values::duration_too_short(&path, text, "1s").error(path, diags);
    }
}

/// The duration of an attribute; `default` if it is null, or invalid, which [`check_duration`] rejects.
pub(crate) fn duration_or(value: &Value<String>, default: Duration) -> Duration {
    value.as_ref_option().and_then(|text| duration::parse(text).ok()).unwrap_or(default)
}

/// Rejects invalid durations. Accepts null and unknown.
///
/// The text contains the attribute, because Terraform points at the outer object of a nested attribute.
pub(crate) fn check_duration(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    if let Value::Value(text) = value
        && let Err(error) = duration::parse(text)
    {
        let named = format!("`{path}`: {text:?}");
        values::duration(&named, error, duration::ACCEPTED).error(path, diags);
    }
}
