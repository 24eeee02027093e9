//! Whether the `[[runners]]` sections poll for jobs, from the runner's counters.

mod last;
mod shared_token;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use grit_proto::duration::human;
use tokio::time::Instant;

use self::{
    last::Last,
    shared_token::{Counters, SharedToken},
};
use super::{
    runner_config::{RunnerConfig, Section},
    runner_metrics::{CircuitBreaker, JobRouter, Requests, RunnerMetrics, SectionId},
};

/// If no job request of a section is accepted for this time, the section is not polling.
const SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// GitLab delays the response to a job request by up to this time while it has no job.
const LONG_POLL: Duration = Duration::from_secs(50);

/// Whether GitLab accepts the job requests of each section, found by comparing the counters of two probes.
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
    /// What was last seen, if anything was.
    last: Option<Last>,
    /// When a request was last seen accepted, or could not be sent, because the section has no free slot or machine.
    accepted_at: Option<Instant>,
    /// The time without an accepted request, if its limit was reached.
    silent_for: Option<Duration>,
    /// GitLab has accepted a request.
    accepted: bool,
    /// Failed health checks before the last load of the configuration, which makes the runner try each section again.
    failures_before_load: u64,
    /// The number of failed health checks in a row with which the runner pauses the requests, and for how long.
    pause: (u64, Duration),
    uses_router: bool,
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
            self.seen.values_mut().for_each(|seen| seen.accepted_at = Some(moment));
        }
        let is_full = config.is_none_or(|config| config.is_full(metrics.jobs));
        let silence_limit = config.map_or(SILENCE_LIMIT, silence_limit);
        // The router's metrics have no section, and no result of a single request.
        let routed = |router: Option<JobRouter>| router.map_or(0, |router| router.requests);
        let has_routed = routed(metrics.router) > routed(self.router)
            && metrics.router.is_some_and(|router| router.circuit_breaker == CircuitBreaker::Closed);
        self.router = metrics.router.or(self.router);
        let sections = config.map(|config| config.sections.as_slice()).unwrap_or_default();
        let named: HashMap<&str, &Section> =
            sections.iter().map(|section| (section.name.as_str(), section)).collect();
        let unknown = Section::default();
        let one_gitlab = sections.first().is_some_and(|first| {
            first.gitlab.is_some() && sections.iter().all(|section| section.gitlab == first.gitlab)
        });
        if self.config_loads > 0 && metrics.config_loads > self.config_loads {
            for seen in self.seen.values_mut() {
                seen.failures_before_load = seen.requests.health_failures;
            }
        }
        self.config_loads = self.config_loads.max(metrics.config_loads);
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
            let before = std::mem::replace(&mut seen.requests, now);
            let shown = if let Some(counters) = counters {
                seen.shared.get_or_insert_default().add(counters, moment, one_gitlab)
            } else {
                seen.shared = None;
                seen.accepted |= now.accepted > 0;
                seen.last_request(before, is_first, has_routed)
            };
            seen.accepted |= shown == Some(Last::Accepted);
            seen.last = shown.or(seen.last);
            let is_blocked =
                is_full || (limit > 0 && now.jobs >= limit) || now.without_machine > before.without_machine;
            if is_blocked || shown == Some(Last::Accepted) {
                seen.accepted_at = Some(moment);
            }
            let silent = moment.duration_since(*seen.accepted_at.get_or_insert(moment));
            seen.silent_for = (silent >= silence_limit).then_some(silence_limit);
        }
    }

    /// The sections that do not poll.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let faults = self.seen.iter().filter_map(|((label, name), seen)| {
            let why = seen.fault(self.router)?;
            let name = name.as_ref().map(|name| format!("{name:?} ")).unwrap_or_default();
            let waits =
                seen.last.is_none() && seen.requests.results() == 0 && seen.requests.executor_failures == 0;
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
        let is_rejected = |seen: &&Seen| {
            seen.last == Some(Last::Rejected) && !seen.accepted && seen.failures() >= seen.pause.0
        };
        self.seen.values().filter(is_rejected).count()
    }
}

impl Seen {
    /// What the counters show since the last probe, which had `before`.
    fn last_request(&self, before: Requests, is_first: bool, has_routed: bool) -> Option<Last> {
        let now = self.requests;
        let rise = |count: fn(&Requests) -> u64| count(&now).saturating_sub(count(&before));
        let (rejected, failures) =
            (rise(|requests| requests.rejected), rise(|requests| requests.health_failures));
        if rise(|requests| requests.accepted) > 0 {
            // This many failures since the last probe may have followed the accepted requests. The runner then disables the section, for an hour by
            // default, so no further request would correct the result. The time before the first probe is treated in the same way. After
            // a restart of the wrapper, the counters are those of weeks: if more requests failed than were accepted, the last one probably failed.
            let has_failed =
                failures.max(rejected) >= self.pause.0 || (is_first && now.failed() > now.accepted);
            return Some(if has_failed { Last::Failed } else { Last::Accepted });
        }
        match (rejected, failures) {
            (1.., _) => Some(Last::Rejected),
            (0, 1..) => Some(Last::Failed),
            (0, 0) => (self.uses_router && has_routed).then_some(Last::Accepted),
        }
    }

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
        let requests = &self.requests;
        let fault = match self.last {
            Some(Last::Accepted) => {
                let fault = |limit| format!("GitLab has accepted no job request for {}", human(limit));
                return self.silent_for.map(fault);
            }
            Some(Last::Rejected) => "GitLab rejects its token",
            None if self.shared.is_some() && requests.results() > 0 => {
                "another section has the same short token, and the runner's metrics do not show yet which of them GitLab accepts"
            }
            None if requests.failed() == 0 && requests.without_machine + requests.executor_failures > 0 => {
                "no job request has had a response yet; the executor has no free machine, or fails (see the runner's log)"
            }
            None if requests.failed() == 0 => "no job request has had a response yet",
            Some(Last::Failed) | None => {
                "its job requests failed; waiting for an accepted one (check URL, DNS, TLS, proxy and executor; see the runner's log)"
            }
        };
        let (failures, (limit, pause)) = (self.failures(), self.pause);
        if failures < limit {
            return Some(fault.to_owned());
        }
        Some(format!(
            "{fault}; {failures} job requests failed in total; after {limit} consecutive failures \
             (unhealthy_requests_limit) the runner pauses its job requests for {} (unhealthy_interval), or until \
             it reloads its configuration",
            human(pause)
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
