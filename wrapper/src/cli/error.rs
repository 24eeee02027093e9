//! Errors of the operator's commands: message, next step, and exit code.
//!
//! Exit codes: 2 if no wrapper could be reached, so that no request was sent; 3 if the wait timed out; 4 if the runner exited as
//! requested, but the drain was not clean; 1 for everything else, including calls with an unknown result.

use std::{io, time::Duration};

use thiserror::Error;
use tonic::{Code, Status};

use crate::{daemon::serve::listen::Address, runner::Level, text::duration};

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
    #[error(
        "the wrapper at {address} has version {version}; this grit-wrapper ({}) cannot read the status of that wrapper",
        env!("CARGO_PKG_VERSION")
    )]
    TooNew { address: Address, version: String },
    #[error("rejected by the wrapper: {}", .0.message())]
    Refused(Status),
    #[error("timed out after {}; the runner {last}", duration::show(*.after))]
    TimedOut {
        after: Duration,
        last: String,
        /// The health level that was waited for; `None` for the runner's exit.
        level: Option<Level>,
    },
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
    /// The server closed the connection before it sent anything.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connect { .. } => 2,
            Self::TimedOut { .. } => 3,
            Self::NotClean(_) => 4,
            Self::ConnectionLost { .. }
            | Self::NotSupported { .. }
            | Self::TooNew { .. }
            | Self::Refused(_)
            | Self::NotStarted(_)
            | Self::RunnerExited(_)
            | Self::CrashLoop(_)
            | Self::LevelUnreachable(_)
            | Self::DrainCancelled
            | Self::Output(_) => 1,
        }
    }

    /// What to do next, in whole sentences.
    pub fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connect { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "Run this command as root, or as a member of the group set with --socket-group. New \
                     group members must log in again."
                }
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    "If the address is correct, the wrapper hangs or its host is not reachable: check the log of the wrapper. If the wrapper \
                     hangs, kill it: `systemctl kill --kill-who=main --signal=SIGKILL UNIT`. The runner keeps running, and the next wrapper \
                     adopts the runner."
                }
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    "The address may belong to --http-listen or to another program. If the address is the wrapper's --grpc-listen address, check \
                     the wrapper's log for rejected connections."
                }
                _ => {
                    "Start the wrapper (`systemctl start grit-wrapper`, or the service that runs the wrapper). If the \
                     wrapper is running, set --address or GRIT_WRAPPER_ADDRESS to its --grpc-listen address."
                }
            },
            Self::ConnectionLost { .. } => {
                "The wrapper was probably killed or restarted, and the request may have been executed. Run \
                 `grit-wrapper status`, or repeat the command: a drain with the same --id joins the \
                 existing drain."
            }
            Self::NotSupported { .. } => {
                "If an older grit-wrapper listens there, upgrade it (an upgrade does not stop the runner). If upstream's \
                 `gitlab-runner wrapper` listens there, replace it with grit-wrapper. For another server, set --address or GRIT_WRAPPER_ADDRESS to the \
                 wrapper's --grpc-listen address."
            }
            Self::TooNew { .. } => "Run a grit-wrapper binary of the same version as the wrapper.",
            Self::Refused(status) if status.code() == Code::PermissionDenied => {
                "Allowed: root, the wrapper's user, and users in --allow-control of `grit-wrapper run` \
                 (read-only: --allow-read). If one of these lists is set, TCP clients have read-only \
                 access, because they cannot be identified."
            }
            Self::TimedOut { level, .. } => wait_again(*level),
            Self::NotClean(_) => {
                "In GitLab, retry the jobs that failed; cancel and retry the jobs that GitLab still shows as running. `grit-wrapper status` and the wrapper's log show \
                 the runner's exit code and its last log lines."
            }
            Self::RunnerExited(_) => "Run `grit-wrapper start` to start the runner.",
            Self::DrainCancelled => "Run the command again to drain the runner.",
            Self::CrashLoop(_) => {
                "Fix the cause shown in the runner's log. The wrapper continues to restart the runner."
            }
            Self::LevelUnreachable(_) => {
                "Higher levels need the runner's HTTP server: set listen_address in its configuration, or \
                 --runner-listen-address of `grit-wrapper run`. Or wait for a lower level: `grit-wrapper wait --for process`."
            }
            Self::Refused(_) | Self::NotStarted(_) | Self::Output(_) => return None,
        })
    }
}

fn wait_again(level: Option<Level>) -> &'static str {
    match level {
        None | Some(Level::Unspecified | Level::None) => {
            "The timeout ended only the wait. Run `grit-wrapper wait` to continue waiting."
        }
        Some(Level::Process) => "Run `grit-wrapper wait --for process` to continue waiting.",
        Some(Level::Ready) => "Run `grit-wrapper wait --for ready` to continue waiting.",
        Some(Level::Polling) => "Run `grit-wrapper wait --for polling` to continue waiting.",
        Some(Level::Working) => "Run `grit-wrapper wait --for working` to continue waiting.",
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
            CommandError::TimedOut {
                after: Duration::from_secs(90),
                last: "is draining, 3 jobs".to_owned(),
                level: None,
            },
        ];
        let told = errors.map(|error| {
            let (code, hint) = (error.exit_code(), error.next_step());
            format!("{code}: {:#}\n   {}\n", anyhow::Error::new(error), hint.unwrap_or("-"))
        });
        insta::assert_snapshot!(told.concat());
    }
}
