//! The codes of all diagnostics.

use std::fmt;

/// The kind of a failure. The identifiers are part of the interface and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The wrapper could not be reached (the Deployer's exit code 2).
    ConnectFailed,
    /// A condition was not met in time (the Deployer's exit code 3).
    TimedOut,
    /// A policy rejected it: the host key check, the SSH server, the wrapper, a plan check.
    Refused,
    /// Terraform cancelled the operation.
    Interrupted,
    /// A user of the host cancelled it.
    Cancelled,
    /// The configuration of Terraform or of a runner, or the state, cannot be used.
    InvalidConfig,
    /// GitLab rejects the token of a runner.
    TokenRejected,
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
            Self::Cancelled => "cancelled",
            Self::InvalidConfig => "invalid_config",
            Self::TokenRejected => "token_rejected",
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

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.as_str()
    }
}
