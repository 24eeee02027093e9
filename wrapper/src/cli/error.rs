//! Errors of the operator's commands: message, hint, and exit code.
//!
//! Exit codes: 2 if no wrapper could be reached, so that no request was sent; 3 if the wait timed out; 4 if the runner exited as
//! requested, but the drain was not clean; 1 for everything else, including calls with an unknown result.

use std::{io, time::Duration};

use grit_proto::duration::human;
use thiserror::Error;
use tonic::Status;

use crate::daemon::serve::listen::Address;

#[derive(Debug, Error)]
pub enum CommandError {
    /// No request was sent.
    #[error("cannot connect to {address}")]
    Connect {
        address: Address,
        #[source]
        source: io::Error,
    },
    /// A request may have been executed.
    #[error("the connection to {address} was interrupted")]
    ConnectionLost {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("the server at {address} does not support this command")]
    NotSupported { address: Address },
    #[error("rejected by the wrapper: {}", .0.message())]
    Refused(Status),
    #[error("timed out after {}; the runner {last}", human(*.after))]
    TimedOut { after: Duration, last: String },
    #[error("the runner could not be started{}", because(.0))]
    NotStarted(String),
    #[error("the runner has exited, so it cannot become healthy{}", because(.0))]
    RunnerExited(String),
    #[error("the runner is in a crash loop, so it cannot become healthy{}", because(.0))]
    CrashLoop(String),
    #[error("the highest health level that this runner can reach is {0}")]
    LevelUnreachable(String),
    #[error("the drain was cancelled, and the runner keeps running")]
    DrainCancelled,
    #[error("the runner has exited, but the drain was not clean: {0}")]
    NotClean(&'static str),
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connect { .. } => 2,
            Self::TimedOut { .. } => 3,
            Self::NotClean(_) => 4,
            Self::ConnectionLost { .. }
            | Self::NotSupported { .. }
            | Self::Refused(_)
            | Self::NotStarted(_)
            | Self::RunnerExited(_)
            | Self::CrashLoop(_)
            | Self::LevelUnreachable(_)
            | Self::DrainCancelled
            | Self::Output(_) => 1,
        }
    }

    /// What to do next.
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::Connect { .. } => Some(
                "Check that the wrapper is running, that --address (GRIT_WRAPPER_ADDRESS) is its --grpc-listen address, and that this user may \
                 connect (--socket-group).",
            ),
            Self::ConnectionLost { .. } => Some(
                "The wrapper may have executed the request: run `grit-wrapper status`. If another server listens there, correct --address.",
            ),
            Self::NotSupported { .. } => Some(
                "If upstream's or an older wrapper listens there, replace it. Otherwise, correct --address.",
            ),
            Self::LevelUnreachable(_) => {
                Some("Higher levels need the runner's HTTP server: set listen_address in its configuration.")
            }
            Self::TimedOut { .. } => Some("The timeout ended only the wait."),
            _ => None,
        }
    }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that a test cannot cause on every host; the tests of the program cover the others.
    #[test]
    fn remaining_errors_match_snapshot() {
        let address = || "tcp://wrapper.example:7777".parse::<Address>().unwrap();
        let connect = |source| CommandError::Connect { address: address(), source };
        let errors = [
            connect(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10s")),
            connect(io::Error::other("failed to lookup address information")),
            CommandError::Output(io::Error::from_raw_os_error(28)),
            CommandError::NotClean("killed: it did not exit in time"),
            CommandError::RunnerExited(String::new()),
            CommandError::DrainCancelled,
            CommandError::TimedOut { after: Duration::from_secs(90), last: "is draining, 3 jobs".to_owned() },
        ];
        let told = errors.map(|error| {
            let (code, hint) = (error.exit_code(), error.next_step());
            format!("{code}: {:#}\n   {}\n", anyhow::Error::new(error), hint.unwrap_or("-"))
        });
        insta::assert_snapshot!(told.concat());
    }
}
