//! What other parts of the program, and the log of the child, show of the child.

use std::time::Duration;

/// The last observation of the child. It may be some seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The child aborts its jobs although no forceful stop was requested: another process sent SIGTERM or SIGINT to it.
    pub aborts_jobs: bool,
    /// The child, which has exited, gave up reporting the end of at least one job to GitLab during the stop.
    pub lost_results: bool,
    /// The log of the child, which has exited, could not be searched, so that both are unknown.
    pub log_unreadable: bool,
    /// The child's own limit for its cleanup after SIGTERM, if it is known.
    pub shutdown_timeout: Option<Duration>,
}
