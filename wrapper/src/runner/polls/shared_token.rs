//! Sections with one short token.
//!
//! The runner shows nine characters of a token. The tokens of one GitLab group can begin alike, and the results of their requests are then one
//! counter. By name, the runner counts the turns of a section, its jobs, and its failed health checks (403, or a request that could not be sent):
//!
//! - A failed health check is a result of its section, and so is a job.
//! - A request follows a turn, or a job. If more requests have ended than the other sections can have sent, one of them is of this section.
//! - Without a failure, a section whose turn was a minute ago was not rejected, if GitLab has accepted requests of the others since: the same GitLab
//!   responds to a request within that time. Turns that are skipped, because the last request of a section is open, make this necessary.
//! - Another failed request may be of each of the sections.

use std::time::Duration;

use tokio::time::Instant;

use super::last::Last;
use crate::runner::runner_metrics::{Requests, RunnerMetrics, SectionId};

/// GitLab and its proxies end a request within this time, and hold one (long polling) for less.
const RESPONSE_LIMIT: Duration = Duration::from_secs(60);

/// The counters of a section, of the others with its short token, and of all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    own: Requests,
    /// The most requests that the others can have sent; `None` if the runner does not count turns.
    of_others: Option<u64>,
    all: Requests,
}

impl Counters {
    /// `None` if no other section has the short token.
    pub(super) fn of(id: &SectionId, metrics: &RunnerMetrics) -> Option<Self> {
        let (label, _) = id;
        metrics.configured.keys().find(|other| other.0 == *label && *other != id)?;
        // Also of sections that were removed: their requests stay in the counter of all.
        let others = metrics.named.iter().filter(|(other, _)| other.0 == *label && *other != id);
        let of_others = metrics.feeds.map(|_| others.map(|(_, other)| sent(other)).sum());
        let own = metrics.named.get(id).copied().unwrap_or_default();
        let all = metrics.sections.get(label).copied().unwrap_or_default();
        Some(Self { own, of_others, all })
    }

    /// The counters of the section. The results are those of all.
    pub(super) fn of_section(&self) -> Requests {
        let Requests { accepted, rejected, unanswered, other, .. } = self.all;
        Requests { accepted, rejected, unanswered, other, ..self.own }
    }
}

/// The most requests that a section can have sent.
fn sent(section: &Requests) -> u64 {
    section.turns.saturating_add(section.jobs_begun)
}

/// The turns that the executor has not prevented.
fn usable_turns(section: &Requests) -> u64 {
    section.turns.saturating_sub(section.without_machine.saturating_add(section.executor_failures))
}

/// What is known of the requests of one section.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedToken {
    before: Option<Counters>,
    /// The most requests that the section can have sent before the last failure that may be its own.
    sent_before_failure: u64,
    /// The usable turns before that failure.
    turns_before_failure: u64,
    /// The first read with a turn after that failure, and the accepted requests of all sections in it.
    turn: Option<(Instant, u64)>,
}

impl SharedToken {
    /// Adds a read. Returns the result of the section's last request, if the read shows one. `one_gitlab`: all sections have the same GitLab.
    pub(super) fn add(&mut self, now: Counters, moment: Instant, one_gitlab: bool) -> Option<Last> {
        let is_first = self.before.is_none();
        let before = self.before.replace(now).unwrap_or_default();
        let rise = |count: fn(&Requests) -> u64| count(&now.all).saturating_sub(count(&before.all));
        let has_failed = now.own.health_failures > before.own.health_failures;
        let failed_checks = rise(|all| all.health_failures);
        let is_unclear =
            rise(|all| all.unanswered + all.other) > 0 || rise(|all| all.rejected) > failed_checks;
        if has_failed || is_unclear {
            self.sent_before_failure = sent(&now.own);
            self.turns_before_failure = usable_turns(&now.own);
            self.turn = None;
        } else if self.turn.is_none() && usable_turns(&now.own) > self.turns_before_failure {
            self.turn = Some((moment, now.all.accepted));
        }
        let is_answered = |(since, accepted)| {
            one_gitlab && moment.duration_since(since) >= RESPONSE_LIMIT && now.all.accepted > accepted
        };
        let (accepted, rejected) = (rise(|all| all.accepted) > 0, rise(|all| all.rejected) > 0);
        // The runner reads its counters one after the other: those of an earlier read are not newer than the turns of this one.
        let is_proven = |of_others| before.all.results() > self.sent_before_failure.saturating_add(of_others);
        match (has_failed, is_unclear) {
            // Not if the counters are those of a runner that was not started just now.
            (true, _) if rejected && !(is_first && accepted) => Some(Last::Rejected),
            (false, true) if rejected && !accepted && failed_checks == 0 => Some(Last::Rejected),
            (true, _) | (false, true) => Some(Last::Failed),
            (false, false) => {
                let is_proven = now.own.jobs_begun > before.own.jobs_begun
                    || now.of_others.is_some_and(is_proven)
                    || self.turn.is_some_and(is_answered);
                is_proven.then_some(Last::Accepted)
            }
        }
    }
}
