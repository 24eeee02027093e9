//! The calls that wait for the next change of a status.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use grit_proto::wrapper_v1 as v1;
use tokio::sync::Notify;

/// The changes that one wrapper reports. The waiting calls wake in the order in which they came: those of `tokio::sync::watch` in a random one.
#[derive(Clone, Debug, Default)]
pub(in crate::simulation) struct Changes {
    calls: Arc<Calls>,
    /// What the waiting calls have received.
    status: v1::Status,
}

#[derive(Debug, Default)]
struct Calls {
    notify: Notify,
    waiting: AtomicU32,
    has_ended: AtomicBool,
}

/// A waiting call.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Changes {
    pub(super) fn is_watched(&self) -> bool {
        self.calls.waiting.load(Relaxed) > 0
    }

    /// The stream sends a status that differs from the one before (`daemon::serve::grpc::v1`).
    pub(super) fn report(&mut self, status: v1::Status) {
        if status != self.status {
            self.status = status;
            self.calls.notify.notify_waiters();
        }
    }

    /// For a new call, which has received this status.
    pub(super) fn watch(&mut self, status: v1::Status) -> Self {
        self.status = status;
        self.clone()
    }

    /// The calls that wait for the task of the wrapper go on.
    pub(super) fn wake(&self) {
        self.calls.notify.notify_waiters();
    }

    /// The wrapper has ended. The next one reports its own changes.
    pub(super) fn end(&mut self) {
        self.calls.has_ended.store(true, Relaxed);
        self.calls.notify.notify_waiters();
        *self = Self::default();
    }

    /// Waits for the next change. Returns `false` at the end of the wrapper.
    pub(in crate::simulation) async fn next(&self) -> bool {
        if !self.calls.has_ended.load(Relaxed) {
            self.calls.waiting.fetch_add(1, Relaxed);
            let _waiting = Waiting(&self.calls.waiting);
            self.calls.notify.notified().await;
        }
        !self.calls.has_ended.load(Relaxed)
    }
}
