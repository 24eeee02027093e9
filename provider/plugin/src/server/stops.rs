//! The stop tokens of calls.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::server::call::Operation;

/// The tokens that a stop cancels.
///
/// Terraform requests a stop once, and then waits for the running calls without a limit. A create that arrives after that must not start a
/// long wait: for changes, the stop holds until the end of the run. Later reads and plans belong to Terraform's cleanup: a stop cancels
/// only the running ones.
///
/// A process of `--debug` serves several runs, and is configured at the start of each.
#[derive(Debug, Default)]
pub(super) struct Stops {
    changes: Mutex<CancellationToken>,
    others: Mutex<CancellationToken>,
    configured: AtomicBool,
}

impl Stops {
    /// A token for one call: cancelled by the next stop, and for a change also by an earlier one.
    pub(super) fn token(&self, operation: Operation) -> CancellationToken {
        match operation {
            Operation::Create | Operation::Update | Operation::Destroy | Operation::Invoke => {
                self.changes.lock().child_token()
            }
            Operation::Read | Operation::Other => self.others.lock().child_token(),
        }
    }

    pub(super) fn stop(&self) {
        self.changes.lock().cancel();
        std::mem::take(&mut *self.others.lock()).cancel();
    }

    /// Terraform configures the provider: a run starts.
    ///
    /// The first run of a process keeps an earlier stop: Terraform sends both from different threads, so the stop can arrive before the
    /// configuration of its run. A later run starts without the stop of the previous one.
    pub(super) fn begin_run(&self) {
        if !self.configured.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut changes = self.changes.lock();
        if changes.is_cancelled() {
            *changes = CancellationToken::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_cancels_all_calls_in_flight() {
        let stops = Stops::default();
        let tokens =
            [Operation::Create, Operation::Update, Operation::Destroy, Operation::Read, Operation::Other]
                .map(|operation| stops.token(operation));
        assert!(tokens.iter().all(|token| !token.is_cancelled()));
        stops.stop();
        assert!(tokens.iter().all(CancellationToken::is_cancelled));
    }

    #[test]
    fn stop_cancels_later_changes_but_not_reads() {
        let stops = Stops::default();
        stops.stop();
        for change in [Operation::Create, Operation::Update, Operation::Destroy, Operation::Invoke] {
            assert!(stops.token(change).is_cancelled(), "{change:?}");
        }
        let read = stops.token(Operation::Read);
        assert!(!read.is_cancelled());
        stops.stop();
        assert!(read.is_cancelled());
    }

    #[test]
    fn stop_does_not_affect_next_run() {
        let stops = Stops::default();
        stops.begin_run();
        let before = stops.token(Operation::Create);
        stops.stop();
        assert!(before.is_cancelled(), "the stop reaches the calls of its own run");
        stops.begin_run();
        assert!(!stops.token(Operation::Create).is_cancelled());
        assert!(before.is_cancelled());
    }

    #[test]
    fn stop_before_first_configure_is_kept() {
        let stops = Stops::default();
        stops.stop();
        stops.begin_run();
        assert!(stops.token(Operation::Create).is_cancelled());
    }
}
