//! The process that was asked to drain: only its exit is the end of the drain.

use grit_proto::SIGNAL_DRAIN;

use crate::client::{Detail, RunnerStatus, Snapshot};

/// Follows the draining process through the wrappers of its host. Upstream's wrapper does not report the process.
#[derive(Debug, Default)]
pub(super) struct DrainingProcess {
    current: Option<Process>,
    /// Such a process has ended with its host, and its exit was not reported.
    pub(super) exit_unseen: bool,
}

/// What is known of a process that was draining, and is not reported any more.
#[derive(Debug)]
pub(super) enum Replaced {
    /// The host was restarted, which has ended the process.
    ByRestart,
    /// The wrapper lost its record, or another wrapper answers. The process may be running. Its PID.
    Unexplained(String),
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
    /// Follows the status. Returns `Some` once when the wrapper reports another process, and not the exit of the draining process.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) -> Option<Replaced> {
        let detail = snapshot.detail.as_deref()?;
        let replaced = self.current.take_if(|process| process.is_replaced(snapshot, detail));
        if let (RunnerStatus::InShutdown, Some(drain)) = (snapshot.report.status, &detail.drain)
            && !detail.process.is_empty()
        {
            self.current = Some(Process { process: detail.process.clone(), drain: drain.id.clone() });
        } else if detail.drain.is_none() {
            // Its drain was cancelled, and is requested again, or its exit was reported.
            self.current = None;
        }
        let replaced = replaced?;
        let of_this_boot =
            replaced.process.strip_prefix(&detail.boot_id).and_then(|rest| rest.strip_prefix('/'));
        let Some(rest) = of_this_boot else {
            self.exit_unseen = true;
            return Some(Replaced::ByRestart);
        };
        Some(Replaced::Unexplained(rest.split('/').next().unwrap_or_default().to_owned()))
    }
}

impl Process {
    fn is_replaced(&self, snapshot: &Snapshot, detail: &Detail) -> bool {
        let is_its_drain = |id: &str| id == self.drain || self.drain == SIGNAL_DRAIN;
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
