//! Restores the state of this wrapper from the state file of a previous wrapper.

use std::{io, path::Path, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::format::Saved;
use crate::supervise::{
    blocking,
    core::{ChildInfo, Moment, Policy, State, Supervision},
    process::{self, Child, CommandLine, Identity, Program, cgroup},
};

/// How long a child at the exec barrier may take to exit after its wrapper, or to become the runner.
const BARRIER_LIMIT: Duration = Duration::from_secs(10);

/// Timeout of reading the program of a process.
const PROGRAM_LIMIT: Duration = Duration::from_secs(1);

/// The runner and the state of a previous wrapper.
#[derive(Debug)]
pub struct Found {
    pub supervision: Supervision,
    pub child: Option<Child>,
}

impl Saved {
    /// What a previous wrapper left: the content of its state file or, if the process in it does not run, the runner in a cgroup that a wrapper with
    /// this state file made. The file was removed, or could not be written when the runner was started, because the disk was full. What the previous
    /// wrapper recorded of the runner is lost: a drain, for example, must be requested again.
    ///
    /// A process at the exec barrier may already be released: its exec can take long.
    pub async fn latest(saved: Option<Self>, state_file: &Path) -> Option<Self> {
        let known = saved.as_ref().and_then(|saved| saved.supervision.state.process());
        if known.is_some_and(|known| known.process.is_alive().unwrap_or(true)) {
            return saved;
        }
        let Some((process, origin, barrier)) = cgroup::runner_in(&cgroup::names_for(Some(state_file))) else {
            return saved;
        };
        if !leaves_barrier(&process, barrier).await.unwrap_or(true) {
            return saved;
        }
        warn!(
            pid = process.pid,
            path = %state_file.display(),
            "a runner of a previous wrapper is running, but the state file does not contain it: the file was removed, or could not be \
             written. If this runner was draining, repeat the drain request"
        );
        let child = ChildInfo { process, started: Moment::now() - process::age(process.pid) };
        let supervision =
            Supervision { state: State::Running { child, reload_at: None }, ..Supervision::default() };
        Some(Self::new(&supervision, Some(&origin), None))
    }

    /// Finds the child, and restores the state. Waits for a child that was just being started.
    /// After an error, it is unknown whether the child is running.
    pub async fn find(self, policy: &Policy, command: &CommandLine) -> io::Result<Found> {
        let saved = self.supervision.state.process();
        let child = match saved {
            Some(saved) if self.is_runner(saved).await? => Child::adopt(saved.process, self.origin.clone())?,
            _ => None,
        };
        if let (Some(saved), None) = (saved, &child) {
            // The earlier wrapper was killed before it could do this, or the runner exited while no wrapper was running.
            Child::handle_leftovers(saved.process, &self.origin, self.supervision.leftovers(policy)).await;
        }
        // A wrapper writes its state before an upgrade, so that nothing is in doubt.
        let is_exact = self.is_own() && child.is_some() == saved.is_some();
        let supervision = match is_exact {
            true => self.supervision,
            false => self.supervision.adopted(child.is_some(), Moment::now(), policy),
        };
        let id = supervision.state.stop().map(|stop| stop.id.as_str());
        match (saved, &child) {
            (Some(saved), Some(child)) => {
                let what = if child.is_adopted() {
                    "adopting the runner of the previous wrapper"
                } else {
                    "upgraded: supervising the same runner"
                };
                info!(pid = saved.pid(), id, "{what}");
                if !self.origin.command.is_empty() && self.origin.command != command.words() {
                    warn!(
                        pid = saved.pid(),
                        "the adopted runner keeps running with the command of the previous wrapper, but probes use the settings of the \
                         new command. To use the new command, drain and start the runner"
                    );
                }
            }
            _ if id.is_some() => info!(
                id,
                "the runner was drained before this wrapper started, so it is not started. To start the runner: `grit-wrapper start`"
            ),
            (Some(_), None) => warn!("the previous wrapper's runner has exited; starting a new runner"),
            (None, _) => {}
        }
        Ok(Found { supervision, child })
    }

    /// Whether this process is a running runner, or a child of this process.
    async fn is_runner(&self, child: ChildInfo) -> io::Result<bool> {
        Ok(child.process.is_child() || leaves_barrier(&child.process, self.barrier).await?)
    }
}

/// Waits until the process has another program than this one of the exec barrier. A child there exits or becomes the runner soon. Returns whether it is
/// running.
async fn leaves_barrier(process: &Identity, barrier: Option<Program>) -> io::Result<bool> {
    let give_up = Instant::now() + BARRIER_LIMIT;
    while let Some(barrier) = barrier
        && process.is_alive()?
        && program_of(process.pid).await.ok() == Some(barrier)
        && Instant::now() < give_up
    {
        sleep(Duration::from_millis(5)).await;
    }
    process.is_alive()
}

/// The program of a process. The program of a runner can be a file of a file system that does not respond; the barrier's is the wrapper's.
async fn program_of(pid: u32) -> io::Result<Program> {
    blocking::run("program", PROGRAM_LIMIT, move || Program::of(pid)).await
}
