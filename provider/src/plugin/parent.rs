//! Noticing that Terraform died. Nothing else tells: no signal is sent, no call comes, and stdin is not a pipe.

use std::{os::unix::process::parent_id, time::Duration};

use tokio::sync::oneshot;

/// How often to look where the kernel cannot tell.
const POLL: Duration = Duration::from_millis(500);

/// The process that started us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent(u32);

impl Parent {
    /// To be asked first thing: when the parent dies, its place is taken by another.
    pub(super) fn of_this_process() -> Self {
        Self(parent_id())
    }

    /// Returns when the parent is gone.
    pub(super) async fn gone(self) {
        if let Some(end) = self.watch() {
            // An error means that the watching failed, so that we have to look ourselves.
            let _ = end.await;
        }
        while self.is_alive() {
            tokio::time::sleep(POLL).await;
        }
    }

    fn is_alive(self) -> bool {
        parent_id() == self.0
    }

    /// Waits for the end of the parent in a thread. (tokio can wait for a descriptor, but not in safe code.)
    #[cfg(target_os = "linux")]
    fn watch(self) -> Option<oneshot::Receiver<()>> {
        use rustix::{
            event::{PollFd, PollFlags, poll},
            io::retry_on_intr,
            process::{Pid, PidfdFlags, pidfd_open},
        };
        let pid = Pid::from_raw(i32::try_from(self.0).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // While the parent lives, its id is nobody else's: so the descriptor is surely of the parent.
        if !self.is_alive() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let wait = move || {
            let polled = retry_on_intr(|| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None));
            if polled.is_ok() {
                // Fails when nobody waits any more.
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
