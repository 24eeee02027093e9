//! Attributes that must have a value.
//!
//! Terraform asks that a required attribute is written, and takes `null` for a value. It is refused here.

use crate::schema::{AttributePath, Diagnostics, DiagnosticsExt, Value};

/// Refuses null. Unknown passes.
pub fn check_set<T>(value: &Value<T>, path: AttributePath, diags: &mut Diagnostics) {
    if value.is_null() {
        let detail = format!("`{path}` is required and must not be null.");
        diags.fail_at(path, "Required attribute is null", detail);
    }
}

/// Refuses null and the empty text. Unknown passes.
pub fn check_text(value: &Value<String>, path: AttributePath, diags: &mut Diagnostics) {
    match value {
        Value::Value(text) if text.trim().is_empty() => {
            let detail = format!("`{path}` is {text:?}; it is required and must not be empty.");
            diags.fail_at(path, "Required attribute is empty", detail);
        }
        value => check_set(value, path, diags),
    }
}
