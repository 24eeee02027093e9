//! What is known of one child beyond a single probe.

use std::sync::Arc;

use tokio::time::Instant;

use super::{polls::Polls, runner_config::RunnerConfig, runner_metrics::RunnerMetrics};
use crate::supervise::ChildInfo;

/// Values of one child that are kept between two probes.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) child: Option<ChildInfo>,
    pub(super) polls: Polls,
    jobs: Option<usize>,
    pub(super) fewer_jobs: Option<Instant>,
    accepted: u64,
    pub(super) last_poll: Option<Instant>,
    /// A probe reached the level `polling`.
    pub(super) has_polled: bool,
    /// Jobs that have ended successfully.
    pub(super) succeeded: u64,
    /// The configuration of the runner's start, if this wrapper has read it before a reload.
    pub(super) first_config: Option<Arc<RunnerConfig>>,
}

impl Memory {
    pub(super) fn of(child: ChildInfo) -> Self {
        Self { child: Some(child), ..Self::default() }
    }

    /// Counts accepted job requests. Requests before the first probe, as of an adopted runner, count as of now: a time that is too late
    /// delays an alert, but a time that is too early causes a false one.
    pub(super) fn count_polls(&mut self, metrics: &RunnerMetrics, now: Instant) {
        // A failed read of the metrics does not reset the counters.
        if metrics.sections.is_empty() {
            return;
        }
        let direct: u64 = metrics.sections.values().map(|requests| requests.accepted).sum();
        let accepted = direct + metrics.router.map_or(0, |router| router.requests);
        if accepted > self.accepted {
            self.last_poll = Some(now);
        }
        self.accepted = accepted;
    }

    /// Counts successful jobs. The difference of the runner's counters can fall: a job counts as failed before its result is reported to
    /// GitLab, and as ended after that.
    pub(super) fn count_succeeded(&mut self, metrics: &RunnerMetrics) {
        self.succeeded = self.succeeded.max(metrics.jobs_succeeded());
    }

    /// Tracks the number of jobs; an unknown number changes nothing.
    pub(super) fn count_jobs(&mut self, jobs: Option<usize>, now: Instant) {
        let Some(jobs) = jobs else { return };
        if self.jobs.is_some_and(|before| jobs < before) {
            self.fewer_jobs = Some(now);
        }
        self.jobs = Some(jobs);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::daemon::health::runner_metrics::Requests;

    #[test]
    fn only_fewer_jobs_count_as_progress() {
        let mut memory = Memory::default();
        let begin = Instant::now();
        let mut seen = |jobs, second| {
            memory.count_jobs(jobs, begin + Duration::from_secs(second));
            memory.fewer_jobs.map(|moment| (moment - begin).as_secs())
        };
        assert_eq!(
            (seen(None, 0), seen(Some(3), 1), seen(Some(3), 2), seen(Some(5), 3)),
            (None, None, None, None)
        );
        assert_eq!((seen(Some(4), 4), seen(None, 5), seen(Some(4), 6)), (Some(4), Some(4), Some(4)));
        assert_eq!(seen(Some(2), 7), Some(7), "while nobody could look, two ended");
    }

    #[test]
    fn number_of_succeeded_jobs_never_falls() {
        let mut memory = Memory::default();
        let mut seen = |jobs_ended, jobs_failed| {
            memory.count_succeeded(&RunnerMetrics { jobs_ended, jobs_failed, ..RunnerMetrics::default() });
            memory.succeeded
        };
        assert_eq!((seen(0, 0), seen(3, 1), seen(3, 2)), (0, 2, 2), "a failed job reports its result");
        assert_eq!((seen(4, 2), seen(0, 0), seen(5, 2)), (2, 2, 3), "one page was empty");
    }

    #[test]
    fn last_poll_advances_with_accepted_requests() {
        let mut memory = Memory::default();
        let begin = Instant::now();
        let mut seen = |accepted: &[u64], rejected, second| {
            let requests = |accepted| Requests { accepted, rejected, ..Requests::default() };
            let named =
                accepted.iter().enumerate().map(|(name, accepted)| (name.to_string(), requests(*accepted)));
            let metrics = RunnerMetrics { sections: named.collect(), ..RunnerMetrics::default() };
            memory.count_polls(&metrics, begin + Duration::from_secs(second));
            memory.last_poll.map(|moment| (moment - begin).as_secs())
        };
        assert_eq!((seen(&[], 0, 0), seen(&[0, 0], 5, 1)), (None, None));
        assert_eq!(
            (seen(&[3, 0], 5, 2), seen(&[3, 0], 9, 3), seen(&[3, 1], 9, 4)),
            (Some(2), Some(2), Some(4))
        );
        assert_eq!((seen(&[], 0, 5), seen(&[3, 1], 9, 6)), (Some(4), Some(4)), "the page was away");
        assert_eq!(seen(&[4, 1], 9, 7), Some(7));
    }
}
