//! Texts for a drain that is refused because too few of its peers are healthy.

use grit_plugin::Problem;

use super::subject::Subject;
use crate::{
    duration::human,
    explain::{code::Code, connection::cause},
    fleet::{PeerProblem, TooFewPeers},
};

/// Explains that a drain would leave too few healthy peers.
pub(super) fn too_few_peers(manager: &str, peers: &TooFewPeers, subject: Subject) -> Problem {
    let TooFewPeers { healthy, wanted, unhealthy } = peers;
    let unhealthy: Vec<_> =
        unhealthy.iter().map(|(key, problem)| format!("{key} ({})", problem_text(problem))).collect();
    let unhealthy =
        if unhealthy.is_empty() { String::new() } else { format!(" Not healthy: {}.", unhealthy.join("; ")) };
    Problem::new(
        Code::Refused,
        "Too few healthy peers to drain",
        format!(
            "Runner manager {manager:?} was not drained. Healthy peers: {healthy}; required by `guard.min_healthy`: {wanted}.{unhealthy}"
        ),
        subject.healthy_peers(),
    )
}

fn problem_text(problem: &PeerProblem) -> String {
    match problem {
        PeerProblem::Itself => "it is the runner manager to drain".to_owned(),
        PeerProblem::Duplicate => "another key has the same runner manager".to_owned(),
        PeerProblem::DrainedHere => "this apply also drains it".to_owned(),
        PeerProblem::AskedToDrain(id) => format!("its drain was requested by {id:?}"),
        PeerProblem::Status(status) => format!("status `{status}`"),
        PeerProblem::Unreached(error) => cause(error),
        PeerProblem::NoAnswer(limit) => format!("no response within {}", human(*limit)),
        PeerProblem::Invalid(text) => text.clone(),
    }
}
