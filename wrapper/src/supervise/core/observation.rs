//! What other parts of the program show of the child.

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
