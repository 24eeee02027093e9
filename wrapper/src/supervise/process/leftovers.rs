//! Processes that are still running after the runner exited: its jobs, which are separate process groups.
//!
//! They are found by parent PID: descendants of the runner while it is running, and of the wrapper, which becomes the parent of the runner's orphans.
//! Other processes are never killed: neither the wrapper and its ancestors, nor processes that are older than the runner. Names, command lines
//! and environments are not used: other users choose them.

use std::{collections::HashSet, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::{identity::Identity, list, stat::Process};

/// Maximum time for killed processes to exit. A process that hangs in the kernel is then reported.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// First delay between two checks; it doubles up to [`MAX_KILL_INTERVAL`], because a search reads all processes of the host.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_KILL_INTERVAL: Duration = Duration::from_millis(500);

/// The processes of one runner, except the runner itself.
#[derive(Debug)]
pub(in crate::supervise) struct LeftoverProcesses {
    runner: Identity,
    /// Whether the runner's orphans become children of this process.
    adopts: bool,
    /// Processes that belonged to the runner while it was running.
    seen: HashSet<(u32, u64)>,
}

impl LeftoverProcesses {
    pub(in crate::supervise) fn new(runner: Identity) -> Self {
        let adopts = rustix::process::child_subreaper().is_ok_and(|set| set.is_some());
        Self { runner, adopts, seen: HashSet::new() }
    }

    /// Records the runner's current processes, in case their parents exit.
    pub(in crate::supervise) fn remember(&mut self) {
        self.seen = self.find().iter().map(Process::id).collect();
    }

    /// Logs those that are still running after the runner has exited.
    pub(in crate::supervise) fn report(&self) {
        for process in self.find() {
            let (pid, age_seconds, command) =
                (process.pid, process.age().map(|age| age.as_secs()), process.name());
            let runner_pid = self.runner.pid;
            warn!(
                pid,
                age_seconds,
                command,
                runner_pid,
                "a process of the runner is still running after the runner exited"
            );
        }
    }

    /// Kills all processes found now.
    pub(in crate::supervise) fn kill(&self) {
        self.find().iter().for_each(kill);
    }

    /// Kills them until none is left, for at most [`KILL_LIMIT`], and logs those that cannot be killed.
    pub(in crate::supervise) async fn end(&self) {
        let begin = Instant::now();
        let mut killed = HashSet::new();
        let mut interval = KILL_INTERVAL;
        let runner_pid = self.runner.pid;
        loop {
            let found = self.find();
            found.iter().for_each(kill);
            if found.is_empty() || begin.elapsed() >= KILL_LIMIT {
                if !killed.is_empty() {
                    info!(
                        processes = killed.len(),
                        runner_pid, "killed processes that were still running after the runner exited"
                    );
                }
                for process in found {
                    let (pid, command) = (process.pid, process.name());
                    error!(pid, command, runner_pid, "cannot kill a process of the runner");
                }
                return;
            }
            killed.extend(found.iter().map(|process| process.pid));
            sleep(interval).await;
            interval = (interval * 2).min(MAX_KILL_INTERVAL);
        }
    }

    fn find(&self) -> Vec<Process> {
        let me = std::process::id();
        let all = list::all();
        let own_group = all.iter().find(|process| process.pid == me).map_or(0, |process| process.group);
        let is_root = |process: &&Process| {
            // No process of the runner is older than the runner.
            process.start_ticks >= self.runner.start_ticks
                && (self.seen.contains(&process.id())
                    || (self.adopts && process.parent == me && process.group != own_group)
                    || (process.pid == self.runner.pid && process.start_ticks == self.runner.start_ticks))
        };
        let roots: HashSet<u32> = all.iter().filter(is_root).map(|process| process.pid).collect();
        let found = list::descendants(&all, &roots, me);
        let is_left = |process: &&Process| !process.has_ended() && process.pid != self.runner.pid;
        found.into_iter().filter(is_left).cloned().collect()
    }
}

/// Kills exactly this process, even if its PID was reused.
fn kill(process: &Process) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    // Checked after opening the pidfd: from then on the PID cannot be reused.
    if Process::of(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks) {
        // The process has just exited, or this user may not kill it; then it is reported.
        let _refused = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
