//! Who has to stop, and when.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::call::Operation;

/// The tokens that a stop fires.
///
/// Terraform asks once and then waits for the calls in flight without limit. A create that was already on its way when it asked arrives
/// afterwards, and must not start to wait for an hour: for changes the stop holds for good. Reads and plans that come later are
/// part of Terraform's own tidying up, or of a later run against a process that stays: only those in flight are stopped.
#[derive(Debug, Default)]
pub(super) struct Stops {
    changes: CancellationToken,
    others: Mutex<CancellationToken>,
}

impl Stops {
    /// A token for one call, fired by the next stop; for a change also by an earlier one.
    pub(super) fn token(&self, operation: Operation) -> CancellationToken {
        match operation {
            Operation::Create | Operation::Update | Operation::Destroy => self.changes.child_token(),
            Operation::Read | Operation::Other => {
                self.others.lock().unwrap_or_else(PoisonError::into_inner).child_token()
            }
        }
    }

    pub(super) fn stop(&self) {
        self.changes.cancel();
        std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_reaches_every_call_in_flight() {
        let stops = Stops::default();
        let tokens =
            [Operation::Create, Operation::Update, Operation::Destroy, Operation::Read, Operation::Other]
                .map(|operation| stops.token(operation));
        assert!(tokens.iter().all(|token| !token.is_cancelled()));
        stops.stop();
        assert!(tokens.iter().all(CancellationToken::is_cancelled));
    }

    #[test]
    fn a_stop_holds_for_later_changes_only() {
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
}
