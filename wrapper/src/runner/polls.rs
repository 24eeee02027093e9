//! Whether the `[[runners]]` sections poll for jobs, from the runner's counters.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    runner_config::{RunnerConfig, Section},
    runner_metrics::{CircuitBreaker, JobRouter, Requests, RunnerMetrics},
};
use crate::text::duration::show;

/// If no job request of a section ends for this time, the section is not polling.
const SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// GitLab delays the response to a job request by up to this time while it has no job.
const LONG_POLL: Duration = Duration::from_secs(50);

/// The result of the last job request of each section, found by comparing the counters of two probes.
///
/// A section is a label of the runner's metrics, a part of its token. Its settings are those of the section with the same name in the
/// configuration. Where it uses the job router, a request that was completed through the router without a failed health check counts as accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    seen: BTreeMap<String, Seen>,
    router: Option<JobRouter>,
    config_loads: u64,
}

/// What the last probe saw of a section.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: Option<String>,
    /// The number of sections with this label: they have one token.
    sections: usize,
    requests: Requests,
    last: Last,
    /// Failed health checks before the last load of the configuration, which makes the runner try each section again.
    failures_before_load: u64,
    /// The number of failed health checks in a row with which the runner pauses the requests, and for how long.
    pause: (u64, Duration),
    uses_router: bool,
    /// Since when a job request could end, and none has ended.
    silent_since: Option<Instant>,
    /// The limit of this time, if it was reached.
    silent_for: Option<Duration>,
}

/// A section that does not poll.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) reason: String,
    /// The runner has not sent a job request of this section yet, as far as its metrics show. The section is not the cause of this.
    pub(super) waits: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Accepted,
    /// Unknown: requests were accepted and failed since the last probe.
    Mixed,
    Rejected,
    Unanswered,
    Failed,
    /// A health check failed without a request.
    NotSent,
}

impl Polls {
    /// `config` has the settings of the sections; for other sections GitLab Runner's defaults are used.
    pub(super) fn update(&mut self, metrics: &RunnerMetrics, config: Option<&RunnerConfig>) {
        let moment = Instant::now();
        let labels: Vec<&String> = if metrics.configured.is_empty() {
            metrics.sections.keys().collect()
        } else {
            // The counters of a section that was removed from the configuration stay.
            self.seen.retain(|label, _| metrics.configured.contains_key(label));
            metrics.configured.keys().collect()
        };
        // The metrics could not be read.
        if labels.is_empty() {
            self.seen.values_mut().for_each(|seen| seen.silent_since = None);
        }
        let is_full = config.is_none_or(|config| config.is_full(metrics.jobs));
        let silence_limit = config.map_or(SILENCE_LIMIT, silence_limit);
        let router_moved = metrics.router.is_some() && metrics.router != self.router;
        let routed = |router: JobRouter| router.requests;
        // The router's metrics have no section, and no result of a single request.
        let has_routed = metrics.router.map_or(0, routed) > self.router.map_or(0, routed)
            && metrics.router.is_some_and(|router| router.circuit_breaker == CircuitBreaker::Closed);
        self.router = metrics.router.or(self.router);
        let sections = config.map(|config| config.sections.as_slice()).unwrap_or_default();
        let named: HashMap<&str, &Section> =
            sections.iter().map(|section| (section.name.as_str(), section)).collect();
        let unknown = Section::default();
        let is_reloaded = self.config_loads > 0 && metrics.config_loads > self.config_loads;
        self.config_loads = self.config_loads.max(metrics.config_loads);
        if is_reloaded {
            for seen in self.seen.values_mut() {
                seen.failures_before_load = seen.requests.health_failures;
            }
        }
        for label in labels {
            let now = metrics.sections.get(label).copied().unwrap_or_default();
            let configured = metrics.configured.get(label);
            let name = configured.and_then(|configured| configured.name.as_deref());
            let section = match sections {
                [only] => only,
                _ => name.and_then(|name| named.get(name).copied()).unwrap_or(&unknown),
            };
            let is_first = !self.seen.contains_key(label);
            let seen = self.seen.entry(label.clone()).or_default();
            seen.name = name.map(str::to_owned);
            seen.sections = configured.map_or(1, |configured| configured.sections);
            seen.pause = (section.unhealthy_requests_limit, section.unhealthy_interval);
            seen.uses_router = section.uses_job_router;
            let before = seen.requests;
            let rise = |count: fn(&Requests) -> u64| count(&now).saturating_sub(count(&before));
            let failures = rise(|requests| requests.health_failures);
            // This many failures since the last probe may have followed the accepted requests. The runner then disables the section, for
            // an hour by default, so no further request would correct the result. The time before the first probe is treated in the same
            // way.
            let disabling = failures.max(rise(|requests| requests.rejected)) >= seen.pause.0;
            // After adoption, the counters are those of weeks. If more requests failed than were accepted, the last one probably failed.
            let mostly_failed = is_first && now.failed() > now.accepted;
            seen.last = if rise(|requests| requests.accepted) > 0 {
                if disabling || mostly_failed { Last::Mixed } else { Last::Accepted }
            } else if rise(|requests| requests.rejected) > 0 {
                Last::Rejected
            } else if rise(|requests| requests.other) > 0 || (failures > 0 && seen.uses_router) {
                Last::Failed
            } else if rise(|requests| requests.unanswered) > 0 {
                Last::Unanswered
            } else if failures > 0 {
                Last::NotSent
            } else if seen.uses_router && has_routed {
                Last::Accepted
            } else {
                seen.last
            };
            seen.requests = now;
            let limit = configured.map_or(0, |configured| configured.limit);
            let is_blocked = is_full || (limit > 0 && now.jobs >= limit);
            if is_blocked || before != now || (seen.uses_router && router_moved) {
                seen.silent_since = Some(moment);
            }
            let silent = moment.duration_since(*seen.silent_since.get_or_insert(moment));
            seen.silent_for = (silent >= silence_limit).then_some(silence_limit);
        }
    }

    /// The sections that do not poll.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let faults = self.seen.iter().filter_map(|(label, seen)| {
            let why = seen.fault(self.router)?;
            let name = seen.name.as_ref().map(|name| format!("{name:?} ")).unwrap_or_default();
            let waits = seen.last == Last::Nothing && seen.requests.executor_failures == 0;
            Some(Fault { reason: format!("runner {name}({label}): {why}"), waits })
        });
        faults.collect()
    }

    /// The number of sections in the metrics.
    pub(super) fn known(&self) -> usize {
        self.seen.values().map(|seen| seen.sections).sum()
    }

    /// The number of sections that poll, of those in the configuration.
    pub(crate) fn polling(&self, config: &RunnerConfig) -> usize {
        let polling = self.seen.values().filter(|seen| seen.fault(self.router).is_none());
        polling.map(|seen| seen.sections).sum::<usize>().min(config.sections.len())
    }

    /// The number of sections whose token GitLab has always rejected, until the runner paused their requests.
    pub(crate) fn rejected(&self) -> usize {
        let is_rejected = |seen: &&Seen| {
            seen.last == Last::Rejected && seen.requests.accepted == 0 && seen.failures() >= seen.pause.0
        };
        self.seen.values().filter(is_rejected).map(|seen| seen.sections).sum()
    }
}

impl Seen {
    /// Failed health checks since the last load of the configuration.
    fn failures(&self) -> u64 {
        self.requests.health_failures.saturating_sub(self.failures_before_load)
    }

    /// Why the section is not polling; `None` if it is.
    fn fault(&self, router: Option<JobRouter>) -> Option<String> {
        let fault = self.request_fault()?;
        if !self.uses_router {
            return Some(fault);
        }
        let how = match router.map(|router| router.circuit_breaker) {
            None => "FF_USE_JOB_ROUTER is on, but the runner has no metrics of the job router",
            Some(CircuitBreaker::Closed) => "its job requests are sent through the job router",
            Some(CircuitBreaker::Open | CircuitBreaker::HalfOpen) => {
                "the job router is unreachable (circuit breaker open), so job requests are sent to GitLab directly"
            }
        };
        Some(format!("{fault}; {how}"))
    }

    fn request_fault(&self) -> Option<String> {
        let fault = match self.last {
            Last::Accepted => {
                let fault = |limit| format!("no job request has completed for {}", show(limit));
                return self.silent_for.map(fault);
            }
            Last::Mixed => {
                "some job requests since the last probe failed; waiting for the next accepted request"
            }
            Last::Rejected => "GitLab rejects its token",
            Last::Unanswered => {
                "its job requests get no valid response (check DNS, connection, TLS and proxy; see the runner's log)"
            }
            Last::Failed => "its job requests fail",
            Last::NotSent => {
                "the runner cannot send its job requests (check executor, URL and TLS files; see the runner's log)"
            }
            Last::Nothing if self.requests.without_machine > 0 => {
                "no job request has had a response yet; the executor has no free machine"
            }
            Last::Nothing if self.requests.executor_failures > 0 => {
                "no job request has had a response yet; the executor fails (see the runner's log)"
            }
            Last::Nothing => "no job request has had a response yet",
        };
        let (failures, (limit, pause)) = (self.failures(), self.pause);
        if failures < limit {
            return Some(fault.to_owned());
        }
        Some(format!(
            "{fault}; {failures} job requests failed in total; after {limit} consecutive failures \
             (unhealthy_requests_limit) the runner pauses its job requests for {} (unhealthy_interval), or until \
             it reloads its configuration",
            show(pause)
        ))
    }
}

/// Three turns: with one free slot, the runner sends the requests of its sections one after the other.
fn silence_limit(config: &RunnerConfig) -> Duration {
    let sections = u32::try_from(config.sections.len()).unwrap_or(u32::MAX);
    let turn = config.check_interval.max(LONG_POLL.saturating_mul(sections));
    SILENCE_LIMIT.max(turn.saturating_mul(3))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::runner::runner_metrics::Configured;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A runner whose sections had one accepted job request each.
    struct Runner {
        config: RunnerConfig,
        metrics: RunnerMetrics,
        polls: Polls,
    }

    impl Runner {
        fn new(sections: usize) -> Self {
            let names: Vec<_> = (0..sections).map(|number| format!("s{number}")).collect();
            let section = |name: &String| Section { name: name.clone(), ..Section::default() };
            let config = RunnerConfig {
                concurrent: Some(4),
                sections: names.iter().map(section).collect(),
                ..RunnerConfig::default()
            };
            let requests = Requests { accepted: 1, ..Requests::default() };
            let sections = names.into_iter().map(|name| (name, requests)).collect();
            let metrics = RunnerMetrics { jobs: Some(0), sections, ..RunnerMetrics::default() };
            Self { config, metrics, polls: Polls::default() }
        }

        fn requests(&mut self) -> &mut Requests {
            self.metrics.sections.get_mut("s0").unwrap()
        }

        fn probe(&mut self) -> Option<String> {
            self.polls.update(&self.metrics, Some(&self.config));
            self.polls.seen["s0"].fault(self.polls.router)
        }

        /// The time until the first section has a fault, in minutes.
        async fn minutes_until_fault(&mut self) -> u64 {
            let begin = Instant::now();
            while self.probe().is_none() {
                assert!(begin.elapsed() < 100 * MINUTE, "still polling");
                advance(MINUTE / 2).await;
            }
            begin.elapsed().as_secs() / 60
        }
    }

    #[tokio::test(start_paused = true)]
    async fn section_whose_requests_do_not_end_is_not_polling() {
        let mut runner = Runner::new(1);
        assert_eq!(runner.minutes_until_fault().await, 5);
        assert_eq!(runner.probe().as_deref(), Some("no job request has completed for 5m"));
        assert_eq!(runner.polls.polling(&runner.config), 0);
        runner.requests().accepted = 2;
        assert_eq!(runner.minutes_until_fault().await, 5);
        // The executor has no free machine, so that no request is sent.
        runner.requests().without_machine = 1;
        assert_eq!(runner.minutes_until_fault().await, 5);
        runner.requests().rejected = 1;
        assert!(runner.probe().unwrap().contains("rejects its token"));
    }

    #[tokio::test(start_paused = true)]
    async fn token_without_accepted_request_before_pause_is_rejected() {
        let rejected = |accepted, failures| {
            let mut runner = Runner::new(1);
            *runner.requests() = Requests { accepted, ..*runner.requests() };
            runner.probe();
            runner.requests().rejected = failures;
            runner.requests().health_failures = failures;
            runner.probe();
            runner.polls.rejected()
        };
        assert_eq!([rejected(0, 2), rejected(0, 3), rejected(1, 3)], [0, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_free_slot_is_not_counted() {
        let mut runner = Runner::new(1);
        let busy = async |runner: &mut Runner| {
            for _ in 0..20 {
                assert_eq!(runner.probe(), None);
                advance(MINUTE).await;
            }
            runner.probe();
        };
        runner.metrics.jobs = Some(4);
        busy(&mut runner).await;
        runner.metrics.jobs = Some(3);
        assert_eq!(runner.minutes_until_fault().await, 5);
        // The section has reached its own limit.
        let limit =
            |limit| BTreeMap::from([("s0".to_owned(), Configured { name: None, limit, sections: 1 })]);
        runner.metrics.configured = limit(2);
        runner.requests().jobs = 2;
        busy(&mut runner).await;
        runner.metrics.configured = limit(3);
        assert_eq!(runner.minutes_until_fault().await, 5);
        // The metrics cannot be read, for example while the process is suspended.
        runner.requests().accepted = 2;
        runner.probe();
        let unread = RunnerMetrics::default();
        let read = std::mem::replace(&mut runner.metrics, unread);
        busy(&mut runner).await;
        runner.metrics = RunnerMetrics { jobs: Some(0), ..read };
        assert_eq!(runner.minutes_until_fault().await, 5);
    }

    /// With one free slot, the runner sends the requests of its sections in turn, and GitLab can delay each response by 50 s.
    #[tokio::test(start_paused = true)]
    async fn many_sections_and_long_check_interval_need_more_time() {
        assert_eq!(Runner::new(2).minutes_until_fault().await, 5);
        assert_eq!(Runner::new(12).minutes_until_fault().await, 30);
        let mut rare = Runner::new(2);
        rare.config.check_interval = 10 * MINUTE;
        assert_eq!(rare.minutes_until_fault().await, 30);
        assert_eq!(rare.probe().as_deref(), Some("no job request has completed for 30m"));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_requests_of_job_router_count() {
        let mut runner = Runner::new(1);
        runner.config.sections[0].uses_job_router = true;
        for requests in 0..20 {
            runner.metrics.router = Some(JobRouter { requests, ..JobRouter::default() });
            assert_eq!(runner.probe(), None);
            advance(MINUTE).await;
        }
        assert_eq!(runner.minutes_until_fault().await, 4);
        let fault = runner.probe().unwrap();
        assert!(fault.starts_with("no job request has completed for 5m; its job requests are"));
    }

    #[test]
    fn two_sections_with_one_token_count_twice() {
        let (mut polls, mut metrics) = (Polls::default(), RunnerMetrics::default());
        metrics.add_line("gitlab_runner_limit{runner=\"token\",runner_name=\"a\"} 0");
        metrics.add_line("gitlab_runner_limit{runner=\"token\",runner_name=\"b\"} 0");
        polls.update(&metrics, None);
        assert_eq!(polls.known(), 2);
    }
}
