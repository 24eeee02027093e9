//! What is known of one child: the result of the last probe, and what is remembered of earlier ones.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    job_list::Job,
    polls::Polls,
    runner_config::{ConfigError, RunnerConfig},
    runner_metrics::RunnerMetrics,
    unreported::Unreported,
};
use crate::supervise::{ChildInfo, Moment, Observation, Phase, State};

/// The runner's process state after SIGTERM or SIGINT.
const FORCEFUL_SHUTDOWN: &str = "forceful-shutdown";

/// After SIGQUIT, the runner reports another process state at once. Later than this, it has not received the signal.
const QUIT_PERIOD: Duration = Duration::from_secs(5);

/// The level and the status follow from it. Its default is that nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// The probed child; `None` before the first probe, and without a child.
    pub(crate) child: Option<ChildInfo>,
    /// The configuration of the runner, also without a child; `None` before the first read.
    pub(crate) config: Option<Result<Arc<RunnerConfig>, ConfigError>>,
    /// Uptime of the child; `None` if it is stopping.
    pub(crate) uptime: Option<Duration>,
    /// The child was started after an unexpected exit.
    pub(crate) restarted: bool,
    /// The child is suspended (SIGSTOP).
    pub(crate) suspended: bool,
    /// Why the child is not the runner.
    pub(crate) launcher: Option<String>,
    /// SIGQUIT was sent some seconds ago, and the runner still reports the process state `running`.
    pub(crate) quit_has_no_effect: bool,
    /// The runner has an HTTP server.
    pub(crate) has_server: bool,
    /// Why the server did not respond.
    pub(crate) fault: Option<String>,
    /// The text of `/health/ready`, and whether its status was 200. Older runners do not have this path.
    pub(crate) ready: Option<(bool, String)>,
    pub(crate) metrics: RunnerMetrics,
    /// Number of running jobs; `None` if unknown.
    pub(crate) jobs: Option<usize>,
    /// The oldest running job, if the job list has one.
    pub(crate) oldest: Option<Oldest>,

    // What follows is kept between two probes.
    pub(crate) polls: Polls,
    /// The last known number of jobs.
    pub(crate) known_jobs: Option<usize>,
    /// Time of the last decrease of the number of jobs.
    pub(crate) fewer_jobs: Option<Moment>,
    pub(crate) accepted: u64,
    /// Time of the last probe that found a job request accepted by GitLab, in any section.
    pub(crate) last_poll: Option<Moment>,
    /// A probe reached the level `polling`.
    pub(crate) has_polled: bool,
    /// Jobs of this process that have ended successfully.
    pub(crate) succeeded: u64,
    /// Interrupted jobs before the drain, or at the first probe that could read them.
    pub(crate) interrupted: Option<u64>,
    /// The runner has begun to abort its jobs, and this wrapper has not sent SIGTERM.
    pub(crate) aborts_jobs: bool,
    pub(crate) unreported: Unreported,
    /// When the runner may have dropped the result of a job during the drain, at the earliest.
    pub(crate) results_lost_from: Option<Moment>,
    /// The runner's limit for its cleanup after SIGTERM, from the last readable configuration.
    pub(crate) shutdown_timeout: Option<Duration>,
    /// The runner's metrics have shown its open job requests.
    pub(crate) reports_requests: bool,
    /// The configuration of the runner's start, if this wrapper has read it before a reload.
    pub(crate) first_config: Option<Arc<RunnerConfig>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Oldest {
    pub(crate) started: Instant,
    pub(crate) stage: String,
}

impl Evidence {
    /// The configuration, if it could be read.
    pub(crate) fn config(&self) -> Option<&RunnerConfig> {
        self.config.as_ref()?.as_deref().ok()
    }

    #[cfg(test)]
    pub(crate) fn set_config(&mut self, config: RunnerConfig) {
        self.config = Some(Ok(Arc::new(config)));
    }

    /// The result of boot-verify: the runner is ready after its canary jobs only. `None` if no canary job runs in a section.
    pub(crate) fn boot_verified(&self) -> Option<bool> {
        let sections = &self.first_config.as_ref()?.sections;
        let is_enabled = !sections.is_empty() && sections.iter().all(|section| section.boot_verify);
        self.ready.as_ref().filter(|_| is_enabled).map(|(ready, _)| *ready)
    }

    /// What the supervisor needs of it.
    pub(crate) fn observation(&self) -> Observation {
        Observation {
            aborts_jobs: self.aborts_jobs,
            results_lost_from: self.results_lost_from,
            shutdown_timeout: self.shutdown_timeout,
            reports_requests: self.reports_requests,
        }
    }

    /// Begins a probe of this child. Forgets what is known of another one, and what the last probe has read.
    pub(crate) fn begin(&mut self, child: ChildInfo, config: Result<Arc<RunnerConfig>, ConfigError>) {
        if self.child != Some(child) {
            *self = Self { child: Some(child), ..Self::default() };
        }
        self.config = Some(config);
        (self.fault, self.ready, self.metrics) = Default::default();
    }

    /// The job list of the runner, which was requested at `asked`, after its metrics; `None` if it is unknown.
    pub(crate) fn add_jobs(&mut self, jobs: Option<&[Job]>, asked: Moment, state: &State) {
        self.jobs = jobs.map(<[Job]>::len).or(self.metrics.jobs);
        self.oldest = jobs.and_then(oldest);
        if let Some(jobs) = jobs {
            let config = self.config.as_ref().and_then(|read| read.as_deref().ok());
            self.unreported.add(jobs, asked, &self.metrics, config);
        }
        let is_stopping = matches!(state, State::Stopping { .. });
        self.results_lost_from = self.unreported.lost_from().filter(|_| is_stopping);
    }

    /// Updates what is kept, after a probe in this state.
    pub(super) fn remember(&mut self, state: &State) {
        let now = Moment::now();
        self.count_jobs(now);
        let config = self.config.as_ref().and_then(|read| read.as_ref().ok());
        if let Some(config) = config {
            self.shutdown_timeout = Some(config.shutdown_timeout);
        }
        if !self.has_server {
            return;
        }
        self.reports_requests |= self.metrics.reports_requests();
        self.polls.update(&self.metrics, config.map(Arc::as_ref));
        if self.first_config.is_none() && self.metrics.config_loads == 1 {
            self.first_config = config.cloned();
        }
        self.count_polls(now);
        self.count_succeeded();
        self.note_abort(state);
    }

    /// Counts accepted job requests. Requests before the first probe, as of a runner that is older than the wrapper, count as of now: a time that is too late
    /// delays an alert, but a time that is too early causes a false one.
    fn count_polls(&mut self, now: Moment) {
        // A failed read of the metrics does not reset the counters.
        if self.metrics.sections.is_empty() {
            return;
        }
        let direct: u64 = self.metrics.sections.values().map(|requests| requests.accepted).sum();
        let accepted = direct + self.metrics.router.map_or(0, |router| router.requests);
        if accepted > self.accepted {
            self.last_poll = Some(now);
        }
        self.accepted = accepted;
    }

    /// Counts successful jobs. The difference of the runner's counters can fall: a job counts as failed before its result is reported to
    /// GitLab, and as ended after that.
    fn count_succeeded(&mut self) {
        self.succeeded = self.succeeded.max(self.metrics.jobs_succeeded());
    }

    /// Compares the state of the runner with the signal. `asked`: when the request for the metrics began.
    pub(super) fn note_quit(&mut self, state: &State, asked: Instant) {
        let is_late = matches!(state, State::Stopping { phase: Phase::Draining { since, .. }, .. } if asked >= since.at + QUIT_PERIOD);
        self.quit_has_no_effect = is_late && self.metrics.process_state.as_deref() == Some("running");
    }

    /// Notes that the runner aborts its jobs, although this wrapper has not sent SIGTERM: another process has sent SIGTERM or SIGINT, or an earlier
    /// wrapper that could not write the state file.
    fn note_abort(&mut self, state: &State) {
        let metrics = &self.metrics;
        // A failed read of the metrics does not reset the counter.
        if metrics.version.is_none() {
            return;
        }
        let interrupted = metrics.jobs_interrupted;
        let before = *self.interrupted.get_or_insert(interrupted);
        let is_forceful = metrics.process_state.as_deref() == Some(FORCEFUL_SHUTDOWN);
        match state {
            // The wrapper itself has sent SIGTERM.
            State::Stopping { phase: Phase::Terminating { .. } | Phase::Killed, .. } => {}
            State::Stopping { .. } => self.aborts_jobs |= is_forceful || interrupted > before,
            State::Running { .. } => {
                self.aborts_jobs |= is_forceful;
                self.interrupted = Some(interrupted);
            }
            State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => {
                self.interrupted = Some(interrupted);
            }
        }
    }

    /// Tracks the number of jobs; an unknown number changes nothing.
    fn count_jobs(&mut self, now: Moment) {
        let Some(jobs) = self.jobs else { return };
        if self.known_jobs.is_some_and(|before| jobs < before) {
            self.fewer_jobs = Some(now);
        }
        self.known_jobs = Some(jobs);
    }
}

fn oldest(jobs: &[Job]) -> Option<Oldest> {
    let job = jobs.iter().max_by_key(|job| job.duration)?;
    let started = Instant::now().checked_sub(job.duration)?;
    Some(Oldest { started, stage: job.stage.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        runner::{runner_config::Section, runner_metrics::Requests},
        supervise::{Mode, Stop},
    };

    #[test]
    fn only_fewer_jobs_count_as_progress() {
        let mut evidence = Evidence::default();
        let begin = Moment::now();
        let mut seen = |jobs, second| {
            evidence.jobs = jobs;
            evidence.count_jobs(begin + Duration::from_secs(second));
            evidence.fewer_jobs.map(|moment| moment.since(begin).as_secs())
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
        let mut evidence = Evidence::default();
        let mut seen = |jobs_ended, jobs_failed| {
            evidence.metrics = RunnerMetrics { jobs_ended, jobs_failed, ..RunnerMetrics::default() };
            evidence.count_succeeded();
            evidence.succeeded
        };
        assert_eq!((seen(0, 0), seen(3, 1), seen(3, 2)), (0, 2, 2), "a failed job reports its result");
        assert_eq!((seen(4, 2), seen(0, 0), seen(5, 2)), (2, 2, 3), "one page was empty");
    }

    #[test]
    fn abort_is_noted_unless_this_wrapper_has_sent_sigterm() {
        let child = ChildInfo::example(1);
        let running = State::Running { child, reload_at: None };
        let stopping = |mode, phase| State::Stopping { child, stop: Stop::new("d", mode), phase };
        let draining = stopping(Mode::Graceful, Phase::draining(child.started));
        let terminating = stopping(Mode::Forceful, Phase::Terminating { until: child.started });
        let metrics = |process_state: &str, jobs_interrupted| RunnerMetrics {
            version: Some("19.1.0".to_owned()),
            process_state: Some(process_state.to_owned()),
            jobs_interrupted,
            ..RunnerMetrics::default()
        };
        let aborts = |probes: &[(&State, RunnerMetrics)]| {
            let mut evidence = Evidence::default();
            for (state, metrics) in probes {
                evidence.metrics = metrics.clone();
                evidence.note_abort(state);
            }
            evidence.aborts_jobs
        };
        let graceful = |interrupted| metrics("graceful-shutdown", interrupted);
        let forceful = |interrupted| metrics("forceful-shutdown", interrupted);
        assert!(!aborts(&[(&running, metrics("running", 0)), (&draining, graceful(0))]));
        assert!(aborts(&[(&draining, forceful(0))]));
        assert!(aborts(&[(&draining, forceful(0)), (&draining, RunnerMetrics::default())]));
        assert!(aborts(&[(&running, graceful(1)), (&draining, graceful(2))]));
        assert!(
            !aborts(&[(&draining, graceful(1)), (&draining, graceful(1))]),
            "a runner that is older than the wrapper"
        );
        let unread = RunnerMetrics::default();
        assert!(!aborts(&[(&running, graceful(1)), (&draining, unread), (&draining, graceful(1))]));
        assert!(!aborts(&[(&draining, graceful(0)), (&terminating, forceful(1))]), "a forceful stop");
        // An earlier wrapper has sent SIGTERM, and could not write the state file.
        let spacing = stopping(Mode::Forceful, Phase::Spacing { until: child.started });
        assert!(aborts(&[(&spacing, forceful(0))]));
        assert!(aborts(&[(&running, forceful(0))]));
    }

    #[test]
    fn last_poll_advances_with_accepted_requests() {
        let mut evidence = Evidence::default();
        let begin = Moment::now();
        let mut seen = |accepted: &[u64], rejected, second| {
            let requests = |accepted| Requests { accepted, rejected, ..Requests::default() };
            let named =
                accepted.iter().enumerate().map(|(name, accepted)| (name.to_string(), requests(*accepted)));
            evidence.metrics = RunnerMetrics { sections: named.collect(), ..RunnerMetrics::default() };
            evidence.count_polls(begin + Duration::from_secs(second));
            evidence.last_poll.map(|moment| moment.since(begin).as_secs())
        };
        assert_eq!((seen(&[], 0, 0), seen(&[0, 0], 5, 1)), (None, None));
        assert_eq!(
            (seen(&[3, 0], 5, 2), seen(&[3, 0], 9, 3), seen(&[3, 1], 9, 4)),
            (Some(2), Some(2), Some(4))
        );
        assert_eq!((seen(&[], 0, 5), seen(&[3, 1], 9, 6)), (Some(4), Some(4)), "the page was away");
        assert_eq!(seen(&[4, 1], 9, 7), Some(7));
    }

    #[test]
    fn boot_verify_result_requires_it_in_all_sections() {
        let sections = vec![Section::default(), Section::default()];
        let mut config = RunnerConfig { sections, ..RunnerConfig::default() };
        let verified = |config: &RunnerConfig, ready| {
            let first_config = Some(Arc::new(config.clone()));
            Evidence { first_config, ready, ..Evidence::default() }.boot_verified()
        };
        let ready = Some((true, "ready".to_owned()));
        config.sections[0].boot_verify = true;
        assert_eq!(verified(&config, ready.clone()), None);
        config.sections[1].boot_verify = true;
        assert_eq!(verified(&config, ready.clone()), Some(true));
        assert_eq!(verified(&config, Some((false, String::new()))), Some(false));
        assert_eq!(verified(&config, None), None, "an older runner has no /health/ready");
        assert_eq!(verified(&RunnerConfig::default(), ready), None);
    }
}
