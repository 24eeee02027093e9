//! Child processes on Linux, managed by pidfd.
//!
//! A pidfd refers to one process only, so a signal never reaches an unrelated process that reuses the PID. It becomes readable when the
//! process exits, so no polling is needed. The exit is first *observed* and only later *reaped*: until the exited leader is reaped, its
//! PID and the id of its process group are not reused, so the rest of the group can be killed safely.
//!
//! A child of the previous wrapper can be adopted. Another process reaps it: after that the kernel reports its exit status through the
//! pidfd (`grit_pidfd`); older kernels show it in `/proc` only before that. Its PID may be reused as soon as it has exited.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{self, Stdio},
    time::Duration,
};

use grit_pidfd::Ending;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep},
};
use tracing::warn;

use super::{
    cgroup::Cgroup,
    child::{Child, Platform, Signal},
    command_line::CommandLine,
    exec_barrier::{self, Barrier},
    executable_format,
    exit::Exit,
    identity::{Identity, Origin},
    leftovers::{LeftoverProcess, LeftoverProcesses, report},
    marker::{Marker, VARIABLE},
    orphans, proc_status,
    stat::Process,
};
use crate::supervise::log_key as key;
use crate::supervise::output::{LastLines, Output};

/// Maximum time to wait for a killed child that never became a runner.
const COLLECT_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Maximum time until an adopted child is reaped by its parent, before its exit status counts as unknown. PID 1 needs milliseconds.
const REAP_LIMIT: Duration = Duration::from_secs(2);

/// Interval of reading the exit status of an adopted child in that time.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the command line as a child of this process, with its stdout and stderr, and an empty stdin.
#[derive(Clone, Debug)]
pub struct Linux {
    command: CommandLine,
    env: Vec<(String, String)>,
    /// Variables of the wrapper that children do not inherit.
    not_inherited: &'static [&'static str],
    with_barrier: bool,
    /// The wrapper's own value of the marker variable, for children with a marker.
    outer_marker: Option<String>,
    output: Output,
}

impl Linux {
    /// Children that execute the command immediately.
    #[must_use]
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            env: Vec::new(),
            not_inherited: &[],
            with_barrier: false,
            outer_marker: None,
            output: Output::Elsewhere,
        }
    }

    /// Children that wait for [`Child::release`] at an [exec barrier](exec_barrier), which is the program of this process.
    #[must_use]
    pub fn with_barrier(mut self) -> Self {
        self.with_barrier = true;
        self
    }

    /// Gives children a marker, and a cgroup where the wrapper's cgroup is delegated to it. `outer` is the wrapper's own value of
    /// [`VARIABLE`].
    #[must_use]
    pub fn marked(mut self, outer: String) -> Self {
        self.outer_marker = Some(outer);
        self
    }

    /// Adds a variable to the environment of children, who inherit the wrapper's.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes variables from the environment of children.
    #[must_use]
    pub fn without_env(mut self, names: &'static [&'static str]) -> Self {
        self.not_inherited = names;
        self
    }

    /// Where the output of children goes.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    fn prepare(&self) -> io::Result<(process::Command, Option<Barrier>)> {
        if self.with_barrier {
            let (command, barrier) = exec_barrier::command(&self.command)?;
            return Ok((command, Some(barrier)));
        }
        let mut command = process::Command::new(&self.command.program);
        command.arg0(&self.command.name).args(&self.command.args).stdin(Stdio::null());
        Ok((command, None))
    }
}

impl Platform for Linux {
    type Child = LinuxChild;

    fn spawn(&mut self) -> io::Result<LinuxChild> {
        executable_format::check(&self.command.program)?;
        let (mut command, barrier) = self.prepare()?;
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
        self.output.begin();
        let mut child = command.spawn()?;
        orphans::hold(child.id());
        match hold(child.id()).and_then(|held| Ok((held, Identity::of(child.id())?))) {
            Ok(((pid, pidfd), mut identity)) => {
                let cgroup = marker.as_ref().and_then(|marker| create_cgroup(marker, child.id()));
                identity.origin =
                    marker.map(|marker| Origin { marker, command: self.command.words(), seen: Vec::new() });
                let marker = identity.origin.as_ref().map(|origin| origin.marker.clone());
                let leftovers = LeftoverProcesses::new(identity.clone(), marker, cgroup);
                Ok(LinuxChild { pid, pidfd, identity, adopted: false, ended_at: None, leftovers, barrier })
            }
            Err(error) => {
                // Without a pidfd the child could not be watched or stopped.
                orphans::release(child.id());
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines> {
        self.output.last_lines(pid, since)
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

#[expect(
    deprecated,
    reason = "its replacement is unsafe, because other code could close the descriptor; an OwnedFd has one owner"
)]
fn hold(pid: u32) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((pid, AsyncFd::with_interest(pidfd, Interest::READABLE)?))
}

/// A child started by [`Linux`], or adopted.
#[derive(Debug)]
pub struct LinuxChild {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    /// Whether another process reaps it.
    adopted: bool,
    /// When the exit of an adopted child was first observed without an exit status.
    ended_at: Option<Instant>,
    leftovers: LeftoverProcesses,
    barrier: Option<Barrier>,
}

impl LinuxChild {
    /// Adopts a process that the previous wrapper started; `None` if it has exited, even if its PID was reused.
    ///
    /// # Errors
    ///
    /// Errors of `pidfd_open`, except for a missing process.
    pub fn adopt(identity: &Identity) -> io::Result<Option<Self>> {
        match hold(identity.pid) {
            // Checked after opening the pidfd: from then on the PID cannot be reused.
            Ok((pid, pidfd)) if identity.is_alive() => {
                let identity = identity.clone();
                let leftovers = LeftoverProcesses::of_earlier(identity.clone());
                Ok(Some(Self {
                    pid,
                    pidfd,
                    identity,
                    adopted: true,
                    ended_at: None,
                    leftovers,
                    barrier: None,
                }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Handles processes that are still running after a runner of the previous wrapper exited: kills or logs them.
    pub async fn handle_leftovers(runner: &Identity, kill: bool) {
        if !runner.is_of_this_boot() {
            return;
        }
        let mut leftovers = LeftoverProcesses::of_earlier(runner.clone());
        let left = if kill { leftovers.end().await } else { leftovers.look() };
        report(runner.pid, &left, kill);
        leftovers.close();
    }

    /// The exit of the process; `None` while it is running. The process is not reaped.
    fn peek(&self) -> Option<Exit> {
        if self.adopted {
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let has_ended = poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
            return has_ended.then(|| self.ending().unwrap_or(Exit::Unknown));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(None) => None,
            Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Unknown,
            }),
            // ECHILD: the process was reaped elsewhere.
            Err(_) => Some(Exit::Unknown),
        }
    }

    /// The exit of an adopted process: from the kernel after its parent has reaped it, from `/proc` before that.
    fn ending(&self) -> Option<Exit> {
        match grit_pidfd::ending(&self.pidfd) {
            Ok(Ending::Code(code)) => return Some(Exit::Code(code)),
            Ok(Ending::Signal(signal)) => return Some(Exit::Signal(signal)),
            Ok(Ending::NotCollected) | Err(_) => {}
        }
        let process = Process::of(self.pid())?;
        (process.start_ticks == self.identity.start_ticks()).then(|| process.exit())?
    }

    /// Whether the exit status of an adopted process may still become known: its parent has not reaped it yet.
    fn may_learn_more(&mut self) -> bool {
        let waited = self.ended_at.get_or_insert_with(Instant::now).elapsed();
        waited < REAP_LIMIT && matches!(grit_pidfd::ending(&self.pidfd), Ok(Ending::NotCollected))
    }

    /// Does not wait for a process that hangs in the kernel: it is reaped as an orphan later.
    fn kill_and_collect(&mut self) {
        let _gone = self.kill_group();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ended = poll(&mut fds, Some(&COLLECT_LIMIT));
        let _reaped =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        orphans::release(self.pid());
        self.leftovers.close();
    }

    /// For this wrapper, and through the state file for the next one.
    fn remember(&mut self) {
        let seen = self.leftovers.remember();
        if let Some(origin) = &mut self.identity.origin {
            origin.seen = seen;
        }
    }

    /// Whether the PID of the exited process was reused. While its process group has members, the kernel does not reuse the PID.
    fn pid_was_reused(&self) -> bool {
        self.adopted && Identity::of(self.pid()).is_ok_and(|now| !now.is_same(&self.identity))
    }
}

impl Child for LinuxChild {
    fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    fn identity(&self) -> io::Result<Identity> {
        Ok(self.identity.clone())
    }

    async fn release(&mut self) -> io::Result<()> {
        let Some(barrier) = self.barrier.take() else { return Ok(()) };
        // A child that did not become a runner is exiting, and must be reaped here.
        barrier.open().await.inspect_err(|_| self.kill_and_collect())
    }

    fn discard(mut self) {
        self.kill_and_collect();
    }

    async fn ended(&mut self) -> Exit {
        loop {
            match self.peek() {
                Some(Exit::Unknown) if self.adopted && self.may_learn_more() => {
                    sleep(REAP_INTERVAL).await;
                    continue;
                }
                Some(exit) => return exit,
                None => {}
            }
            match self.pidfd.readable().await {
                // Readiness is only a hint: clear it and check again.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down, and the caller with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if signal == Signal::Terminate {
            // When it exits, its jobs lose their parent, and those of an adopted child become children of another process.
            self.remember();
        }
        let signal = match signal {
            Signal::Reload => rustix::process::Signal::HUP,
            Signal::Drain => rustix::process::Signal::QUIT,
            Signal::Terminate => rustix::process::Signal::TERM,
        };
        ignore_esrch(pidfd_send_signal(&self.pidfd, signal))
    }

    fn kill_group(&mut self) -> io::Result<()> {
        // Recorded before the kill, because orphans are harder to find.
        self.remember();
        let killed = if self.pid_was_reused() {
            Ok(())
        } else {
            ignore_esrch(kill_process_group(self.pid, rustix::process::Signal::KILL))
        };
        self.leftovers.kill();
        killed
    }

    async fn end_leftovers(&mut self) -> Vec<LeftoverProcess> {
        self.leftovers.end().await
    }

    fn is_ending_leftovers(&self) -> bool {
        self.leftovers.is_ending()
    }

    fn handles_quit(&self) -> bool {
        proc_status::handles_quit(self.pid())
    }

    fn reap(self) -> Vec<LeftoverProcess> {
        if !self.adopted {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _collected = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
        orphans::release(self.pid());
        self.leftovers.close();
        self.leftovers.look()
    }
}

fn ignore_esrch(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
