//! A child process that leads a process group. The group ends with it: first SIGTERM, then SIGKILL.

use std::{
    collections::HashSet,
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    sync::{Arc, LazyLock},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Child,
    sync::watch,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::command::open_files;

/// How much of the standard error is kept.
const STDERR_KEPT: usize = 4096;
/// Between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// The process groups of this process's children.
static GROUPS: LazyLock<Groups> = LazyLock::new(Groups::new);

/// Waits for the child's end, or makes it when `end` fires.
pub fn supervise(child: Child, end: CancellationToken) -> impl Future<Output = Option<ExitStatus>> + Send {
    GROUPS.supervise(child, end)
}

/// Ends all supervised children before this process exits: SIGTERM, then SIGKILL at `deadline`. Children that start later are killed.
pub async fn end_all(deadline: Instant) {
    GROUPS.end_all(deadline).await;
}

/// Process groups that may have processes.
struct Groups(watch::Sender<Entries>);

struct Entries {
    running: HashSet<Pid>,
    /// This process is about to exit.
    closed: bool,
}

impl Groups {
    fn new() -> Self {
        Self(watch::Sender::new(Entries { running: HashSet::new(), closed: false }))
    }

    /// The group is an entry from the call on, also if the future is never polled.
    fn supervise(
        &'static self,
        mut child: Child,
        end: CancellationToken,
    ) -> impl Future<Output = Option<ExitStatus>> + Send {
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(leader) = group {
            open_files::restore_limit(leader);
        }
        // When the future is dropped, the kill still happens.
        let killer = group.map(|group| ProcessGroupKiller::new(self, group));
        async move {
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
    }

    async fn end_all(&self, deadline: Instant) {
        let mut entries = self.0.subscribe();
        for group in &entries.borrow().running {
            signal(Some(*group), Signal::TERM);
        }
        // Each group is killed and removed when its leader has exited.
        let ended = entries.wait_for(|entries| entries.running.is_empty());
        if tokio::time::timeout_at(deadline, ended).await.is_err() {
            tracing::warn!("killing commands that did not exit after SIGTERM");
        }
        self.0.send_modify(|entries| {
            entries.closed = true;
            for group in &entries.running {
                signal(Some(*group), Signal::KILL);
            }
        });
    }
}

/// Kills a group when dropped.
struct ProcessGroupKiller {
    groups: &'static Groups,
    group: Pid,
}

impl ProcessGroupKiller {
    fn new(groups: &'static Groups, group: Pid) -> Self {
        groups.0.send_modify(|entries| {
            entries.running.insert(group);
            if entries.closed {
                signal(Some(group), Signal::KILL);
            }
        });
        Self { groups, group }
    }
}

impl Drop for ProcessGroupKiller {
    fn drop(&mut self) {
        signal(Some(self.group), Signal::KILL);
        self.groups.0.send_modify(|entries| {
            entries.running.remove(&self.group);
        });
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
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last part of a stream, which is read to its end: a pipe that is not read would block its writer.
#[derive(Debug, Clone, Default)]
pub struct LastPart(Arc<Mutex<Vec<u8>>>);

impl LastPart {
    pub async fn read(&self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            let mut kept = self.0.lock();
            kept.extend(buffer.iter().take(count));
            let excess = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..excess);
        }
    }

    /// What was read last, if anything was.
    pub fn text(&self) -> Option<String> {
        let bytes = self.0.lock();
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, process::Stdio};

    use tokio::{process::Command, time::timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A group of its own, whose shell has executed `script` up to its `echo`.
    async fn start(script: &str) -> Child {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(child.stdout.as_mut().unwrap().read_u8().await.unwrap(), b'\n');
        child
    }

    fn groups() -> &'static Groups {
        Box::leak(Box::new(Groups::new()))
    }

    #[tokio::test]
    async fn end_all_sends_sigterm_then_sigkill() {
        let groups = groups();
        let end = CancellationToken::new();
        let polite = groups.supervise(start("echo; exec sleep 3017").await, end.clone());
        let status = tokio::spawn(polite);
        groups.end_all(Instant::now() + LIMIT).await;
        assert_eq!(describe(status.await.unwrap().unwrap()), "killed by signal 15");

        let groups = self::groups();
        let stubborn = groups.supervise(start("trap '' TERM; echo; exec sleep 3017").await, end);
        let status = tokio::spawn(stubborn);
        groups.end_all(Instant::now() + Duration::from_millis(100)).await;
        assert_eq!(describe(timeout(LIMIT, status).await.unwrap().unwrap().unwrap()), "killed by signal 9");
    }

    #[tokio::test]
    async fn end_all_returns_immediately_without_children() {
        let end = groups();
        let mut end = pin!(end.end_all(Instant::now() + LIMIT));
        assert!(futures::poll!(&mut end).is_ready());
    }

    #[tokio::test]
    async fn child_that_starts_after_end_all_is_killed() {
        let groups = groups();
        groups.end_all(Instant::now()).await;
        let child = start("echo; exec sleep 3017").await;
        let status = groups.supervise(child, CancellationToken::new());
        assert_eq!(describe(timeout(LIMIT, status).await.unwrap().unwrap()), "killed by signal 9");
    }
}
