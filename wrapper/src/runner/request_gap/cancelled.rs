//! The job requests that SIGQUIT has cancelled.
//!
//! The runner counts each of them with the status -1, some milliseconds after the signal, and responds until it exits. A request that failed for another
//! reason between the last read before the signal and the signal counts as well. The requests that GitLab held do not count.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{read::Read, sections::Sections};
use crate::supervise::RequestsCancelled;

/// So long after SIGQUIT, also an older runner, which does not report the state of its process, has counted them.
const COUNTED: Duration = Duration::from_millis(250);

/// The counters in the last read before SIGQUIT.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) ended: Instant,
    /// Unanswered requests, others that have ended, and those that GitLab holds.
    sections: BTreeMap<String, (u64, u64, u64)>,
    routed: u64,
    /// SIGQUIT was not received before.
    pub(super) is_first_signal: bool,
    /// It was received before: what it has cancelled is not known.
    pub(super) is_draining: bool,
}

impl Before {
    pub(super) fn new(read: &Read<'_>, sections: &Sections) -> Self {
        let of = |(name, requests): (&String, &crate::runner::runner_metrics::Requests)| {
            (name.clone(), (requests.unanswered, requests.ended(), sections.held(name, read)))
        };
        Self {
            ended: read.ended,
            sections: read.metrics.sections.iter().map(of).collect(),
            routed: read.metrics.router.map_or(0, |router| router.requests),
            is_first_signal: read.metrics.process_state.is_some() && !read.is_draining(),
            is_draining: read.is_draining(),
        }
    }

    /// What a read after SIGQUIT, which was sent at `signal`, shows. `None` if it shows nothing: for example, all of them may be requests that GitLab held.
    pub(super) fn cancelled(&self, read: &Read<'_>, signal: Instant) -> Option<RequestsCancelled> {
        let (mut number, mut held_left, mut open, mut is_reported) = (0_u64, 0_u64, 0_u64, true);
        for (name, requests) in &read.metrics.sections {
            let (unanswered, ended, held) = self.sections.get(name).copied().unwrap_or_default();
            let cancelled = requests.unanswered.saturating_sub(unanswered);
            let held = held.saturating_sub(requests.ended().saturating_sub(ended));
            number = number.saturating_add(cancelled.saturating_sub(held));
            held_left = held_left.saturating_add(held.saturating_sub(cancelled));
            open = open.saturating_add(requests.open.unwrap_or_default());
            is_reported &= requests.open.is_some();
        }
        // The router counts its requests without section and result.
        let routed = read.metrics.router.map_or(0, |router| router.requests).saturating_sub(self.routed);
        number = number.saturating_add(routed.saturating_sub(held_left));
        if number > 0 && !is_reported || read.metrics.sections.is_empty() {
            return None;
        }
        let is_counted = read.began >= signal + COUNTED || read.is_draining() && is_reported;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Some(RequestsCancelled { number, is_final: is_counted && open == 0 })
    }
}
