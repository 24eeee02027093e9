//! Constructors for diagnostics.

use std::borrow::Cow;

use super::{AttributePath, Diagnostic, Diagnostics};

/// A diagnostic.
///
/// `Diagnostic::new` and similar functions add a backtrace to the user's text if `RUST_BACKTRACE` is set; `clippy.toml` bans them.
pub fn diagnostic(
    summary: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    attribute: AttributePath,
) -> Diagnostic {
    Diagnostic { summary: summary.into(), detail: detail.into(), attribute }
}

/// Adding diagnostics to a list: a short title, what happened and what to do, and where.
pub trait DiagnosticsExt {
    /// An error about the whole of the resource or provider.
    fn fail(&mut self, summary: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>);
    /// An error about one attribute.
    fn fail_at(
        &mut self,
        attribute: AttributePath,
        summary: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    );
    /// A warning about the whole of the resource or provider.
    fn warn(&mut self, summary: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>);
    /// A warning about one attribute.
    fn warn_at(
        &mut self,
        attribute: AttributePath,
        summary: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    );
    /// Whether an error was added. Warnings do not count.
    fn has_errors(&self) -> bool;
}

impl DiagnosticsExt for Diagnostics {
    fn fail(&mut self, summary: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) {
        self.fail_at(AttributePath::root(), summary, detail);
    }

    fn fail_at(
        &mut self,
        attribute: AttributePath,
        summary: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.errors.push(diagnostic(summary, detail, attribute));
    }

    fn warn(&mut self, summary: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) {
        self.warn_at(AttributePath::root(), summary, detail);
    }

    fn warn_at(
        &mut self,
        attribute: AttributePath,
        summary: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.warnings.push(diagnostic(summary, detail, attribute));
    }

    fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }
}
