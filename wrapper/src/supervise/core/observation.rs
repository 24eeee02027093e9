//! What other parts of the program, and the log of the child, show of the child.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the last probe of the present child showed. It may be some seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The child aborts its jobs although no forceful stop was requested: another process sent SIGTERM or SIGINT to it.
    pub aborts_jobs: bool,
    /// The child's own limit for its cleanup after SIGTERM, if it is known.
    pub shutdown_timeout: Option<Duration>,
}

/// What the log of a child that has exited shows of its drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEvidence {
    /// The child aborted its jobs: another process sent SIGTERM or SIGINT to it.
    pub aborted_jobs: bool,
    /// The child gave up reporting the end of at least one job to GitLab.
    pub lost_results: bool,
    /// The log could not be searched, so that both are unknown.
    pub unreadable: bool,
}
