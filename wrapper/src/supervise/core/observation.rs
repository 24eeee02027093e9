//! What other parts of the program show of the child.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::moment::Moment;

/// What the last probe of the present child showed. It may be some seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The child aborts its jobs although no forceful stop was requested: another process sent SIGTERM or SIGINT to it.
    pub aborts_jobs: bool,
    /// From this moment on, a job that has ended and that the child still listed may have lost its result: the child may have given up reporting it to
    /// GitLab. `None` without such a job, and without a stop.
    #[serde(default)]
    pub results_lost_from: Option<Moment>,
    /// The child's own limit for its cleanup after SIGTERM, if it is known.
    pub shutdown_timeout: Option<Duration>,
    /// The child reports its open job requests: whether SIGQUIT cancels one can be known.
    #[serde(default)]
    pub reports_requests: bool,
}

impl Observation {
    /// Whether the result of a job is lost that was listed until now.
    pub fn has_lost_results(&self, now: Moment) -> bool {
        self.results_lost_from.is_some_and(|from| now >= from)
    }
}

/// What a read of the child's metrics has shown of its job requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestsRead {
    /// When the read ended.
    pub ended: Moment,
    /// The open requests; 0 only if SIGQUIT cancels none to which GitLab could assign a job. `None`: the child does not report them.
    pub open: Option<u32>,
    /// The child may send a request at any time after the read: one of its jobs may end.
    pub may_begin: bool,
}

impl RequestsRead {
    /// SIGQUIT is not sent for an older read: the child may have sent a request since.
    pub const MAX_AGE: Duration = Duration::from_millis(100);
}

/// What the reads after SIGQUIT have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestsCancelled {
    /// The job requests that SIGQUIT has cancelled, without those to which GitLab could not assign a job.
    pub number: u32,
    /// The child has counted all of them.
    pub is_final: bool,
}
