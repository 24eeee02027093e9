//! Failures of operations on a runner manager: what the texts of all operations have in common.

use grit_plugin::{Problem, schema::AttributePath};
use grit_ssh::AddressError;

use super::{
    code::Code,
    connection::explain,
    phrases::{append, tries},
};
use crate::{
    client::ClientError,
    fleet::{Failure, Reason},
    manager::{self, InvalidManager},
};

/// What the texts of one operation add.
pub(crate) trait Words {
    /// The problems of the operation.
    type Problem;

    /// The name of the runner manager.
    fn manager(&self) -> &str;

    /// The attribute of the runner manager.
    fn path(&self) -> AttributePath {
        manager::at(self.manager())
    }

    /// Completes the text for a wrapper that was not reached.
    fn unreached(&self, failure: &Failure<Self::Problem>, error: &ClientError, explained: &mut Problem);

    fn interrupted(&self, failure: &Failure<Self::Problem>) -> Problem;

    /// A problem without a path is about the runner manager.
    fn problem(&self, failure: &Failure<Self::Problem>, problem: &Self::Problem) -> Problem;

    /// Adds what stands at the end of each text.
    fn complete(&self, _failure: &Failure<Self::Problem>, _explained: &mut Problem) {}
}

/// Explains why an operation on a runner manager did not succeed.
pub(crate) fn failure<W: Words>(words: &W, failure: &Failure<W::Problem>) -> Problem {
    let mut explained = match &failure.reason {
        Reason::Invalid(invalid) => invalid_manager(words.manager(), invalid),
        Reason::Unreached { attempts, error } => {
            let mut explained = explain(words.manager(), error);
            append(&mut explained.happened, &tries(*attempts, failure.waited));
            words.unreached(failure, error, &mut explained);
            explained
        }
        Reason::Interrupted(_) => words.interrupted(failure),
        Reason::Problem(problem) => words.problem(failure, problem),
    };
    words.complete(failure, &mut explained);
    if explained.path == AttributePath::root() { explained.at(words.path()) } else { explained }
}

/// An attribute of the runner manager became known at apply, and is invalid.
pub(crate) fn invalid_manager(key: &str, invalid: &InvalidManager) -> Problem {
    let happened = match invalid {
        InvalidManager { attribute, problem: AddressError::Missing } => format!("`{attribute}` has no value"),
        other => other.to_string(),
    };
    Problem::new(
        Code::InvalidConfig,
        "Invalid runner manager",
        format!("Runner manager {key:?} is invalid: {happened}."),
        "Correct the attribute in the configuration.",
    )
}
