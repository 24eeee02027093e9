//! Constructors for diagnostics.

use std::borrow::Cow;

use super::{AttributePath, Diagnostic, Diagnostics};

type Text = Cow<'static, str>;

/// A diagnostic.
///
/// `Diagnostic::new` and similar functions add a backtrace to the user's text if `RUST_BACKTRACE` is set; `clippy.toml` bans them.
pub fn diagnostic(summary: impl Into<Text>, detail: impl Into<Text>, attribute: AttributePath) -> Diagnostic {
    Diagnostic { summary: summary.into(), detail: detail.into(), attribute }
}

/// Adds diagnostics: a short title, what happened and what to do, and the attribute.
pub trait DiagnosticsExt {
    /// An error about one attribute.
    fn fail_at(&mut self, attribute: AttributePath, summary: impl Into<Text>, detail: impl Into<Text>);

    /// A warning about one attribute.
    fn warn_at(&mut self, attribute: AttributePath, summary: impl Into<Text>, detail: impl Into<Text>);

    /// An error about the whole resource or provider.
    fn fail(&mut self, summary: impl Into<Text>, detail: impl Into<Text>) {
        self.fail_at(AttributePath::root(), summary, detail);
    }

    /// Whether there is an error. Warnings do not count.
    fn has_errors(&self) -> bool;
}

impl DiagnosticsExt for Diagnostics {
    fn fail_at(&mut self, attribute: AttributePath, summary: impl Into<Text>, detail: impl Into<Text>) {
        self.errors.push(diagnostic(summary, detail, attribute));
    }

    fn warn_at(&mut self, attribute: AttributePath, summary: impl Into<Text>, detail: impl Into<Text>) {
        self.warnings.push(diagnostic(summary, detail, attribute));
    }

    fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }
}
