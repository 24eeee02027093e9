//! Attributes with strings, and required attributes.
//!
//! Terraform accepts `null` for a required attribute; it is rejected here.

use std::str::FromStr;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value},
};
use grit_ssh::AddressError;

use crate::explain::values;

/// Replaces an unknown value in checks of other values. This host name does not exist (RFC 2606).
pub(super) const UNKNOWN: &str = "unknown.invalid";

/// The string of an attribute. An empty string counts as null, as in GRIT's modules (`optional(string, "")`).
pub(crate) fn set(value: &Value<String>) -> Option<String> {
    value.as_ref_option().filter(|text| !text.is_empty()).cloned()
}

/// Rejects null and invalid addresses. Accepts unknown.
pub(crate) fn check_address<T: FromStr<Err = AddressError>>(
    value: &Value<String>,
    path: &AttributePath,
    problems: &mut Problems,
) {
    match value {
        Value::Value(text) => {
            if let Err(error) = text.parse::<T>() {
                problems.add(values::address(path.clone(), error));
            }
        }
        value => check_set(value, path, problems),
    }
}

/// Rejects null. Accepts unknown.
pub(crate) fn check_set<T>(value: &Value<T>, path: &AttributePath, problems: &mut Problems) {
    if value.is_null() {
        problems.add(values::null(path.clone()));
    }
}

/// Rejects null and empty strings. Accepts unknown.
pub(crate) fn check_text(value: &Value<String>, path: &AttributePath, problems: &mut Problems) {
    match value {
        Value::Value(text) if text.trim().is_empty() => {
            problems.add(values::empty(path.clone(), text));
        }
        value => check_set(value, path, problems),
    }
}
