//! Terraform's `-json` output: one object per line.

use serde::Deserialize;
use serde_json::Value as Json;

/// The parts of one line that tests use.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A change in the plan.
    PlannedChange { address: String, action: String },
    /// An operation started.
    ApplyStart(Hook),
    /// An operation is still running; sent every 10 s.
    ApplyProgress(Hook),
    /// An operation succeeded.
    ApplyComplete(Hook),
    /// An operation failed; a diagnostic has the reason.
    ApplyErrored(Hook),
    /// An error or a warning.
    Diagnostic { severity: Severity, summary: String, detail: String, address: Option<String> },
    /// The number of changed objects, or of objects to change.
    ChangeSummary { operation: String, add: u64, change: u64, remove: u64 },
    /// Any other line.
    Other(Json),
}

/// An operation on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// For example `lab_probe.one` or `module.m["v1"].lab_probe.one`.
    pub address: String,
    /// `create`, `update`, `delete`.
    pub action: String,
    /// The `id` of the object, if Terraform prints it: it distinguishes old and new at the same address.
    pub id_value: Option<String>,
    pub elapsed_seconds: Option<u64>,
}

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

impl Event {
    /// The events in the output of a command, without lines that are not JSON.
    pub fn parse_all(output: &str) -> Vec<Self> {
        output.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok()).map(Self::parse).collect()
    }

    /// The operation, of the four kinds of `Apply…`.
    pub fn hook(&self) -> Option<&Hook> {
        match self {
            Self::ApplyStart(hook)
            | Self::ApplyProgress(hook)
            | Self::ApplyComplete(hook)
            | Self::ApplyErrored(hook) => Some(hook),
            _ => None,
        }
    }

    fn parse(line: Json) -> Self {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let hook = || Hook {
            address: text(&line["hook"]["resource"]["addr"]),
            action: text(&line["hook"]["action"]),
            id_value: line["hook"]["id_value"].as_str().map(str::to_owned),
            elapsed_seconds: line["hook"]["elapsed_seconds"].as_u64(),
        };
        match line["type"].as_str() {
            Some("planned_change") => Self::PlannedChange {
                address: text(&line["change"]["resource"]["addr"]),
                action: text(&line["change"]["action"]),
            },
            Some("apply_start") => Self::ApplyStart(hook()),
            Some("apply_progress") => Self::ApplyProgress(hook()),
            Some("apply_complete") => Self::ApplyComplete(hook()),
            Some("apply_errored") => Self::ApplyErrored(hook()),
            Some("diagnostic") => Self::Diagnostic {
                severity: if line["diagnostic"]["severity"] == "error" {
                    Severity::Error
                } else {
                    Severity::Warning
                },
                summary: text(&line["diagnostic"]["summary"]),
                detail: text(&line["diagnostic"]["detail"]),
                address: line["diagnostic"]["address"].as_str().map(str::to_owned),
            },
            Some("change_summary") => Self::ChangeSummary {
                operation: text(&line["changes"]["operation"]),
                add: line["changes"]["add"].as_u64().unwrap_or_default(),
                change: line["changes"]["change"].as_u64().unwrap_or_default(),
                remove: line["changes"]["remove"].as_u64().unwrap_or_default(),
            },
            _ => Self::Other(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_become_events() {
        let output = concat!(
            r#"{"type":"apply_start","hook":{"resource":{"addr":"lab_probe.p"},"action":"delete","id_value":"id-p"}}"#,
            "\nnot json\n",
            r#"{"type":"diagnostic","diagnostic":{"severity":"error","summary":"S","detail":"D","address":"lab_probe.p"}}"#,
            "\n",
            r#"{"type":"change_summary","changes":{"add":1,"change":2,"remove":3,"operation":"apply"}}"#,
        );
        let hook = Hook {
            address: "lab_probe.p".into(),
            action: "delete".into(),
            id_value: Some("id-p".into()),
            elapsed_seconds: None,
        };
        assert_eq!(
            Event::parse_all(output),
            [
                Event::ApplyStart(hook),
                Event::Diagnostic {
                    severity: Severity::Error,
                    summary: "S".into(),
                    detail: "D".into(),
                    address: Some("lab_probe.p".into())
                },
                Event::ChangeSummary { operation: "apply".into(), add: 1, change: 2, remove: 3 },
            ]
        );
    }
}
