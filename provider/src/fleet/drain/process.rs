//! The process that was asked to drain: only its exit is the end of the drain.

use std::mem;

use crate::client::{Detail, RunnerStatus, Snapshot};

/// Follows the draining process through the wrappers of its host. Upstream's wrapper does not report the process.
#[derive(Debug, Default)]
pub(super) struct DrainingProcess {
    current: Option<Process>,
    /// The process that was draining before, until the wrapper has confirmed that it is not running; otherwise empty. A request names it.
    pub(super) former: String,
    /// Such a process has ended, and its exit was not reported.
    pub(super) exit_unseen: bool,
}

/// A process that is draining.
#[derive(Debug)]
struct Process {
    /// [`Detail::process`].
    process: String,
    /// The id of its drain.
    drain: String,
}

impl DrainingProcess {
    /// Whether the wrapper now reports another process, and not the exit of the one that was draining. `true` only once for each.
    pub(super) fn was_replaced(&mut self, snapshot: &Snapshot) -> bool {
        let Some(detail) = snapshot.detail.as_deref() else { return false };
        let replaced = self.current.take_if(|process| process.is_replaced(snapshot, detail));
        if let (RunnerStatus::InShutdown, Some(drain)) = (snapshot.report.status, &detail.drain)
            && !detail.process.is_empty()
        {
            self.current = Some(Process { process: detail.process.clone(), drain: drain.id.clone() });
        } else if detail.drain.is_none() {
            // Its drain was cancelled, and is requested again, or its exit was reported.
            self.current = None;
        }
        let Some(replaced) = replaced else { return false };
        if self.former.is_empty() {
            self.former = replaced.process;
        }
        true
    }

    /// The wrapper has accepted a request. If that named the former process, it has ended. The answer is about the process that drains now.
    pub(super) fn accepted(&mut self, snapshot: &Snapshot) {
        if !mem::take(&mut self.former).is_empty() {
            self.exit_unseen = true;
            self.current = None;
        }
        // Another process than the one that is draining is found by the next status, and then named.
        if self.current.is_none() {
            self.was_replaced(snapshot);
        }
    }
}

impl Process {
    fn is_replaced(&self, snapshot: &Snapshot, detail: &Detail) -> bool {
        let is_its_drain = |id: &str| id == self.drain || self.drain == "signal";
        let has_its_drain = detail.drain.as_ref().is_some_and(|drain| is_its_drain(&drain.id));
        let is_same = match snapshot.report.status {
            RunnerStatus::Stopped => has_its_drain,
            // A wrapper without a process of the runner keeps the drain, also if it is an older one. A wrapper that has neither has not
            // reported the exit.
            _ => detail.process == self.process || (detail.process.is_empty() && has_its_drain),
        };
        !is_same && !detail.last_drain.as_deref().is_some_and(is_its_drain)
    }
}
