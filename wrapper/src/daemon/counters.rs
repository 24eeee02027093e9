//! Counters of events since this wrapper was started.
//!
//! The modules of the daemon count their events here, and [`crate::daemon::serve::http`] exports the counters. They begin at 0 with each wrapper, as
//! Prometheus expects: `rate` and `increase` detect the reset. The number of restarts of the runner is in the state file. Log lines are
//! counted in [`crate::daemon::host`].

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use tonic::Code;

use crate::supervise::{Counted, EndedStop, ExitReason, Mode, StopOutcome};

/// All counters of one wrapper.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) since: Since,
    /// By [`ExitReason`].
    pub(crate) exits: [Counter; ExitReason::ALL.len()],
    drains: [[Counter; StopOutcome::ALL.len() + 1]; 2],
    /// By [`Mode`].
    pub(crate) drain_durations: [Histogram; 2],
    /// By position in [`METHODS`], and status code.
    pub(crate) requests: [[Counter; CODES]; METHODS.len()],
    /// Calls without permission.
    pub(crate) denied: Counter,
    /// gRPC connections that were rejected because of a limit.
    pub(crate) rejected_connections: Counter,
    /// By [`CallbackResult`].
    pub(crate) attempts: [Counter; CallbackResult::ALL.len()],
}

/// A number of events.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Result of one attempt to send a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackResult {
    Success,
    /// The attempt failed, and another one follows.
    Failure,
    /// The last attempt failed.
    Exhausted,
}

impl CallbackResult {
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::Exhausted];

    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Services and methods that are counted separately. The last entry counts calls with any other path, because the client chooses the path.
pub const METHODS: [(&str, &str); 12] = [
    ("gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper", "CheckStatus"),
    ("gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper", "InitGracefulShutdown"),
    ("gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper", "InitForcefulShutdown"),
    ("grit.wrapper.v1.Wrapper", "GetStatus"),
    ("grit.wrapper.v1.Wrapper", "Watch"),
    ("grit.wrapper.v1.Wrapper", "Drain"),
    ("grit.wrapper.v1.Wrapper", "Cancel"),
    ("grit.wrapper.v1.Wrapper", "Start"),
    ("grit.wrapper.v1.Wrapper", "ListJobs"),
    ("grpc.health.v1.Health", "Check"),
    ("grpc.health.v1.Health", "Watch"),
    ("unknown", "unknown"),
];

/// gRPC's status codes are 0 to 16.
pub const CODES: usize = 17;

/// Upper bounds of the histogram buckets for drain durations, in seconds: from a second to a week.
pub const DRAIN_STEPS: [u64; 13] =
    [1, 10, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400, 259_200, 604_800];

/// Start time of the counters.
#[derive(Debug)]
pub(crate) struct Since(pub(crate) SystemTime);

impl Default for Since {
    fn default() -> Self {
        Self(SystemTime::now())
    }
}

impl Counters {
    pub(crate) fn count(&self, change: Counted) {
        match change {
            Counted::Exit(reason) => self.exits[reason as usize].add(),
            Counted::Stop(EndedStop { mode, outcome, duration }) => {
                self.drains(mode, outcome).add();
                if let Some(duration) = duration {
                    self.drain_durations[mode as usize].add(duration);
                }
            }
        }
    }

    /// Counts a response. `path` is the HTTP/2 path: `/service/method`.
    pub(crate) fn answered(&self, path: &str, code: Code) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let method = path.split_once('/').and_then(|name| METHODS.iter().position(|method| *method == name));
        let method = method.unwrap_or(METHODS.len() - 1);
        self.requests[method][code as usize].add();
    }

    /// The drains with this outcome; `None` for cancelled drains.
    pub(crate) fn drains(&self, mode: Mode, outcome: Option<StopOutcome>) -> &Counter {
        let outcome = outcome.map_or(StopOutcome::ALL.len(), |outcome| outcome as usize);
        &self.drains[mode as usize][outcome]
    }
}

/// A histogram with the buckets [`DRAIN_STEPS`].
#[derive(Debug, Default)]
pub struct Histogram {
    steps: [Counter; DRAIN_STEPS.len()],
    count: Counter,
    milliseconds: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration) {
        if let Some(step) = DRAIN_STEPS.iter().position(|most| took <= Duration::from_secs(*most)) {
            self.steps[step].add();
        }
        self.count.add();
        self.milliseconds.fetch_add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// For each bucket, the number of durations up to its bound.
    pub fn up_to(&self) -> [u64; DRAIN_STEPS.len()] {
        let mut sum = 0;
        array::from_fn(|step| {
            sum += self.steps[step].get();
            sum
        })
    }

    pub fn count(&self) -> u64 {
        self.count.get()
    }

    pub fn sum(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_buckets_and_sums_durations() {
        let histogram = Histogram::default();
        for seconds in [0, 1, 2, 90_000, 10_000_000] {
            histogram.add(Duration::from_secs(seconds));
        }
        let up_to = histogram.up_to();
        assert_eq!((up_to[0], up_to[1], up_to[10], up_to[11], up_to[12]), (2, 3, 3, 4, 4));
        assert_eq!((histogram.count(), histogram.sum().as_secs()), (5, 10_090_003));
    }

    #[test]
    fn unknown_grpc_paths_share_one_series() {
        let counters = Counters::default();
        counters.answered("/grit.wrapper.v1.Wrapper/Drain", Code::PermissionDenied);
        for path in ["/x/y", "other", ""] {
            counters.answered(path, Code::Unimplemented);
        }
        assert_eq!(counters.requests[5][Code::PermissionDenied as usize].get(), 1);
        assert_eq!(counters.requests[METHODS.len() - 1][Code::Unimplemented as usize].get(), 3);
    }
}
