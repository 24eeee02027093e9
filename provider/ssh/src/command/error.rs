//! Why a command gives no connection.

use crate::io_error::SharedIoError;

/// An error of the command of `proxy_command` or `ssh_command`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    #[error("the command cannot be started: {source}")]
    NotStarted { program: String, source: SharedIoError },
    #[error("the command exited: {status}")]
    Ended { program: String, status: String },
}
