//! Problems: the errors and warnings of a call, which Terraform shows as diagnostics.

pub(crate) mod texts;

use std::fmt::Display;

use crate::schema::AttributePath;

/// An error or a warning: its attribute, its parts, and its code.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The attribute. The root is the whole resource or provider block.
    pub path: AttributePath,
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
    /// A problem of the root with these parts.
    pub fn new(
        code: impl Into<&'static str>,
        summary: impl Into<String>,
        happened: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self {
            path: AttributePath::root(),
            code: code.into(),
            summary: summary.into(),
            happened: happened.into(),
            next_step: next_step.into(),
        }
    }

    /// A bug of the provider. `problem` is a sentence without its full stop.
    pub fn bug(problem: impl Display) -> Self {
        Self::new(
            "bug",
            "Provider bug",
            format!("{problem}."),
            "Report this bug with the log of a run with TF_LOG_PROVIDER=debug. The log contains no secrets.",
        )
    }

    /// This problem, of the attribute at `path`.
    #[must_use]
    pub fn at(self, path: AttributePath) -> Self {
        Self { path, ..self }
    }

    /// What happened, and the next step.
    pub fn text(&self) -> String {
        match self.next_step.as_str() {
            "" => self.happened.clone(),
            next_step => format!("{}\n\n{next_step}", self.happened),
        }
    }

    /// The detail of the diagnostic: what happened, the next step, and the code on the last line.
    pub fn detail(&self) -> String {
        format!("{}\n\nCode: {}", self.text(), self.code)
    }
}

/// The errors of a failed call, or of a check that collects all of them.
///
/// A call that fails returns at least one. An empty list is reported as a bug of the provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem.
    pub fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of problems.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The problems, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// `value` if the list is empty, otherwise the problems.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<I: IntoIterator<Item = Problem>>(problems: I) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        self.0.extend(problems);
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
