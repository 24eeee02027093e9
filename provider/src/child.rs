//! A child process that leads a process group. The group ends with it: first SIGTERM, then SIGKILL.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Child,
};
use tokio_util::sync::CancellationToken;

use crate::open_files;

/// How much of the standard error is kept.
const STDERR_KEPT: usize = 4096;
/// Between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// Waits for the child's end, or makes it when `end` fires.
pub(crate) async fn supervise(mut child: Child, end: CancellationToken) -> Option<ExitStatus> {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(leader) = group {
        open_files::restore_limit(leader);
    }
    // When the runtime goes away in between, the kill still happens.
    let killer = ProcessGroupKiller(group);
    let status = tokio::select! {
        status = child.wait() => status.ok(),
        () = end.cancelled() => {
            signal(group, Signal::TERM);
            match tokio::time::timeout(GRACE, child.wait()).await {
                Ok(status) => status.ok(),
                Err(_) => {
                    signal(group, Signal::KILL);
                    child.wait().await.ok()
                }
            }
        }
    };
    drop(killer); // what the child left behind in its group
    status
}

/// Kills a group when dropped.
struct ProcessGroupKiller(Option<Pid>);

impl Drop for ProcessGroupKiller {
    fn drop(&mut self) {
        signal(self.0, Signal::KILL);
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group
        && let Err(error) = rustix::process::kill_process_group(group, signal)
    {
        tracing::trace!(%error, ?group, "cannot send signal to the process group of the command");
    }
}

/// `exit status 1`, or `killed by signal 9`.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last part of a stream, which is read to its end: a pipe that is not read would block its writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastPart(Arc<Mutex<Vec<u8>>>);

impl LastPart {
    pub(crate) async fn read(&self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(buffer.iter().take(count));
            let excess = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..excess);
        }
    }

    /// What was read last, if anything was.
    pub(crate) fn text(&self) -> Option<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}
