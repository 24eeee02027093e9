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
            // It was cancelled, and is requested again.
            self.current = None;
        }
        if let Some(replaced) = replaced {
            self.former = replaced.process;
            return true;
        }
        false
    }

    /// The wrapper has accepted a request that named the former process, which has therefore ended. Its answer is about the process that drains
    /// now.
    pub(super) fn accepted(&mut self, snapshot: &Snapshot) {
        self.exit_unseen |= !mem::take(&mut self.former).is_empty();
        self.current = None;
        self.was_replaced(snapshot);
    }
}

impl Process {
    fn is_replaced(&self, snapshot: &Snapshot, detail: &Detail) -> bool {
        let is_its_drain = |id: &str| id == self.drain || self.drain == "signal";
        let is_same = match snapshot.report.status {
            RunnerStatus::Stopped => detail.drain.as_ref().is_some_and(|drain| is_its_drain(&drain.id)),
            // Also between two processes, and from an older wrapper.
            _ => detail.process.is_empty() || detail.process == self.process,
        };
        !is_same && !detail.last_drain.as_deref().is_some_and(is_its_drain)
    }
}
