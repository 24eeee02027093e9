//! Detects the exit of Terraform: it causes no signal and no call, and stdin is not a pipe.

use std::{os::unix::process::parent_id, time::Duration};

use tokio::sync::oneshot;

/// The poll interval where pidfd is not available.
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
        if let Some(end) = self.watch() {
            // On an error, the parent is polled.
            let _ = end.await;
        }
        while self.is_alive() {
            tokio::time::sleep(PARENT_POLL_INTERVAL).await;
        }
    }

    fn is_alive(self) -> bool {
        parent_id() == self.0
    }

    /// Waits for the exit of the parent in a thread: tokio cannot wait for a pidfd without unsafe code.
    #[cfg(target_os = "linux")]
    fn watch(self) -> Option<oneshot::Receiver<()>> {
        use rustix::{
            event::{PollFd, PollFlags, poll},
            io::retry_on_intr,
            process::{Pid, PidfdFlags, pidfd_open},
        };
        let pid = Pid::from_raw(i32::try_from(self.0).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The PID was not reused if the parent is still running.
        if !self.is_alive() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let wait = move || {
            let polled = retry_on_intr(|| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None));
            if polled.is_ok() {
                // Fails only if the receiver was dropped.
                let _ = sender.send(());
            }
        };
        std::thread::Builder::new().name("parent-watch".into()).spawn(wait).ok()?;
        Some(receiver)
    }

    #[cfg(not(target_os = "linux"))]
    fn watch(self) -> Option<oneshot::Receiver<()>> {
        None
    }
}
