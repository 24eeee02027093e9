//! The texts of all diagnostics: from typed errors to sentences for users.
//!
//! A summary is a short title. A detail contains what happened, with actual values, then the next step. Its last line is `Code: …`, a
//! stable identifier for pipelines. A manager is always named by its key in the map.

mod channel;
mod command;
mod connection;
mod host_key;
mod login;
pub(crate) mod operation;
mod phrases;
pub(crate) mod shutdown;
mod wrapper;

use crate::{client::ClientError, schema::Diagnostics};
use std::fmt;

/// The kind of a failure. The identifiers are part of the interface and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The wrapper could not be reached (the Deployer's exit code 2).
    ConnectFailed,
    /// A condition was not met in time (the Deployer's exit code 3).
    TimedOut,
    /// A policy rejected it: the host key check, the SSH server, the wrapper, a plan check, `guard`.
    Refused,
    /// Terraform cancelled the operation.
    Interrupted,
    /// The configuration cannot work.
    InvalidConfig,
    /// The wrapper responded with a failure.
    WrapperError,
    /// A bug in the provider.
    Bug,
}

impl Code {
    /// The stable identifier, as `connect_failed`.
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

/// The parts of a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub code: Code,
    /// A short title.
    pub summary: String,
    /// What happened, in whole sentences with actual values.
    pub happened: String,
    /// The next step for the user. Empty when `happened` contains it.
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

/// Adds the code to every error that has no code.
pub(crate) fn add_code(diags: &mut Diagnostics, code: Code) {
    for error in &mut diags.errors {
        if !error.detail.contains("\n\nCode: ") {
            error.detail.to_mut().push_str(&format!("\n\nCode: {code}"));
        }
    }
}

/// The cause of a failed call as one clause, without the manager: for lists of several managers.
pub(crate) fn cause(error: &ClientError) -> String {
    connection::without_manager(error).happened.trim_end_matches('.').to_owned()
}

/// Explains why a call to the wrapper of `manager` failed.
pub fn explain(manager: &str, error: &ClientError) -> Explained {
    connection::explain(manager, error)
}
