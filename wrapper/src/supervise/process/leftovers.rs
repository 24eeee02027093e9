//! What a runner leaves behind when it ends: its jobs, which are process groups of their own and outlive it.
//!
//! They are found in three ways, and each finds what another may miss:
//! - in the runner's [cgroup](super::cgroup), where there is one. Nothing gets out of it by accident;
//! - by a marker in their environment, which the runner has from us and hands down. It survives the wrapper; a job loses it that starts
//!   with an empty environment;
//! - by descent: from the runner while it lives, and from us, to whom the kernel gives the children of a runner that has ended.
//!
//! Nothing else is touched: neither the wrapper and what it descends from, nor what was there before the runner.

use std::{collections::HashSet, fmt, fs, io, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::{
    cgroup::Cgroup,
    identity::Identity,
    list,
    marker::{Marker, VARIABLE},
    stat::Process,
};

/// How long killed processes may take to go. One that hangs in the kernel is then reported.
const LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(10);

/// The processes of one runner, other than the runner itself.
#[derive(Clone, Debug)]
pub(super) struct LeftoverProcesses {
    runner: Identity,
    marker: Option<Marker>,
    cgroup: Option<Cgroup>,
    /// Whether the kernel gives the runner's orphans to this process, and those of nobody else.
    adopts: bool,
    /// Processes that were seen to be the runner's while it lived.
    seen: HashSet<(u32, u64)>,
    since: Option<Instant>,
}

/// A process that lives on without its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverProcess {
    pub pid: u32,
    pub age: Option<Duration>,
    pub command: String,
    start_ticks: u64,
}

impl LeftoverProcesses {
    pub(super) fn new(runner: Identity, marker: Option<Marker>, cgroup: Option<Cgroup>) -> Self {
        // The first process of a container gets the orphans of everybody there.
        let adopts =
            rustix::process::child_subreaper().is_ok_and(|set| set.is_some()) && std::process::id() != 1;
        Self { runner, marker, cgroup, adopts, seen: HashSet::new(), since: None }
    }

    /// Of the runner of an earlier wrapper.
    pub(super) fn of_earlier(runner: Identity) -> Self {
        let marker = runner.origin.as_ref().map(|origin| origin.marker.clone()).filter(Marker::is_valid);
        let cgroup = marker.as_ref().and_then(Cgroup::find);
        let seen = runner.origin.iter().flat_map(|origin| origin.seen.iter().copied()).collect();
        Self { seen, ..Self::new(runner, marker, cgroup) }
    }

    /// Remembers the runner's processes of now, so that they are known when nothing else tells of them.
    pub(super) fn remember(&mut self) -> Vec<(u32, u64)> {
        self.seen = self.find().into_iter().map(|process| (process.pid, process.start_ticks)).collect();
        self.seen.iter().copied().collect()
    }

    /// Whether ending them has begun.
    pub(super) fn is_ending(&self) -> bool {
        self.since.is_some()
    }

    /// Kills all there are now.
    pub(super) fn kill(&self) -> Vec<Process> {
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.kill()
            && error.kind() != io::ErrorKind::NotFound
        {
            info!(%error, "cannot kill the runner's cgroup as a whole; killing its processes one by one");
        }
        let found = self.find();
        found.iter().for_each(kill);
        found
    }

    /// Kills them until none is left, for [`LIMIT`] at most. Answers what lives on.
    pub(super) async fn end(&mut self) -> Vec<LeftoverProcess> {
        let begin = *self.since.get_or_insert_with(Instant::now);
        let mut killed = HashSet::new();
        let mut was_empty = false;
        loop {
            let found = self.kill();
            // Seen twice: for a moment in the middle of exec a process shows no environment, and so no marker.
            let is_empty = found.is_empty();
            if (is_empty && was_empty) || begin.elapsed() >= LIMIT {
                if !killed.is_empty() {
                    info!(
                        processes = killed.len(),
                        runner = self.runner.pid,
                        "killed the processes that the runner left running"
                    );
                }
                return self.told(&found);
            }
            was_empty = is_empty;
            killed.extend(found.iter().map(|process| process.pid));
            sleep(PAUSE).await;
        }
    }

    /// Those that live now.
    pub(super) fn look(&self) -> Vec<LeftoverProcess> {
        self.told(&self.find())
    }

    /// Forgets the cgroup, if nothing is in it.
    pub(super) fn close(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    fn find(&self) -> Vec<Process> {
        let me = std::process::id();
        let all = list::all();
        let own_group = all.iter().find(|process| process.pid == me).map_or(0, |process| process.group);
        let in_cgroup: HashSet<u32> = self.cgroup.iter().flat_map(Cgroup::processes).collect();
        let is_root = |process: &&Process| {
            // Nothing of the runner's is older than the runner.
            process.start_ticks >= self.runner.start_ticks()
                && (in_cgroup.contains(&process.pid)
                    || self.seen.contains(&(process.pid, process.start_ticks))
                    || (self.adopts && process.parent == me && process.group != own_group)
                    || (process.pid == self.runner.pid && process.start_ticks == self.runner.start_ticks())
                    || self
                        .marker
                        .as_ref()
                        .is_some_and(|marker| process.has_in_environment(VARIABLE, marker.as_str())))
        };
        let roots = all.iter().filter(is_root).map(|process| process.pid).collect();
        let found = list::descendants(&all, &roots, me);
        found
            .into_iter()
            .filter(|process| !process.has_ended() && process.pid != self.runner.pid)
            .cloned()
            .collect()
    }

    fn told(&self, found: &[Process]) -> Vec<LeftoverProcess> {
        found.iter().map(LeftoverProcess::of).collect()
    }
}

impl LeftoverProcess {
    fn of(process: &Process) -> Self {
        Self {
            pid: process.pid,
            age: age(process.start_ticks),
            command: process.command(),
            start_ticks: process.start_ticks,
        }
    }
}

impl fmt::Display for LeftoverProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}", self.pid, self.command.escape_debug())?;
        match self.age {
            Some(age) => write!(f, ", {} s old)", age.as_secs()),
            None => f.write_str(")"),
        }
    }
}

/// Tells the log of processes that live on.
pub(crate) fn report(runner: u32, leftovers: &[LeftoverProcess], forceful: bool) {
    for leftover in leftovers {
        let (pid, age_seconds) = (leftover.pid, leftover.age.map(|age| age.as_secs()));
        let command = leftover.command.as_str();
        if forceful {
            error!(pid, age_seconds, command, runner, "cannot kill a process of the runner");
        } else {
            warn!(
                pid,
                age_seconds,
                command,
                runner,
                "a process of the runner is still running after the runner exited"
            );
        }
    }
}

/// Kills this very process, and not one that has got its number since.
fn kill(process: &Process) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    // Looked at while it is held: the number cannot change hands between the two.
    if Process::of(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks) {
        // One that has just ended, or that this user may not kill and that is then reported.
        let _refused = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

/// The kernel counts these ticks at 100 a second for every program.
fn age(start_ticks: u64) -> Option<Duration> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime = Duration::try_from_secs_f64(uptime.split(' ').next()?.parse().ok()?).ok()?;
    Some(uptime.saturating_sub(Duration::from_millis(start_ticks.saturating_mul(10))))
}
