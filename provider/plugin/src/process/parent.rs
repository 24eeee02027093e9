//! Detects the exit of Terraform: it causes no signal and no call, and stdin is not a pipe.

use std::{os::unix::process::parent_id, time::Duration};

const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
pub(super) struct Parent(u32);

impl Parent {
    /// Must be called first: after the exit of the parent, another process is the parent.
    pub(super) fn of_this_process() -> Self {
        Self(parent_id())
    }

    /// Returns when the parent has exited.
    pub(super) async fn gone(self) {
        while parent_id() == self.0 {
            tokio::time::sleep(PARENT_POLL_INTERVAL).await;
        }
    }
}
