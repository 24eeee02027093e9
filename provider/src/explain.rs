//! Typed errors into the words that users read: the one place where they are chosen.
//!
//! A summary is a short title. A detail says what happened, with real values, then what to do, and ends with a line `Code: …`, a stable
//! word that pipelines can tell failures apart by. Everything that names a manager names it by its key in the map.

mod connection;
mod host_key;
pub mod operation;
mod phrases;
pub mod shutdown;

use crate::{client::ClientError, schema::Diagnostics};
use std::fmt;

/// What kind of failure it is. The words are part of the interface and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The wrapper could not be reached (the Deployer's exit code 2).
    ConnectFailed,
    /// A condition did not come true in time (the Deployer's exit code 3).
    TimedOut,
    /// Somebody said no: the host key check, the SSH server, the wrapper, a guard.
    Refused,
    /// Terraform asked us to stop.
    Interrupted,
    /// The configuration cannot work.
    InvalidConfig,
    /// The wrapper answered, and the answer is a failure.
    WrapperError,
    /// Our own fault.
    Bug,
}

impl Code {
    /// The stable word, as `connect_failed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectFailed => "connect_failed",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::InvalidConfig => "invalid_config",
            Self::WrapperError => "wrapper_error",
            Self::Bug => "bug",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error in the words of a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub code: Code,
    /// A short title.
    pub summary: String,
    /// What happened, in whole sentences with real values.
    pub happened: String,
    /// What to do about it.
    pub next_step: String,
}

impl Explained {
    /// Puts the parts together.
    pub fn new(
        code: Code,
        summary: impl Into<String>,
        happened: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self { code, summary: summary.into(), happened: happened.into(), next_step: next_step.into() }
    }

    /// The detail of the diagnostic: what happened, what to do, and the code on the last line.
    pub fn detail(&self) -> String {
        let Self { code, happened, next_step, .. } = self;
        if next_step.is_empty() {
            format!("{happened}\n\nCode: {code}")
        } else {
            format!("{happened}\n\n{next_step}\n\nCode: {code}")
        }
    }
}

/// Ends the detail of every error that names no code with this one.
pub fn add_code(diags: &mut Diagnostics, code: Code) {
    for error in &mut diags.errors {
        if !error.detail.contains("\n\nCode: ") {
            error.detail.to_mut().push_str(&format!("\n\nCode: {code}"));
        }
    }
}

/// The cause of a failed call as one clause, without the manager: for lists of several managers.
pub fn cause(error: &ClientError) -> String {
    connection::happened(error).trim_end_matches('.').to_owned()
}

/// Explains why a call to the wrapper of `manager` failed.
pub fn explain(manager: &str, error: &ClientError) -> Explained {
    connection::explain(manager, error)
}
