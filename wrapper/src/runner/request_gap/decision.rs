//! What the runner's metrics show of its job requests. Without I/O.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    cancelled::Before,
    read::Read,
    sections::{Reading, Sections},
    turns::Turns,
};
use crate::{
    runner::{runner_config::RunnerConfig, runner_metrics::RunnerMetrics},
    supervise::{ChildInfo, RequestsCancelled},
};

/// When all reads of a runner that has never reported its open requests have failed for so long, they are unknown.
const UNREADABLE: Duration = Duration::from_secs(5);

/// A runner that loads its configuration has no HTTP server yet, and sends its first request just after. Longer than on a slow host; not measured.
const LOADS_FOR: Duration = Duration::from_secs(15);

/// The minimum time between two reports of numbers: each of them changes the status.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A read that takes longer, and much longer than the one before, shows old values.
const SLOW: Duration = Duration::from_millis(200);

/// The reads of one child, by its probes and in its waits for a gap, and what they show.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    child: Option<ChildInfo>,
    /// The reads of a stop in progress count. Those of the probes overlap with them: which values are older is not known.
    is_followed: bool,
    sections: Sections,
    turns: Turns,
    /// The duration of the last read.
    lasted: Option<Duration>,
    /// A read has shown the open requests.
    is_measured: bool,
    /// The counters of the last two reads: the last one may have ended just after SIGQUIT.
    counters: VecDeque<Before>,
    wait: Wait,
}

/// The present wait for a gap.
#[derive(Debug, Default)]
struct Wait {
    failing_since: Option<Instant>,
    reported: Option<(u32, Instant)>,
}

/// What a read changes for the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// So many job requests are open, for the first time in this wait.
    FirstOpen(u32),
    Open(u32),
    /// No request is open to which GitLab can assign a job. Whether the runner may send one at any time: when a job ends. Or whether it may have
    /// cancelled some: another process has sent SIGQUIT before.
    NoneOpen {
        may_begin: bool,
    },
    /// The runner does not report its open requests.
    NotReported,
}

impl Report {
    /// The number for the supervisor; `None` if it is not reported.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::FirstOpen(open) | Self::Open(open) => Some(open),
            Self::NoneOpen { .. } => Some(0),
            Self::NotReported => None,
        }
    }

    pub(crate) fn may_begin(self) -> bool {
        matches!(self, Self::NoneOpen { may_begin: true })
    }
}

impl Gap {
    /// The reads of a stop of this child begin.
    pub(crate) fn follow(&mut self, child: ChildInfo) {
        self.of(child);
        self.is_followed = true;
    }

    /// That stop is over, or was cancelled.
    pub(crate) fn end(&mut self) {
        self.is_followed = false;
    }

    /// A wait for a gap begins.
    pub(crate) fn begin_wait(&mut self, child: ChildInfo) {
        self.follow(child);
        self.wait = Wait::default();
    }

    fn of(&mut self, child: ChildInfo) {
        if self.child != Some(child) {
            *self = Self { child: Some(child), ..Self::default() };
        }
    }

    /// Adds the read of a probe.
    pub(crate) fn probe(&mut self, child: ChildInfo, read: &Read<'_>, config: Option<&RunnerConfig>) {
        if !self.is_followed {
            self.add(child, read, config);
        } else if self.child == Some(child) {
            self.is_measured |= read.is_measured();
        }
    }

    /// Adds a read before SIGQUIT, or after it.
    pub(crate) fn add(&mut self, child: ChildInfo, read: &Read<'_>, config: Option<&RunnerConfig>) {
        self.of(child);
        self.sections.add(read);
        self.turns.add(read, config.is_some_and(|config| has_no_free_slot(config, read.metrics)));
        self.lasted = Some(read.lasted());
        self.is_measured |= read.is_measured();
        self.counters.push_back(Before::new(read, &self.sections));
        if self.counters.len() > 2 {
            self.counters.pop_front();
        }
    }

    /// Adds a read of the wait. Without `read`, it has failed.
    pub(crate) fn wait(
        &mut self,
        child: ChildInfo,
        read: Option<&Read<'_>>,
        config: Option<&RunnerConfig>,
        now: Instant,
    ) -> Option<Report> {
        self.of(child);
        let Some(read) = read else {
            let since = *self.wait.failing_since.get_or_insert(now.max(child.started.at + LOADS_FOR));
            // Otherwise the runner has open requests, perhaps, until the limit of the wait.
            return (!self.is_measured && now >= since + UNREADABLE).then_some(Report::NotReported);
        };
        self.wait.failing_since = None;
        let is_slow = read.lasted() > SLOW.max(2 * self.lasted.unwrap_or_default());
        self.add(child, read, config);
        let is_at_limit = config.is_some_and(|config| is_at_limit(config, read.metrics));
        let is_close = !is_at_limit && self.turns.is_close(config, now);
        match self.sections.reading(read) {
            Reading::Unconfirmed => None,
            Reading::Open(0) if is_close || is_slow => None,
            Reading::Open(0) => {
                let may_begin = read.is_draining() || read.metrics.jobs.is_some_and(|jobs| jobs > 0);
                Some(Report::NoneOpen { may_begin })
            }
            Reading::Open(open) => {
                let before = self.wait.reported;
                let is_new = |(of, at): (u32, Instant)| of != open && now >= at + REPORT_INTERVAL;
                if !before.is_none_or(is_new) {
                    return None;
                }
                self.wait.reported = Some((open, now));
                Some(if before.is_none() { Report::FirstOpen(open) } else { Report::Open(open) })
            }
            Reading::NotReported => Some(Report::NotReported),
        }
    }

    /// The counters in the last read before SIGQUIT, which was sent at this moment.
    pub(super) fn before(&self, child: ChildInfo, signal: Instant) -> Option<Before> {
        let of_child = self.counters.iter().rev().filter(|_| self.child == Some(child));
        of_child.into_iter().find(|read| read.ended < signal).cloned()
    }
}

/// The reads after SIGQUIT.
#[derive(Debug)]
pub(crate) struct AfterSignal {
    signal: Instant,
    again: bool,
    before: Option<Before>,
    reported: Option<RequestsCancelled>,
}

impl AfterSignal {
    /// SIGQUIT was sent at this moment. `again`: an earlier wrapper may have sent it before, and its requests were counted before the first read of
    /// this one.
    pub(crate) fn new(gap: &Gap, child: ChildInfo, signal: Instant, again: bool) -> Self {
        Self { signal, again, before: gap.before(child, signal), reported: None }
    }

    /// Adds a read. Returns what is new.
    pub(crate) fn add(&mut self, read: &Read<'_>) -> Option<RequestsCancelled> {
        let before = self.before.as_ref()?;
        let mut found = before.cancelled(read, self.signal)?;
        found.is_final &= !before.is_draining && (!self.again || before.is_first_signal);
        let number = found.number.max(self.reported.map_or(0, |before| before.number));
        let is_final = found.is_final || self.reported.is_some_and(|before| before.is_final);
        let found = RequestsCancelled { number, is_final };
        (self.reported.replace(found) != Some(found)).then_some(found)
    }
}

/// Whether no section can begin a request in its next turn, because all have as many open requests as they may.
fn is_at_limit(config: &RunnerConfig, metrics: &RunnerMetrics) -> bool {
    metrics.sections.len() >= config.sections.len().max(1)
        && metrics.sections.values().all(crate::runner::runner_metrics::Requests::is_at_limit)
}

/// Whether all slots have a job or a request: a section that has its turn waits for one.
fn has_no_free_slot(config: &RunnerConfig, metrics: &RunnerMetrics) -> bool {
    let open: u64 = metrics.sections.values().filter_map(|requests| requests.open).sum();
    let used = metrics.jobs.map(|jobs| jobs + usize::try_from(open).unwrap_or(usize::MAX / 2));
    config.is_full(used)
}
