//! The part of the table that starts another child: after an unexpected end, and after the shutdown of an earlier wrapper.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    policy::Policy,
    state::{State, Supervision},
    stop::Stop,
};

/// The number of consecutive failures that is a crash loop.
const CRASH_LOOP: u32 = 5;

impl Supervision {
    /// After an unexpected end: waits for a restart, where the policy requires one.
    pub(super) fn consider_restart(&mut self, uptime: Option<Duration>, now: Instant, policy: &Policy) {
        let State::Exited { end, stop: None } = &self.state else { return };
        if uptime.is_some_and(|uptime| uptime >= policy.restart.stable_after) {
            self.failures = 0;
        }
        if policy.restart.wants(end.is_success()) && !self.leaving {
            let until = now + policy.restart.delay(self.failures);
            self.state = State::Backoff { until, end: end.clone() };
            self.restarted = true;
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// A stop for the shutdown of an earlier wrapper becomes the stop that a client requested.
    pub(super) fn hand_over(&mut self, owner: &Stop) {
        self.revive = false;
        if let State::Starting { stop: Some(stop) }
        | State::Stopping { stop, .. }
        | State::Exited { stop: Some(stop), .. } = &mut self.state
        {
            stop.id = owner.id.clone();
            stop.requested_by = Arc::clone(&owner.requested_by);
            if !owner.reason.is_empty() {
                stop.reason = Arc::clone(&owner.reason);
            }
        }
    }

    /// An earlier wrapper stopped its child for its own shutdown only: another child follows.
    pub(super) fn consider_revival(&mut self, now: Instant) {
        if let State::Exited { end, .. } = &self.state
            && self.revive
        {
            self.revive = false;
            self.restarted = false;
            self.state = State::Backoff { until: now, end: end.clone() };
        }
    }

    /// A stable child makes the failures of earlier children irrelevant.
    pub(super) fn consider_stable(&mut self, now: Instant) {
        if matches!(self.state, State::Running { .. }) && self.stable_at.is_some_and(|moment| now >= moment) {
            self.failures = 0;
            self.stable_at = None;
        }
    }

    /// After a requested start: failures of earlier children no longer count.
    pub(super) fn forget_failures(&mut self) {
        self.restarts = 0;
        self.failures = 0;
        self.restarted = false;
        self.stable_at = None;
    }

    /// Whether children keep failing before they are stable.
    pub fn is_crash_loop(&self) -> bool {
        self.failures >= CRASH_LOOP
    }
}
