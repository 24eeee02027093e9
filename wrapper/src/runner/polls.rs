//! Whether the `[[runners]]` sections poll for jobs, from the runner's counters.

mod last;
mod shared_token;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use self::{
    last::Last,
    shared_token::{Counters, SharedToken},
};
use super::{
    runner_config::{RunnerConfig, Section},
    runner_metrics::{CircuitBreaker, JobRouter, Requests, RunnerMetrics, SectionId},
};
use crate::text::duration::show;

/// If no job request of a section ends for this time, the section is not polling.
const SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// GitLab delays the response to a job request by up to this time while it has no job.
const LONG_POLL: Duration = Duration::from_secs(50);

/// The result of the last job request of each section, found by comparing the counters of two probes.
///
/// A section is a label of the runner's metrics, a part of its token, and its name, if others have [the same label](shared_token). Its settings
/// are those of the section with the same name in the configuration. Where it uses the job router, a request that was completed through the router without a failed health check counts as accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    seen: BTreeMap<SectionId, Seen>,
    router: Option<JobRouter>,
    config_loads: u64,
}

/// What the last probe saw of a section.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// A part of what follows, if another section has this label.
    shared: Option<SharedToken>,
    requests: Requests,
    last: Last,
    /// GitLab has accepted a request.
    accepted: bool,
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

impl Polls {
    /// `config` has the settings of the sections; for other sections GitLab Runner's defaults are used.
    pub(super) fn update(&mut self, metrics: &RunnerMetrics, config: Option<&RunnerConfig>) {
        let moment = Instant::now();
        let ids: Vec<SectionId> = if metrics.configured.is_empty() {
            metrics.sections.keys().map(|label| (label.clone(), None)).collect()
        } else {
            // The counters of a section that was removed from the configuration stay.
            self.seen.retain(|id, _| metrics.configured.contains_key(id));
            metrics.configured.keys().cloned().collect()
        };
        // The metrics could not be read.
        if ids.is_empty() {
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
        let one_gitlab = sections.first().is_some_and(|first| {
            first.gitlab.is_some() && sections.iter().all(|section| section.gitlab == first.gitlab)
        });
        let is_reloaded = self.config_loads > 0 && metrics.config_loads > self.config_loads;
        self.config_loads = self.config_loads.max(metrics.config_loads);
        if is_reloaded {
            for seen in self.seen.values_mut() {
                seen.failures_before_load = seen.requests.health_failures;
            }
        }
        for id in ids {
            let counters = Counters::of(&id, metrics);
            let now = counters.map_or_else(
                || metrics.sections.get(&id.0).copied().unwrap_or_default(),
                |counters| counters.of_section(),
            );
            let limit = metrics.configured.get(&id).copied().unwrap_or_default();
            let section = match sections {
                [only] => only,
                _ => id.1.as_deref().and_then(|name| named.get(name).copied()).unwrap_or(&unknown),
            };
            let is_first = !self.seen.contains_key(&id);
            let seen = self.seen.entry(id).or_default();
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
            seen.last = if let Some(counters) = counters {
                let shared = seen.shared.get_or_insert_default();
                shared.add(counters, moment, one_gitlab).unwrap_or(seen.last)
            } else if rise(|requests| requests.accepted) > 0 {
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
            if counters.is_none() {
                seen.shared = None;
            }
            seen.accepted |= if counters.is_some() { seen.last == Last::Accepted } else { now.accepted > 0 };
            seen.requests = now;
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
        let faults = self.seen.iter().filter_map(|((label, name), seen)| {
            let why = seen.fault(self.router)?;
            let name = name.as_ref().map(|name| format!("{name:?} ")).unwrap_or_default();
            let waits = seen.last == Last::Nothing && seen.requests.executor_failures == 0;
            Some(Fault { reason: format!("runner {name}({label}): {why}"), waits })
        });
        faults.collect()
    }

    /// The number of sections in the metrics.
    pub(super) fn known(&self) -> usize {
        self.seen.len()
    }

    /// The number of sections that poll, of those in the configuration.
    pub(crate) fn polling(&self, config: &RunnerConfig) -> usize {
        let polling = self.seen.values().filter(|seen| seen.fault(self.router).is_none());
        polling.count().min(config.sections.len())
    }

    /// The number of sections whose token GitLab has always rejected, until the runner paused their requests.
    pub(crate) fn rejected(&self) -> usize {
        let is_rejected =
            |seen: &&Seen| seen.last == Last::Rejected && !seen.accepted && seen.failures() >= seen.pause.0;
        self.seen.values().filter(is_rejected).count()
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
            Last::Nothing if self.shared.is_some() && self.requests.results() > 0 => {
                "another section has the same short token, and the runner's metrics do not show yet which of them GitLab accepts"
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
mod tests;
