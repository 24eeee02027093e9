//! The parts of a diagnostic. Only the modules of `explain` create one.

use std::fmt;

use crate::schema::{AttributePath, Diagnostics, DiagnosticsExt};

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
    /// The configuration or the state cannot be used.
    InvalidConfig,
    /// The wrapper responded with a failure.
    WrapperError,
    /// A job was lost.
    JobsLost,
    /// A bug in the provider.
    Bug,
    /// A warning about something that did not fail.
    Notice,
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
            Self::JobsLost => "jobs_lost",
            Self::Bug => "bug",
            Self::Notice => "notice",
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
    pub(super) fn new(
        code: Code,
        summary: impl Into<String>,
        happened: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self { code, summary: summary.into(), happened: happened.into(), next_step: next_step.into() }
    }

    /// Adds this as an error about the attribute at `path`.
    pub(crate) fn error(&self, path: AttributePath, diags: &mut Diagnostics) {
        diags.fail_at(path, self.summary.clone(), self.detail());
    }

    /// Adds this as a warning about the attribute at `path`.
    pub(crate) fn warning(&self, path: AttributePath, diags: &mut Diagnostics) {
        diags.warn_at(path, self.summary.clone(), self.detail());
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

#[cfg(test)]
pub(super) mod tests {
    use std::{fmt::Write as _, io, time::Duration};

    use super::Explained;
    use crate::client::ClientError;
    use grit_ssh::{Cause, Phase, TransportError};

    /// Nothing listens there.
    pub(crate) fn gone() -> ClientError {
        let cause = Cause::Network(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        TransportError::at(Phase::Tcp, crate::client::example_route(), cause).into()
    }

    /// The wrapper does not answer.
    pub(crate) fn mute() -> ClientError {
        ClientError::NoAnswer {
            method: "CheckStatus",
            limit: Duration::from_secs(10),
            silent: false,
            route: Box::new(crate::client::example_route()),
        }
    }

    /// All diagnostics as one text, for a snapshot.
    pub(crate) fn all(cases: Vec<Explained>) -> String {
        let mut text = String::new();
        for explained in cases {
            writeln!(text, "Error: {}\n\n{}\n\n----", explained.summary, explained.detail()).unwrap();
        }
        text
    }
}
