//! Who has to stop, and when.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use crate::call::Operation;

/// The tokens that a stop fires.
///
/// Terraform asks once and then waits for the calls in flight without limit. A create that was already on its way when it asked arrives
/// afterwards, and must not start to wait for an hour: for changes the stop holds until the end of the run. Reads and plans that come
/// later are part of Terraform's own tidying up: only those in flight are stopped.
///
/// A process that stays for several runs (`--debug`) is configured again at the start of each.
#[derive(Debug, Default)]
pub(super) struct Stops {
    changes: Mutex<CancellationToken>,
    others: Mutex<CancellationToken>,
    configured: AtomicBool,
}

impl Stops {
    /// A token for one call, fired by the next stop; for a change also by an earlier one.
    pub(super) fn token(&self, operation: Operation) -> CancellationToken {
        match operation {
            Operation::Create | Operation::Update | Operation::Destroy => lock(&self.changes).child_token(),
            Operation::Read | Operation::Other => lock(&self.others).child_token(),
        }
    }

    pub(super) fn stop(&self) {
        lock(&self.changes).cancel();
        std::mem::take(&mut *lock(&self.others)).cancel();
    }

    /// Terraform configures the provider: a run begins.
    ///
    /// The first run of a process keeps a stop that came before it: Terraform sends both from different threads, so the stop can arrive
    /// before the configuration of the run that it is meant for. A later run begins without the stop of the run before it.
    pub(super) fn begin_run(&self) {
        if !self.configured.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut changes = lock(&self.changes);
        if changes.is_cancelled() {
            *changes = CancellationToken::new();
        }
    }
}

fn lock(token: &Mutex<CancellationToken>) -> MutexGuard<'_, CancellationToken> {
    token.lock().unwrap_or_else(PoisonError::into_inner)
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
        for change in [Operation::Create, Operation::Update, Operation::Destroy] {
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
