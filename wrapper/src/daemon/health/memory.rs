//! What is known of one child beyond a single probe.

use std::{sync::Arc, time::Duration};

use super::{polls::Polls, runner_config::RunnerConfig, runner_metrics::RunnerMetrics};
use crate::supervise::{ChildInfo, Moment, State};

/// The runner's process state after SIGTERM or SIGINT.
const FORCEFUL_SHUTDOWN: &str = "forceful-shutdown";

/// Values of one child that are kept between two probes.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) child: Option<ChildInfo>,
    pub(super) polls: Polls,
    jobs: Option<usize>,
    pub(super) fewer_jobs: Option<Moment>,
    accepted: u64,
    pub(super) last_poll: Option<Moment>,
    /// A probe reached the level `polling`.
    pub(super) has_polled: bool,
    /// Jobs that have ended successfully.
    pub(super) succeeded: u64,
    /// Interrupted jobs before the drain, or at the first probe that could read them.
    interrupted: Option<u64>,
    /// During a drain the runner began to abort its jobs.
    pub(super) aborts_jobs: bool,
    /// The runner's limit for its cleanup after SIGTERM, from the last readable configuration.
    pub(super) shutdown_timeout: Option<Duration>,
    /// The configuration of the runner's start, if this wrapper has read it before a reload.
    pub(super) first_config: Option<Arc<RunnerConfig>>,
}

impl Memory {
    pub(super) fn of(child: ChildInfo) -> Self {
        Self { child: Some(child), ..Self::default() }
    }

    /// Counts accepted job requests. Requests before the first probe, as of an adopted runner, count as of now: a time that is too late
    /// delays an alert, but a time that is too early causes a false one.
    pub(super) fn count_polls(&mut self, metrics: &RunnerMetrics, now: Moment) {
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

    /// Notes that another process made a drain forceful, by SIGTERM or SIGINT to the runner.
    pub(super) fn note_abort(&mut self, state: &State, metrics: &RunnerMetrics) {
        // A failed read of the metrics does not reset the counter.
        if metrics.version.is_none() {
            return;
        }
        let interrupted = metrics.jobs_interrupted;
        let before = *self.interrupted.get_or_insert(interrupted);
        match state {
            // The wrapper itself stops the runner forcefully.
            State::Stopping { phase, .. } if phase.is_forceful() => {}
            State::Stopping { .. } => {
                let is_forceful = metrics.process_state.as_deref() == Some(FORCEFUL_SHUTDOWN);
                self.aborts_jobs |= is_forceful || interrupted > before;
            }
            State::Idle
            | State::Starting { .. }
            | State::Running { .. }
            | State::Backoff { .. }
            | State::Exited { .. } => self.interrupted = Some(interrupted),
        }
    }

    /// Tracks the number of jobs; an unknown number changes nothing.
    pub(super) fn count_jobs(&mut self, jobs: Option<usize>, now: Moment) {
        let Some(jobs) = jobs else { return };
        if self.jobs.is_some_and(|before| jobs < before) {
            self.fewer_jobs = Some(now);
        }
        self.jobs = Some(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::health::runner_metrics::Requests,
        supervise::{Mode, Phase, Stop},
    };

    #[test]
    fn only_fewer_jobs_count_as_progress() {
        let mut memory = Memory::default();
        let begin = Moment::now();
        let mut seen = |jobs, second| {
            memory.count_jobs(jobs, begin + Duration::from_secs(second));
            memory.fewer_jobs.map(|moment| moment.since(begin).as_secs())
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
    fn abort_is_noted_only_in_a_drain() {
        let child = ChildInfo::example(1);
        let running = State::Running { child, reload: None };
        let stopping = |mode, phase| State::Stopping { child, stop: Stop::new("d", mode), phase };
        let draining = stopping(Mode::Graceful, Phase::draining(child.started));
        let terminating =
            stopping(Mode::Forceful, Phase::Terminating { until: child.started, refused: None });
        let metrics = |process_state: &str, jobs_interrupted| RunnerMetrics {
            version: Some("19.1.0".to_owned()),
            process_state: Some(process_state.to_owned()),
            jobs_interrupted,
            ..RunnerMetrics::default()
        };
        let aborts = |probes: &[(&State, RunnerMetrics)]| {
            let mut memory = Memory::default();
            probes.iter().for_each(|(state, metrics)| memory.note_abort(state, metrics));
            memory.aborts_jobs
        };
        let graceful = |interrupted| metrics("graceful-shutdown", interrupted);
        let forceful = |interrupted| metrics("forceful-shutdown", interrupted);
        assert!(!aborts(&[(&running, metrics("running", 0)), (&draining, graceful(0))]));
        assert!(aborts(&[(&draining, forceful(0))]));
        assert!(aborts(&[(&draining, forceful(0)), (&draining, RunnerMetrics::default())]));
        assert!(aborts(&[(&running, graceful(1)), (&draining, graceful(2))]));
        assert!(!aborts(&[(&draining, graceful(1)), (&draining, graceful(1))]), "an adopted runner");
        let unread = RunnerMetrics::default();
        assert!(!aborts(&[(&running, graceful(1)), (&draining, unread), (&draining, graceful(1))]));
        assert!(!aborts(&[(&draining, graceful(0)), (&terminating, forceful(1))]), "a forceful stop");
    }

    #[test]
    fn last_poll_advances_with_accepted_requests() {
        let mut memory = Memory::default();
        let begin = Moment::now();
        let mut seen = |accepted: &[u64], rejected, second| {
            let requests = |accepted| Requests { accepted, rejected, ..Requests::default() };
            let named =
                accepted.iter().enumerate().map(|(name, accepted)| (name.to_string(), requests(*accepted)));
            let metrics = RunnerMetrics { sections: named.collect(), ..RunnerMetrics::default() };
            memory.count_polls(&metrics, begin + Duration::from_secs(second));
            memory.last_poll.map(|moment| moment.since(begin).as_secs())
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
