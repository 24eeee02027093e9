//! Why `run` failed, and its exit code.

use std::io;

use thiserror::Error;

use crate::{
    daemon::{serve::listen::ListenError, tasks::TaskFailed},
    supervise::{process::CommandError, record::RecordError},
};

#[derive(Debug, Error)]
pub enum RunError {
    #[error("cannot run the command")]
    Command(#[from] CommandError),
    #[error("{flag}")]
    Listen {
        flag: &'static str,
        #[source]
        source: ListenError,
    },
    #[error("cannot set up the wrapper process")]
    Prepare(#[source] io::Error),
    #[error("--http-listen: expected tcp://host:port")]
    HttpAddress,
    #[error("cannot open the state file")]
    Record(#[from] RecordError),
    #[error("cannot determine whether the previous wrapper's runner is still running")]
    Earlier(#[source] io::Error),
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl RunError {
    /// The wrapper itself failed. `docker run` and `timeout` use the same code.
    pub const FAILED: u8 = 125;
    /// The command exists but cannot be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// The command does not exist.
    pub const NOT_FOUND: u8 = 127;

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(CommandError::NotExecutable(_) | CommandError::Format { .. }) => {
                Self::NOT_EXECUTABLE
            }
            Self::Command(CommandError::Missing(_) | CommandError::Empty) => Self::NOT_FOUND,
            Self::Listen { .. }
            | Self::HttpAddress
            | Self::Prepare(_)
            | Self::Record(_)
            | Self::Earlier(_)
            | Self::Task(_) => Self::FAILED,
        }
    }
}
