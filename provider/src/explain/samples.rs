//! Errors for the tests of texts.

use std::{fmt::Write as _, io, time::Duration};

use grit_plugin::Problem;
use grit_ssh::{Cause, Phase, TransportError};

use crate::{
    client::{ClientError, Snapshot},
    fleet::{Failure, Reason, Requested},
};

/// Nothing listens there.
pub(crate) fn gone() -> ClientError {
    let cause = Cause::Network(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    TransportError::at(Phase::Tcp, crate::client::example_route(), cause).into()
}

/// The host key is verified, and the login rejected.
pub(crate) fn refused_login() -> ClientError {
    TransportError::at(Phase::Auth, crate::client::example_route(), Cause::TooManyAttempts).into()
}

/// The wrapper does not answer.
pub(crate) fn mute() -> ClientError {
    ClientError::NoAnswer {
        method: "CheckStatus",
        limit: Duration::from_secs(10),
        route: Box::new(crate::client::example_route()),
    }
}

/// A failure after this time, with this last status.
pub(crate) fn failed<P>(
    waited: Duration,
    requested: Requested,
    last: Option<Snapshot>,
    reason: Reason<P>,
) -> Failure<P> {
    Failure { waited, requested, last, lost: None, reason }
}

/// All diagnostics as one text, for a snapshot.
pub(crate) fn all(cases: Vec<Problem>) -> String {
    let mut text = String::new();
    for problem in cases {
        writeln!(text, "Error: {}\n\n{}\n\n----", problem.summary, problem.detail()).unwrap();
    }
    text
}
