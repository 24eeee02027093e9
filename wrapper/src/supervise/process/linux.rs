//! Children on Linux, held by a pidfd.
//!
//! A pidfd names one process for ever, so a signal cannot reach a stranger that was given the same number, and it becomes
//! readable when the process ends, so nothing polls. The end is first *seen* and only later *reaped*: while the dead leader is not
//! reaped, its number, and with it the number of its group, belongs to nobody else, and what is left of the group can be killed
//! without a doubt about whom that hits.
//!
//! A child of an earlier wrapper can be adopted. Another process reaps it: the kernel gives its exit status to the holder of a pidfd after
//! that (`grit_pidfd`); an older kernel only shows it in `/proc` before that. Its number may be given away as soon as it has ended.

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
    exec_barrier::{self, Gate},
    executable_format,
    exit::Exit,
    identity::{Identity, Origin},
    leftovers::{LeftoverProcess, LeftoverProcesses, report},
    marker::{Marker, VARIABLE},
    orphans, proc_status,
    stat::Process,
};
use crate::supervise::output::{LastLines, Output};

/// How long a killed child that never became a runner is waited for, at once.
const COLLECT_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How long the process that has to reap an adopted child may take, before the exit status counts as unknown. Process 1 takes milliseconds.
const REAP_LIMIT: Duration = Duration::from_secs(2);

/// How often the exit status of an adopted child is asked for in that time.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the command line as a child of this process, on its stdout and stderr, with nothing on stdin.
#[derive(Clone, Debug)]
pub struct Linux {
    command: CommandLine,
    env: Vec<(String, String)>,
    /// Variables of the wrapper that children do not inherit.
    not_inherited: &'static [&'static str],
    gated: bool,
    /// The wrapper's own value of the marker variable, for children with a marker.
    outer_marker: Option<String>,
    output: Output,
}

impl Linux {
    /// Children that run the command at once.
    #[must_use]
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            env: Vec::new(),
            not_inherited: &[],
            gated: false,
            outer_marker: None,
            output: Output::Elsewhere,
        }
    }

    /// Children that wait for [`Child::release`] at an [exec barrier](exec_barrier), which is the program of this process.
    #[must_use]
    pub fn gated(mut self) -> Self {
        self.gated = true;
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

    fn prepare(&self) -> io::Result<(process::Command, Option<Gate>)> {
        if self.gated {
            let (command, gate) = exec_barrier::command(&self.command)?;
            return Ok((command, Some(gate)));
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
        let (mut command, gate) = self.prepare()?;
        // The group keeps a terminal's Ctrl-C, which is meant for us, away from the child.
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
                let cgroup = marker.as_ref().and_then(|marker| own_cgroup(marker, child.id()));
                identity.origin =
                    marker.map(|marker| Origin { marker, command: self.command.words(), seen: Vec::new() });
                let marker = identity.origin.as_ref().map(|origin| origin.marker.clone());
                let leftovers = LeftoverProcesses::new(identity.clone(), marker, cgroup);
                Ok(LinuxChild { pid, pidfd, identity, adopted: false, ended_at: None, leftovers, gate })
            }
            Err(error) => {
                // Without a pidfd we could neither watch nor stop it.
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

/// Puts the child, which waits at its gate or has just begun, into a cgroup of its own, where there may be one.
fn own_cgroup(marker: &Marker, pid: u32) -> Option<Cgroup> {
    let cgroup = Cgroup::make(marker).unwrap_or_else(|error| {
        warn!(%error, "cannot create a cgroup for the runner; finding its processes by parent PID");
        None
    })?;
    match cgroup.add(pid) {
        Ok(()) => Some(cgroup),
        Err(error) => {
            warn!(%error, pid, "cannot move the runner into its cgroup; finding its processes by parent PID");
            cgroup.remove();
            None
        }
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe, for descriptors that may be closed by others; an OwnedFd is ours alone"
)]
fn hold(pid: u32) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((pid, AsyncFd::with_interest(pidfd, Interest::READABLE)?))
}

/// A child made by [`Linux`], or adopted.
#[derive(Debug)]
pub struct LinuxChild {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    /// Whether it is another's to reap.
    adopted: bool,
    /// When an adopted child was first seen to have ended without an exit status.
    ended_at: Option<Instant>,
    leftovers: LeftoverProcesses,
    gate: Option<Gate>,
}

impl LinuxChild {
    /// Takes over a process that an earlier wrapper made; `None` when it has ended, whoever has its number now.
    ///
    /// # Errors
    ///
    /// Those of `pidfd_open`, but that there is no such process.
    pub fn adopt(identity: &Identity) -> io::Result<Option<Self>> {
        match hold(identity.pid) {
            // Looked at while we hold it: the number cannot change hands between the two.
            Ok((pid, pidfd)) if identity.is_alive() => {
                let identity = identity.clone();
                let leftovers = LeftoverProcesses::of_earlier(identity.clone());
                Ok(Some(Self { pid, pidfd, identity, adopted: true, ended_at: None, leftovers, gate: None }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the runner of an earlier wrapper left behind, which ended unseen: it is killed, or told to the log.
    pub async fn handle_leftovers(runner: &Identity, kill: bool) {
        if !runner.is_of_this_boot() {
            return;
        }
        let mut leftovers = LeftoverProcesses::of_earlier(runner.clone());
        let left = if kill { leftovers.end().await } else { leftovers.look() };
        report(runner.pid, &left, kill);
        leftovers.close();
    }

    /// How the process ended, or `None` while it runs. It stays to be reaped.
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
            // ECHILD: another waited for it.
            Err(_) => Some(Exit::Unknown),
        }
    }

    /// How an adopted process that has ended did so: from the kernel once its parent has reaped it, from `/proc` before that.
    fn ending(&self) -> Option<Exit> {
        match grit_pidfd::ending(&self.pidfd) {
            Ok(Ending::Code(code)) => return Some(Exit::Code(code)),
            Ok(Ending::Signal(signal)) => return Some(Exit::Signal(signal)),
            Ok(Ending::NotCollected) | Err(_) => {}
        }
        let process = Process::of(self.pid())?;
        (process.start_ticks == self.identity.start_ticks()).then(|| process.exit())?
    }

    /// Whether the exit status of an adopted process may still come: its parent has not reaped it, and has had little time to.
    fn may_learn_more(&mut self) -> bool {
        let waited = self.ended_at.get_or_insert_with(Instant::now).elapsed();
        waited < REAP_LIMIT && matches!(grit_pidfd::ending(&self.pidfd), Ok(Ending::NotCollected))
    }

    /// Without waiting for one that hangs in the kernel: it is collected as an orphan when it has ended.
    fn kill_and_collect(&mut self) {
        let _gone = self.kill_group();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ended = poll(&mut fds, Some(&COLLECT_LIMIT));
        let _reaped =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        orphans::release(self.pid());
        self.leftovers.close();
    }

    /// For this wrapper, and for the next one by way of the state file.
    fn remember(&mut self) {
        let seen = self.leftovers.remember();
        if let Some(origin) = &mut self.identity.origin {
            origin.seen = seen;
        }
    }

    /// Whether the number of the ended process is somebody else's by now. While any process is in its group it cannot be, because the
    /// kernel keeps the number of a group that exists.
    fn is_strangers(&self) -> bool {
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
        let Some(gate) = self.gate.take() else { return Ok(()) };
        // What did not become a runner is on its way out, and nobody else will collect it.
        gate.open().await.inspect_err(|_| self.kill_and_collect())
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
                // Readiness is only a hint: forget it, and look again.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down; whoever asked goes with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if signal == Signal::Terminate {
            // Its jobs lose their parent when it ends, and an adopted one's are then given to another process.
            self.remember();
        }
        let signal = match signal {
            Signal::Reload => rustix::process::Signal::HUP,
            Signal::Drain => rustix::process::Signal::QUIT,
            Signal::Terminate => rustix::process::Signal::TERM,
        };
        gone_is_fine(pidfd_send_signal(&self.pidfd, signal))
    }

    fn kill_group(&mut self) -> io::Result<()> {
        // Looked for first: what has lost its parent is harder to find.
        self.remember();
        let killed = if self.is_strangers() {
            Ok(())
        } else {
            gone_is_fine(kill_process_group(self.pid, rustix::process::Signal::KILL))
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

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
