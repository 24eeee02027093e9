//! Processes that are still running after the runner exited: its jobs, which are separate process groups.
//!
//! Where the runner has a [cgroup](super::cgroup), they are the processes of the cgroup, which no process leaves by accident. Elsewhere they are found
//! by parent PID: descendants of the runner while it is running, and of the wrapper, which becomes the parent of the runner's orphans.
//!
//! Other processes are never killed: neither the wrapper and its ancestors, nor processes that are older than the runner. Names, command lines
//! and environments are not used: other users choose them.

use std::{collections::HashSet, io, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::{
    cgroup::Cgroup,
    identity::{Identity, Origin},
    list,
    stat::Process,
};
use crate::supervise::core::Leftovers;

/// Maximum time for killed processes to exit. A process that hangs in the kernel is then reported.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// First delay between two checks; it doubles up to [`MAX_KILL_INTERVAL`], because a search reads all processes of the host.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_KILL_INTERVAL: Duration = Duration::from_millis(500);

/// The processes of one runner, except the runner itself.
#[derive(Debug)]
pub(super) struct LeftoverProcesses {
    runner: Identity,
    cgroup: Option<Cgroup>,
    /// Whether the runner's orphans become children of this process, and no other orphans do.
    adopts: bool,
    /// Processes that belonged to the runner while it was running.
    seen: HashSet<(u32, u64)>,
}

impl LeftoverProcesses {
    pub(super) fn new(runner: Identity, cgroup: Option<Cgroup>) -> Self {
        // The first process of a container becomes the parent of all orphans there.
        let adopts =
            rustix::process::child_subreaper().is_ok_and(|set| set.is_some()) && std::process::id() != 1;
        Self { runner, cgroup, adopts, seen: HashSet::new() }
    }

    /// For the runner of the previous wrapper.
    pub(super) fn of_earlier(runner: Identity, origin: &Origin) -> Self {
        let cgroup = origin.cgroup.as_deref().and_then(Cgroup::find);
        let seen = origin.seen.iter().copied().collect();
        Self { seen, ..Self::new(runner, cgroup) }
    }

    /// Records the runner's current processes where its cgroup does not have them, in case their parents exit.
    pub(super) fn remember(&mut self) -> Vec<(u32, u64)> {
        if self.cgroup.is_some() {
            return Vec::new();
        }
        self.seen = self.find().iter().map(Process::id).collect();
        self.seen.iter().copied().collect()
    }

    /// Kills or reports those that are still running after the runner has exited, and reports those that cannot be killed.
    pub(super) async fn finish(&self, policy: Leftovers) {
        let found = match policy {
            Leftovers::Kill => self.end().await,
            Leftovers::Report => self.find(),
        };
        found.iter().for_each(|process| report(self.runner.pid, process, policy));
    }

    /// Removes the cgroup, if it is empty.
    pub(super) fn close(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Kills all processes found now.
    pub(super) fn kill(&self) -> Vec<Process> {
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.kill()
            && error.kind() != io::ErrorKind::NotFound
        {
            info!(
                %error,
                "cannot kill the runner's cgroup as a whole; killing its processes one by one"
            );
        }
        let found = self.find();
        found.iter().for_each(kill);
        found
    }

    /// Kills them until none is left, for at most [`KILL_LIMIT`]. Returns those that are still running.
    async fn end(&self) -> Vec<Process> {
        let begin = Instant::now();
        let mut killed = HashSet::new();
        let mut interval = KILL_INTERVAL;
        loop {
            let found = self.kill();
            if found.is_empty() || begin.elapsed() >= KILL_LIMIT {
                if !killed.is_empty() {
                    info!(
                        processes = killed.len(),
                        runner_pid = self.runner.pid,
                        "killed processes that were still running after the runner exited"
                    );
                }
                return found;
            }
            killed.extend(found.iter().map(|process| process.pid));
            sleep(interval).await;
            interval = (interval * 2).min(MAX_KILL_INTERVAL);
        }
    }

    fn find(&self) -> Vec<Process> {
        let is_left = |process: &Process| !process.has_ended() && process.pid != self.runner.pid;
        if let Some(cgroup) = &self.cgroup {
            return cgroup.processes().into_iter().filter_map(Process::of).filter(is_left).collect();
        }
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
        found.into_iter().filter(|process| is_left(process)).cloned().collect()
    }
}

/// Logs a process that is still running after the attempt to kill it, or after the runner exited.
fn report(runner: u32, found: &Process, policy: Leftovers) {
    let (pid, age_seconds) = (found.pid, found.age().map(|age| age.as_secs()));
    let command = found.name();
    match policy {
        Leftovers::Kill => {
            error!(pid, age_seconds, command, runner_pid = runner, "cannot kill a process of the runner");
        }
        Leftovers::Report => warn!(
            pid,
            age_seconds,
            command,
            runner_pid = runner,
            "a process of the runner is still running after the runner exited"
        ),
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
