//! Labels for the metrics of a deployment.

use std::str::FromStr;

use thiserror::Error;

/// `NAME=VALUE`, with a valid Prometheus label name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub value: String,
}

/// Why a label is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LabelError {
    #[error("expected NAME=VALUE, such as shard=blue")]
    Form,
    #[error("a label name must start with a letter and contain only letters, digits and underscores")]
    Name,
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (name, value) = text.split_once('=').ok_or(LabelError::Form)?;
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_word || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(LabelError::Name);
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// A duplicate label name, if any: Prometheus rejects a response with duplicates.
pub(crate) fn duplicate_name(labels: &[Label]) -> Option<&str> {
    let is_before = |at: usize| labels[..at].iter().any(|earlier| earlier.name == labels[at].name);
    (0..labels.len()).find(|at| is_before(*at)).map(|at| labels[at].name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_names_follow_prometheus_syntax() {
        let label: Label = "deployment_version=v2=rc".parse().unwrap();
        assert_eq!((label.name.as_str(), label.value.as_str()), ("deployment_version", "v2=rc"));
        assert_eq!("shard=".parse::<Label>().unwrap().value, "");
        assert_eq!("shard".parse::<Label>(), Err(LabelError::Form));
        for name in ["", "2", "a-b", "__name__", "_a", "ä"] {
            assert_eq!(format!("{name}=x").parse::<Label>(), Err(LabelError::Name), "{name}");
        }
    }

    #[test]
    fn duplicate_label_name_is_detected() {
        let labels = |names: &[&str]| names.iter().map(|name| format!("{name}=x").parse().unwrap()).collect();
        let (once, again): (Vec<_>, Vec<_>) = (labels(&["a", "b"]), labels(&["a", "b", "a"]));
        assert_eq!((duplicate_name(&once), duplicate_name(&again)), (None, Some("a")));
    }
}
