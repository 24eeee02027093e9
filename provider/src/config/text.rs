//! Texts as attributes, and attributes that must have a value.
//!
//! Terraform demands that a required attribute is written, and accepts `null` for a value. It is refused here.

use std::str::FromStr;

use crate::{
    explain::values,
    schema::{Attribute, AttributePath, AttributeType, Diagnostics, Value, optional},
    transport::AddressError,
};

/// What stands for a value that is not known yet, so that what surrounds it can be checked. No host has this name (RFC 2606).
pub(super) const UNKNOWN: &str = "unknown.invalid";

/// A text that is set; the empty one counts as not set, as in GRIT's modules (`optional(string, "")`).
pub(crate) fn set(value: &Value<String>) -> Option<String> {
    value.as_ref_option().filter(|text| !text.is_empty()).cloned()
}

/// An optional text as an attribute.
pub(crate) fn text(description: &str) -> Attribute {
    optional(AttributeType::String, description)
}

/// An optional list of texts as an attribute.
pub(crate) fn texts(description: &str) -> Attribute {
    optional(AttributeType::List(Box::new(AttributeType::String)), description)
}

/// Refuses null and what is no address. Unknown passes.
pub(crate) fn check_address<T: FromStr<Err = AddressError>>(
    value: &Value<String>,
    path: AttributePath,
    diags: &mut Diagnostics,
) {
    match value {
        Value::Value(text) => {
            if let Err(error) = text.parse::<T>() {
                values::address(&path, error).error(path, diags);
            }
        }
        value => check_set(value, path, diags),
    }
}

/// Refuses null. Unknown passes.
pub(crate) fn check_set<T>(value: &Value<T>, path: AttributePath, diags: &mut Diagnostics) {
    if value.is_null() {
        values::null(&path).error(path, diags);
    }
}

/// Refuses null and the empty text. Unknown passes.
pub(crate) fn check_text(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    match value {
        Value::Value(text) if text.trim().is_empty() => {
            values::empty(&path, text).error(path, diags);
        }
        value => check_set(value, path, diags),
    }
}
