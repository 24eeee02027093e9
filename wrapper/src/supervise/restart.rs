//! The part of the table that follows an end which nobody asked for, or which was not meant for the child.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    command::Stop,
    policy::Policy,
    state::{State, Supervision},
};

/// So many failures in a row are no accident.
const CRASH_LOOP: u32 = 5;

impl Supervision {
    /// Turns an end that nobody asked for into a pause before the next child, where the policy wants one.
    pub(super) fn consider_restart(&mut self, lived: Option<Duration>, now: Instant, policy: &Policy) {
        let State::Exited { end, stop: None } = &self.state else { return };
        if lived.is_some_and(|lived| lived >= policy.restart.stable_after) {
            self.failures = 0;
        }
        if policy.restart.wants(end.is_success()) && !self.leaving {
            let until = now + policy.restart.delay(self.failures);
            self.state = State::Backoff { until, end: end.clone() };
            self.restarted = true;
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// The stop of an earlier wrapper's end becomes that of somebody who wants the child stopped.
    pub(super) fn hand_over(&mut self, owner: &Stop) {
        self.revive = false;
        if let State::Starting { stop: Some(stop) }
        | State::Stopping { stop, .. }
        | State::Exited { stop: Some(stop), .. } = &mut self.state
        {
            stop.id = Arc::clone(&owner.id);
            stop.by = Arc::clone(&owner.by);
            if !owner.reason.is_empty() {
                stop.reason = Arc::clone(&owner.reason);
            }
        }
    }

    /// An earlier wrapper stopped its child for its own end only, and that has come.
    pub(super) fn consider_revival(&mut self, now: Instant) {
        if let State::Exited { end, .. } = &self.state
            && self.revive
        {
            self.revive = false;
            self.restarted = false;
            self.state = State::Backoff { until: now, end: end.clone() };
        }
    }

    /// A child that has lived for so long is of use, and what its predecessors did says nothing about it.
    pub(super) fn consider_stable(&mut self, now: Instant) {
        if matches!(self.state, State::Running { .. }) && self.stable_at.is_some_and(|moment| now >= moment) {
            self.failures = 0;
            self.stable_at = None;
        }
    }

    /// Somebody asked for a child: nobody counts what the earlier ones did against it.
    pub(super) fn forget_failures(&mut self) {
        self.restarts = 0;
        self.failures = 0;
        self.restarted = false;
        self.stable_at = None;
    }

    /// Whether children keep ending before they were of use, one after the other.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        self.failures >= CRASH_LOOP
    }
}
