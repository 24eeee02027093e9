//! What a runner manager lacks to be healthy.

use std::{fmt, time::Duration};

use super::{gitlab::Doubt, policy::HealthPolicy};
use crate::client::{Level, RunnerEvidence, RunnerStatus, Snapshot};

/// A host that boots can write the configuration of its runner in several steps: a runner that cannot prove the level for this time never does.
const UNPROVABLE_GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is healthy, but not yet for long enough.
    Time,
    Running,
    /// It has not reached the level; with the wrapper's reasons.
    Level {
        wanted: Level,
        found: Level,
        reasons: Vec<String>,
    },
    /// GitLab rejects the token of a section, so that it does not reach `polling`; with the wrapper's reasons.
    Token {
        reasons: Vec<String>,
    },
    /// GitLab does not confirm it.
    Gitlab(Doubt),
    /// It cannot be proved for this runner.
    Proof {
        wanted: Wanted,
        limit: ProofLimit,
    },
    /// It polls, and too few jobs have ended successfully since the start of its process.
    Jobs {
        succeeded: u64,
        failed: u64,
        wanted: u64,
    },
    /// It has another version, or its version is unknown.
    Version {
        wanted: String,
        found: Option<String>,
    },
}

/// What cannot be proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    Level(Level),
    Version(String),
}

/// Why it cannot be proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProofLimit {
    /// Upstream's wrapper reports only that the process was started.
    Upstream,
    /// The highest level that grit-wrapper can verify for this runner, with its reasons.
    Level { max: Level, reasons: Vec<String> },
}

impl Missing {
    /// Whether more time changes nothing.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Token { .. } | Self::Proof { .. } => true,
            Self::Gitlab(doubt) => doubt.is_permanent(),
            Self::Time | Self::Running | Self::Level { .. } | Self::Jobs { .. } | Self::Version { .. } => {
                false
            }
        }
    }

    /// How long it must be seen without interruption, if it is final.
    pub(super) fn grace(&self) -> Duration {
        match self {
            Self::Proof { limit: ProofLimit::Level { .. }, .. } => UNPROVABLE_GRACE,
            _ => Duration::ZERO,
        }
    }
}

/// As a clause.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => {
                f.write_str("the runner is healthy, but not yet for the whole time of `stable_for`")
            }
            Self::Running => f.write_str("the runner is not `running`"),
            Self::Level { wanted, found, reasons } => {
                write!(f, "the level is `{found}`; `{wanted}` is required{}", in_brackets(reasons))
            }
            Self::Token { reasons } => {
                write!(f, "GitLab rejects the token of the runner{}", in_brackets(reasons))
            }
            Self::Gitlab(doubt) => fmt::Display::fmt(doubt, f),
            Self::Proof { wanted, limit: ProofLimit::Upstream } => {
                write!(f, "the host runs upstream's `gitlab-runner wrapper`, which cannot prove {wanted}")
            }
            Self::Proof { wanted, limit: ProofLimit::Level { max, reasons } } => {
                write!(
                    f,
                    "the runner cannot prove more than level `{max}`; {wanted} is required{}",
                    in_brackets(reasons)
                )
            }
            Self::Jobs { succeeded, failed, wanted } => {
                write!(
                    f,
                    "{succeeded} of {wanted} jobs have succeeded since the start of the runner, and {failed} have failed"
                )
            }
            Self::Version { wanted, found: Some(found) } => {
                write!(f, "the version of the runner is {found}; `expected_version` is {wanted}")
            }
            Self::Version { wanted, found: None } => {
                write!(f, "the version of the runner is unknown; `expected_version` is {wanted}")
            }
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "level `{level}`"),
            Self::Version(version) => write!(f, "`expected_version` {version}"),
        }
    }
}

/// The reasons of a wrapper, after a clause.
fn in_brackets(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

/// The unmet condition, if any.
pub(crate) fn missing(snapshot: &Snapshot, policy: &HealthPolicy) -> Option<Missing> {
    let HealthPolicy { level: wanted, expected_version: version, .. } = policy;
    let is_running = snapshot.report.status == RunnerStatus::Running;
    let Some(detail) = snapshot.detail.as_deref() else {
        let version = || version.clone().map(Wanted::Version);
        let unproved = (*wanted > Level::Process).then_some(Wanted::Level(*wanted)).or_else(version);
        let proof = unproved.map(|wanted| Missing::Proof { wanted, limit: ProofLimit::Upstream });
        return proof.or_else(|| (!is_running).then_some(Missing::Running));
    };
    if !is_running {
        return Some(Missing::Running);
    }
    let (found, reasons) = (detail.level, || detail.reasons.clone());
    // Before the wrapper's first probe, the maximum level is unknown. Below the maximum, the runner is still starting.
    let max = detail.level_max.filter(|max| found >= *max);
    let proof = |wanted, max| Missing::Proof { wanted, limit: ProofLimit::Level { max, reasons: reasons() } };
    if found < (*wanted).min(Level::Polling) {
        let is_rejected = *wanted >= Level::Polling && detail.evidence.rejected_sections > 0;
        return Some(match max {
            _ if is_rejected => Missing::Token { reasons: reasons() },
            Some(max) if max < *wanted => proof(Wanted::Level(*wanted), max),
            _ => Missing::Level { wanted: *wanted, found, reasons: reasons() },
        });
    }
    if *wanted == Level::Working {
        let RunnerEvidence { jobs_succeeded, jobs_failed, .. } = detail.evidence;
        let (succeeded, failed) = (jobs_succeeded.unwrap_or_default(), jobs_failed.unwrap_or_default());
        if succeeded < policy.min_jobs {
            return Some(Missing::Jobs { succeeded, failed, wanted: policy.min_jobs });
        }
    }
    let version = version.as_ref().filter(|wanted| detail.runner_version.as_ref() != Some(*wanted))?.clone();
    Some(match (max, &detail.runner_version) {
        // The version is read from the HTTP server of the runner.
        (Some(max), None) if max < Level::Ready => proof(Wanted::Version(version), max),
        (_, found) => Missing::Version { wanted: version, found: found.clone() },
    })
}
