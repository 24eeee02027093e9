//! The parts of a diagnostic.

pub(crate) mod texts;

use crate::schema::{AttributePath, Diagnostics, DiagnosticsExt, FunctionError};

/// The parts of a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The kind of the failure: a stable identifier for pipelines, such as `invalid_config`.
    pub code: &'static str,
    /// A short title.
    pub summary: String,
    /// What happened, in whole sentences with actual values.
    pub happened: String,
    /// The next step for the user. Empty when `happened` contains it.
    pub next_step: String,
}

impl Problem {
    /// A problem with these parts.
    pub fn new(
        code: impl Into<&'static str>,
        summary: impl Into<String>,
        happened: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into(),
            summary: summary.into(),
            happened: happened.into(),
            next_step: next_step.into(),
        }
    }

    /// A bug of the provider. `problem` is a sentence without its full stop.
    pub fn bug(problem: impl std::fmt::Display) -> Self {
        Self::new(
            "bug",
            "Provider bug",
            format!("{problem}."),
            "Report this bug with the log of a run with TF_LOG_PROVIDER=debug. The log contains no secrets.",
        )
    }

    /// Adds this as an error about the attribute at `path`.
    pub fn error(&self, path: AttributePath, diags: &mut Diagnostics) {
        diags.fail_at(path, self.summary.clone(), self.detail());
    }

    /// Adds this as a warning about the attribute at `path`.
    pub fn warning(&self, path: AttributePath, diags: &mut Diagnostics) {
        diags.warn_at(path, self.summary.clone(), self.detail());
    }

    /// As the error of the argument of a function at this position.
    pub fn argument(&self, index: usize) -> FunctionError {
        FunctionError { text: self.detail(), argument: Some(index) }
    }

    /// The detail of the diagnostic: what happened, the next step, and the code on the last line.
    pub fn detail(&self) -> String {
        let Self { code, happened, next_step, .. } = self;
        if next_step.is_empty() {
            format!("{happened}\n\nCode: {code}")
        } else {
            format!("{happened}\n\n{next_step}\n\nCode: {code}")
        }
    }
}
