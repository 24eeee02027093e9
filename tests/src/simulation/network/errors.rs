//! The kinds of the client's errors.

use grit_provider::testing::{
    client::ClientError,
    transport::{Cause, ChannelRefusal, CommandError, HostKeyVerdict, Peer},
};
use tonic::Code;

/// Each kind of error. `kind` is exhaustive, so that a new one must be added.
const ALL: [&str; 44] = [
    "option",
    "no username",
    "no credential",
    "key",
    "resolve",
    "resolve of a jump host",
    "network",
    "not sent",
    "timed out",
    "no free slot",
    "not SSH",
    "lost",
    "too busy",
    "no response of the server",
    "no response of the agent",
    "no response of the wrapper",
    "server opens channels",
    "no common algorithm",
    "host key unknown",
    "host key changed",
    "host key revoked",
    "authority revoked",
    "bad certificate",
    "login refused",
    "more factors",
    "too many attempts",
    "channel prohibited",
    "channel: connect failed",
    "channel: unknown type",
    "channel: resource shortage",
    "command not started",
    "command ended",
    "wrapper closed",
    "not a wrapper",
    "agent",
    "agent without the key",
    "protocol",
    "no answer",
    "status of the wrapper: invalid",
    "status of the wrapper: denied",
    "status of the wrapper: precondition",
    "status of the wrapper: exhausted",
    "status of the wrapper: unavailable",
    "another status",
];

pub(super) fn kind(error: &ClientError) -> &'static str {
    match error {
        ClientError::Transport(error)
            if error.route.hop.is_some() && matches!(error.cause, Cause::Resolve(_)) =>
        {
            "resolve of a jump host"
        }
        ClientError::Transport(error) => of_cause(&error.cause),
        ClientError::NoAnswer { .. } => "no answer",
        ClientError::Status { code, .. } => match code {
            Code::InvalidArgument => "status of the wrapper: invalid",
            Code::PermissionDenied => "status of the wrapper: denied",
            Code::FailedPrecondition => "status of the wrapper: precondition",
            Code::ResourceExhausted => "status of the wrapper: exhausted",
            Code::Unavailable => "status of the wrapper: unavailable",
            _ => "another status",
        },
    }
}

fn of_cause(cause: &Cause) -> &'static str {
    match cause {
        Cause::Option(_) => "option",
        Cause::NoUsername => "no username",
        Cause::NoCredential => "no credential",
        Cause::Key(_) => "key",
        Cause::Resolve(_) => "resolve",
        Cause::Network(_) => "network",
        Cause::NotSent(_) => "not sent",
        Cause::TimedOut { .. } => "timed out",
        Cause::HandshakeQueueTimeout { .. } => "no free slot",
        Cause::NotSsh => "not SSH",
        Cause::Lost(_) => "lost",
        Cause::TooBusy => "too busy",
        Cause::NoResponse { from: Peer::Server, .. } => "no response of the server",
        Cause::NoResponse { from: Peer::Agent { .. }, .. } => "no response of the agent",
        Cause::NoResponse { from: Peer::Wrapper, .. } => "no response of the wrapper",
        Cause::ServerOpensChannels(_) => "server opens channels",
        Cause::NoCommonAlgorithm { .. } => "no common algorithm",
        Cause::HostKey(refusal) => match refusal.verdict {
            HostKeyVerdict::Unknown => "host key unknown",
            HostKeyVerdict::Changed => "host key changed",
            HostKeyVerdict::Revoked => "host key revoked",
            HostKeyVerdict::RevokedAuthority => "authority revoked",
            HostKeyVerdict::BadCertificate => "bad certificate",
        },
        Cause::AuthRefused { .. } => "login refused",
        Cause::MoreFactors { .. } => "more factors",
        Cause::TooManyAttempts => "too many attempts",
        Cause::ChannelRefused { reason, .. } => match reason {
            ChannelRefusal::Prohibited => "channel prohibited",
            ChannelRefusal::ConnectFailed => "channel: connect failed",
            ChannelRefusal::UnknownType => "channel: unknown type",
            ChannelRefusal::ResourceShortage => "channel: resource shortage",
        },
        Cause::Command(CommandError::NotStarted { .. }) => "command not started",
        Cause::Command(CommandError::Ended { .. }) => "command ended",
        Cause::WrapperClosed => "wrapper closed",
        Cause::NotAWrapper => "not a wrapper",
        Cause::Agent { .. } => "agent",
        Cause::AgentKey { .. } => "agent without the key",
        Cause::Protocol(_) => "protocol",
    }
}

/// The kinds, as a run counts them.
pub(in crate::simulation) fn names() -> Vec<String> {
    ALL.iter().map(|kind| name(kind)).collect()
}

pub(super) fn name(kind: &str) -> String {
    format!("client error: {kind}")
}
