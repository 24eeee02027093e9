//! Starts child processes.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{self, Stdio},
};

use tokio::time::Instant;
use tracing::warn;

use super::{
    cgroup::Cgroup,
    child::Child,
    command_line::CommandLine,
    exec_barrier::{self, Barrier},
    identity::{Identity, Origin},
    leftovers::LeftoverProcesses,
    marker::{Marker, VARIABLE},
    orphans,
};
use crate::supervise::{
    log_key as key,
    output::{LastLines, Output},
};

/// Starts the command line as a child of this process, with its stdout and stderr, and an empty stdin.
#[derive(Clone, Debug)]
pub struct Spawner {
    pub command: CommandLine,
    /// Variables for the environment of children, who inherit the wrapper's.
    pub env: Vec<(&'static str, OsString)>,
    /// Variables of the wrapper that children do not inherit.
    pub not_inherited: &'static [&'static str],
    /// Children wait for `release` at an [exec barrier](exec_barrier), which is the program of this process.
    pub with_barrier: bool,
    /// The wrapper's own value of [`VARIABLE`]. Children get a marker, and a cgroup where the wrapper's cgroup is delegated to it.
    pub outer_marker: Option<String>,
    /// Where the output of children goes.
    pub output: Output,
    /// Where the output of an adopted child goes, until another child is started.
    pub adopted_output: Option<Output>,
}

impl Spawner {
    /// Children that execute the command immediately.
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            env: Vec::new(),
            not_inherited: &[],
            with_barrier: false,
            outer_marker: None,
            output: Output::Elsewhere,
            adopted_output: None,
        }
    }

    /// Starts a child as the leader of a new process group. It executes the command immediately, or waits for [`Child::release`].
    pub(crate) async fn spawn(&mut self) -> io::Result<Child> {
        // The program may have been replaced or moved since the last start.
        let program = self
            .command
            .program()
            .await
            .map_err(|error| io::Error::other(format!("{:#}", anyhow::Error::new(error))))?;
        self.adopted_output = None;
        let log = self.output.begin().await;
        let (mut command, barrier) = self.prepare(&program)?;
        // A separate group keeps Ctrl-C in a terminal, which is for the wrapper, away from the child.
        for variable in self.not_inherited {
            command.env_remove(variable);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value))).process_group(0);
        let marker = match &self.outer_marker {
            Some(outer) => {
                let marker = Marker::new()?;
                command.env(VARIABLE, marker.value(outer));
                Some(marker)
            }
            None => None,
        };
        let mut child = command.spawn()?;
        orphans::hold(child.id());
        let started = Identity::of(child.id()).and_then(|mut identity| {
            let cgroup = marker.as_ref().and_then(|marker| create_cgroup(marker, child.id()));
            let origin = |marker| Origin { marker, command: self.command.words(), seen: Vec::new(), log };
            identity.origin = marker.clone().map(origin);
            Child::started(LeftoverProcesses::new(identity.clone(), marker, cgroup), identity, barrier)
        });
        if started.is_err() {
            // Without a pidfd the child could not be watched or stopped. It is not waited for here, because it may hang in the kernel: it is
            // reaped as an orphan when it has exited.
            let _gone = child.kill();
            orphans::release(child.id());
        }
        started
    }

    /// Finds the log of a child that an earlier wrapper has started.
    pub(crate) async fn adopt(&mut self, child: &Identity) {
        let log = child.origin.as_ref().and_then(|origin| origin.log);
        self.adopted_output = Some(self.output.of_adopted(child.pid, log).await);
    }

    /// The last log lines of a child that was started at `since` and has exited; `None` if they cannot be read back.
    pub(crate) fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines> {
        self.log().last_lines(pid, since)
    }

    /// For each text, whether the log of a child that has exited contains it, written after `since`.
    pub(crate) async fn log_contains<const N: usize>(
        &self,
        texts: [&'static str; N],
        pid: u32,
        since: Instant,
    ) -> [bool; N] {
        self.log().contains(texts, pid, since).await
    }

    fn log(&self) -> &Output {
        self.adopted_output.as_ref().unwrap_or(&self.output)
    }

    fn prepare(&self, program: &Path) -> io::Result<(process::Command, Option<Barrier>)> {
        if self.with_barrier {
            let (command, barrier) = exec_barrier::command(&self.command, program)?;
            return Ok((command, Some(barrier)));
        }
        let mut command = process::Command::new(program);
        command.arg0(&self.command.name).args(&self.command.args).stdin(Stdio::null());
        Ok((command, None))
    }
}

/// Moves the child, which waits at the exec barrier or has just started, into a separate cgroup, if possible.
fn create_cgroup(marker: &Marker, pid: u32) -> Option<Cgroup> {
    let cgroup = Cgroup::make(marker).unwrap_or_else(|error| {
        warn!(
            { key::ERROR } = %error,
            "cannot create a cgroup for the runner; finding its processes by parent PID"
        );
        None
    })?;
    match cgroup.add(pid) {
        Ok(()) => Some(cgroup),
        Err(error) => {
            warn!(
                { key::ERROR } = %error,
                { key::PID } = pid,
                "cannot move the runner into its cgroup; finding its processes by parent PID"
            );
            cgroup.remove();
            None
        }
    }
}
