//! The formats in which Terraform and OpenTofu write outputs.
//!
//! No error contains a part of the text, which may hold secrets.

use serde_json::Value as Json;

/// The name of the output in GRIT's contract.
pub(crate) const OUTPUT: &str = "grit_runner_managers";

/// The largest text that is read.
pub(super) const LARGEST: u64 = 64 << 20;

/// Why a text has no runner managers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("it is not valid JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("it is encrypted by OpenTofu")]
    Encrypted,
    /// The file `.terraform/terraform.tfstate`.
    #[error("it contains backend settings, but no state")]
    BackendSettings,
    #[error("it is not a state of format version 4, and not the output of `terraform output -json`")]
    Unrecognized,
    /// The output is missing; the names of those that there are.
    #[error("it has no output `{OUTPUT}`")]
    NoOutput(Vec<String>),
}

type Object = serde_json::Map<String, Json>;

/// The value of the output in a state file, or in the output of `terraform output -json`.
pub(super) fn read(text: &[u8]) -> Result<Json, FormatError> {
    let document: Json = serde_json::from_slice(text)
        .map_err(|error| FormatError::NotJson { line: error.line(), column: error.column() })?;
    let Json::Object(mut document) = document else { return Err(FormatError::Unrecognized) };
    // First, because outputs can have the names of members of a state, which has members that are not an object with `value`.
    let are_outputs =
        document.values().all(|member| matches!(member, Json::Object(it) if it.contains_key("value")));
    let has = |name: &str| document.contains_key(name);
    let mut described = if are_outputs {
        document
    } else if has("encrypted_data") {
        return Err(FormatError::Encrypted);
    } else if document.get("version") == Some(&Json::from(4)) {
        take(&mut document, "outputs").unwrap_or_default()
    } else if has("backend") {
        return Err(FormatError::BackendSettings);
    } else {
        return Err(FormatError::Unrecognized);
    };
    match take(&mut described, OUTPUT).and_then(|mut output| output.remove("value")) {
        Some(value) => Ok(value),
        None => Err(FormatError::NoOutput(described.into_iter().map(|(name, _)| name).collect())),
    }
}

fn take(object: &mut Object, name: &str) -> Option<Object> {
    match object.remove(name) {
        Some(Json::Object(member)) => Some(member),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Json, FormatError> {
        read(text.as_bytes())
    }

    #[test]
    fn output_is_found_in_each_format() {
        for text in [
            r#"{"version": 4, "serial": 7, "outputs": {"grit_runner_managers": {"value": {"a": {"address": "h"}}, "type": ["map", "string"], "sensitive": true}}, "resources": []}"#,
            r#"{"other": {"value": 1}, "grit_runner_managers": {"sensitive": false, "type": ["map", "string"], "value": {"a": {"address": "h"}}}}"#,
        ] {
            assert_eq!(read_text(text), Ok(serde_json::json!({"a": {"address": "h"}})), "{text}");
        }
    }

    #[test]
    fn outputs_can_have_names_of_other_formats() {
        for name in ["version", "outputs", "encrypted_data", "backend"] {
            let text = format!(r#"{{"{name}": {{"value": 1}}, "grit_runner_managers": {{"value": {{}}}}}}"#);
            assert_eq!(read_text(&text), Ok(serde_json::json!({})), "{name}");
        }
    }

    #[test]
    fn missing_output_error_lists_other_outputs() {
        for text in [
            r#"{"version": 4, "outputs": {"b": {"value": 1}, "a": {"value": 2}}}"#,
            r#"{"a": {"value": 2}, "b": {"value": 1}}"#,
        ] {
            assert_eq!(read_text(text), Err(FormatError::NoOutput(vec!["a".into(), "b".into()])), "{text}");
        }
        for text in [r#"{"version": 4, "outputs": {}}"#, r#"{"version": 4}"#, "{}"] {
            assert_eq!(read_text(text), Err(FormatError::NoOutput(vec![])), "{text}");
        }
    }

    #[test]
    fn other_files_are_recognized() {
        for (text, wanted) in [
            ("", FormatError::NotJson { line: 1, column: 0 }),
            ("resource \"x\" {", FormatError::NotJson { line: 1, column: 1 }),
            (r#"{"format_version": "1.2", "planned_values": {}}"#, FormatError::Unrecognized),
            (
                r#"{"serial": 1, "lineage": "l", "meta": {}, "encrypted_data": "eA=="}"#,
                FormatError::Encrypted,
            ),
            (r#"{"version": 3, "backend": {"type": "s3"}}"#, FormatError::BackendSettings),
            (r#"{"version": 3, "modules": []}"#, FormatError::Unrecognized),
            (r#"{"version": 5}"#, FormatError::Unrecognized),
            (r#"{"version": "4"}"#, FormatError::Unrecognized),
            (r#"{"a": {"address": "h"}}"#, FormatError::Unrecognized),
            ("[]", FormatError::Unrecognized),
        ] {
            assert_eq!(read_text(text), Err(wanted), "{text}");
        }
    }
}
