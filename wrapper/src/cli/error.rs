//! Why a command did not do what it should: what happened, what to do next, and the exit code.
//!
//! The code tells three cases apart for scripts. 2: nobody was asked anything, because no wrapper could be reached. 3: the time given for waiting
//! is over. 4: the runner has ended as asked, and the drain was not clean. 1: everything else, a call whose outcome is not known among it.

use std::{io, time::Duration};

use thiserror::Error;

use crate::daemon::{duration, listen::Address};

/// Why a command did not do what it should.
#[derive(Debug, Error)]
pub enum CommandError {
    #[error("cannot connect to {address}")]
    Connect {
        address: Address,
        #[source]
        source: ConnectError,
    },
    #[error("the connection to {address} broke before the wrapper had answered")]
    Broken { address: Address },
    #[error("{address} is not a grit-wrapper: upstream's wrapper does not have these commands")]
    Upstream { address: Address },
    #[error("{address} is not a wrapper: another gRPC server answers there")]
    NoWrapper { address: Address },
    #[error("the wrapper at {address} is version {version}, which does not have this command")]
    TooOld { address: Address, version: String },
    #[error("the wrapper refused: this user may not do that ({0})")]
    Denied(String),
    #[error("the wrapper refused: {0}")]
    Refused(String),
    #[error("timed out after {}; the runner {last}", duration::show(*.after))]
    TimedOut { after: Duration, last: String },
    #[error("the runner could not be started{}", because(.0))]
    NotStarted(String),
    #[error("the runner has ended, so it will not become healthy{}", because(.0))]
    Ended(String),
    #[error("the runner ends by itself again and again, so it will not become healthy{}", because(.0))]
    CrashLoop(String),
    #[error("the runner's health can be seen up to the level {0} only")]
    OutOfSight(&'static str),
    #[error("the runner has ended, and the drain was not clean: {0}")]
    NotClean(&'static str),
    #[error("cannot write the answer")]
    Output(#[from] io::Error),
}

/// Why there is no connection over which a wrapper could be asked.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("there is no such socket")]
    Missing,
    #[error("it is {0}, not a socket")]
    NotASocket(&'static str),
    #[error("the path is too long for a socket (at most 107 bytes)")]
    TooLong,
    #[error("nobody listens on that socket any more; it was left by a process that was killed")]
    Stale,
    #[error("too many others wait to be let in, so whoever listens there takes no connections")]
    Full,
    #[error("this user ({user}) may not connect: {barrier}")]
    Denied { user: String, barrier: String },
    #[error("nobody listens there")]
    Nobody,
    #[error("no connection within {}", duration::show(*.0))]
    Unreachable(Duration),
    #[error("the connection was closed before a word was said")]
    Closed,
    #[error("whoever listens there took the connection, and has said nothing for {}", duration::show(*.0))]
    Silent(Duration),
    #[error("whoever listens there does not speak gRPC")]
    NotGrpc,
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

impl CommandError {
    /// The exit code for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connect { .. } => 2,
            Self::TimedOut { .. } => 3,
            Self::NotClean(_) => 4,
            Self::Broken { .. }
            | Self::Upstream { .. }
            | Self::NoWrapper { .. }
            | Self::TooOld { .. }
            | Self::Denied(_)
            | Self::Refused(_)
            | Self::NotStarted(_)
            | Self::Ended(_)
            | Self::CrashLoop(_)
            | Self::OutOfSight(_)
            | Self::Output(_) => 1,
        }
    }

    /// What to do about it, in whole sentences, where more can be said than the error says.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connect { source, .. } => return source.next_step(),
            Self::Broken { .. } => {
                "The wrapper was probably killed or replaced just then, and may or may not have begun what it was asked to do. See with \
                 `grit-wrapper status`, or ask again: a drain with the same --id is the same drain."
            }
            Self::Upstream { .. } => {
                "The provider works with upstream's wrapper as well. For these commands the runner has to be under grit-wrapper: see \
                 \"From upstream's wrapper\" in its documentation."
            }
            Self::NoWrapper { .. } => OTHER_ADDRESS,
            Self::TooOld { .. } => {
                "Use the program of that version, or upgrade the wrapper on its host, which leaves its runner alone."
            }
            Self::Denied(_) => {
                "Root and the wrapper's own user always may. Others need to be in --allow-control of `grit-wrapper run`, or in \
                 --allow-read to look; through TCP they are not known."
            }
            Self::TimedOut { .. } => {
                "Only the waiting has ended: what was asked for goes on. `grit-wrapper wait` waits again."
            }
            Self::NotClean(_) => {
                "Jobs that the runner did not finish show in GitLab as failed or stuck: look there, and retry them. `grit-wrapper status` and the \
                 wrapper's log have the runner's exit code and its last lines."
            }
            Self::Ended(_) => "`grit-wrapper start` starts it again.",
            Self::CrashLoop(_) => {
                "Correct the cause, which the runner's log shows. The wrapper goes on to start the runner."
            }
            Self::OutOfSight(_) => {
                "The runner has no HTTP server to ask: set listen_address in its configuration, or --runner-listen-address of \
                 `grit-wrapper run`, or wait for the level process."
            }
            Self::Refused(_) | Self::NotStarted(_) | Self::Output(_) => return None,
        })
    }
}

const OTHER_ADDRESS: &str =
    "Give the address that --grpc-listen of `grit-wrapper run` has, with --address or GRIT_WRAPPER_ADDRESS.";

impl ConnectError {
    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Missing | Self::Nobody => {
                "Start the wrapper (`systemctl start grit-wrapper`, or the service that it runs in). If it runs already, give the address \
                 that its --grpc-listen has, with --address or GRIT_WRAPPER_ADDRESS."
            }
            Self::NotASocket(_) | Self::TooLong => OTHER_ADDRESS,
            Self::Stale => {
                "Start the wrapper again (`systemctl start grit-wrapper`, or the service that it runs in): it replaces the socket, and \
                 adopts a runner that still runs."
            }
            Self::Denied { .. } => {
                "Ask as root, or as a member of the group that --socket-group gave the socket to; who was added to a group just now has to \
                 log in again."
            }
            Self::Full | Self::Silent(_) => {
                "If it is the wrapper, it hangs: its log and `systemctl status` may tell why. It can be killed and started again without \
                 harm to its runner (`systemctl kill --kill-who=main --signal=SIGKILL UNIT`)."
            }
            Self::Unreachable(_) => {
                "Wrappers listen on their own host: run this command there, or through a tunnel, and see that the address is right."
            }
            Self::Closed => {
                "The wrapper does that when this user has too many connections already (16 on a unix socket; 64 for root, for the wrapper's own user, and on TCP), and its log says so. Else it \
                 was killed just then, or this is no wrapper, or the address of its --http-listen."
            }
            Self::NotGrpc => {
                "It may be the address of --http-listen, which is for metrics and REST, or another program's. Give the address that \
                 --grpc-listen of `grit-wrapper run` has, with --address or GRIT_WRAPPER_ADDRESS."
            }
            Self::Io(_) => return None,
        })
    }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that a test cannot bring about on every machine; the others are seen in the tests of the program.
    #[test]
    fn remaining_error_texts() {
        let address = || "tcp://wrapper.example:7777".parse::<Address>().unwrap();
        let connect = |source| CommandError::Connect { address: address(), source };
        let errors = [
            connect(ConnectError::Unreachable(Duration::from_secs(10))),
            connect(ConnectError::Io(io::Error::other("failed to lookup address information"))),
            CommandError::Output(io::Error::from_raw_os_error(28)),
            CommandError::NotClean("killed: it did not end in time"),
            CommandError::Ended(String::new()),
            CommandError::TimedOut { after: Duration::from_secs(90), last: "is draining, 3 jobs".to_owned() },
        ];
        let told = errors.map(|error| {
            let (code, hint) = (error.exit_code(), error.next_step());
            format!("{code}: {:#}\n   {}\n", anyhow::Error::new(error), hint.unwrap_or("-"))
        });
        insta::assert_snapshot!(told.concat());
    }
}
