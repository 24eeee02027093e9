//! Children on Linux, held by a pidfd.
//!
//! A pidfd names one process for ever, so a signal cannot reach a stranger that was given the same number, and it becomes
//! readable when the process ends, so nothing polls. The end is first *seen* and only later *reaped*: while the dead leader is not
//! reaped, its number, and with it the number of its group, belongs to nobody else, and what is left of the group can be killed
//! without a doubt about whom that hits.
//!
//! A child of an earlier wrapper can be adopted. It is another's to reap, so how it ended stays unknown, and its number may be given
//! away as soon as it has ended.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{self, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal,
        test_kill_process, test_kill_process_group, waitid,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Instant,
};

use super::{
    Child, CommandLine, Exit, Identity, Platform, Signal,
    gate::{self, Gate},
    proc_status,
};
use crate::{
    listen, notify,
    output::{LastLines, Output},
};

/// Starts the command line as a child of this process, on its stdout and stderr, with nothing on stdin.
#[derive(Clone, Debug)]
pub struct Linux {
    command: CommandLine,
    env: Vec<(String, String)>,
    gated: bool,
    output: Output,
}

impl Linux {
    /// Children that run the command at once.
    #[must_use]
    pub fn new(command: CommandLine) -> Self {
        Self { command, env: Vec::new(), gated: false, output: Output::of_stderr() }
    }

    /// Children that wait for [`Child::release`] at a [`gate`]. Only for the wrapper's own program: the gate is that program.
    #[must_use]
    pub fn gated(mut self) -> Self {
        self.gated = true;
        self
    }

    /// Adds a variable to the child's environment, which is otherwise ours.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn prepare(&self) -> io::Result<(process::Command, Option<Gate>)> {
        if self.gated {
            let (command, gate) = gate::command(&self.command)?;
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
        let (mut command, gate) = self.prepare()?;
        // The group keeps a terminal's Ctrl-C, which is meant for us, away from the child.
        for variable in notify::VARIABLES.iter().chain(&listen::VARIABLES) {
            command.env_remove(variable);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value))).process_group(0);
        self.output.begin();
        let mut child = command.spawn()?;
        match hold(child.id()) {
            Ok((pid, pidfd)) => Ok(LinuxChild { pid, pidfd, adopted: None, gate }),
            Err(error) => {
                // Without a pidfd we could neither watch nor stop it.
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
    /// There when it is another's to reap.
    adopted: Option<Identity>,
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
                Ok(Some(Self { pid, pidfd, adopted: Some(identity.clone()), gate: None }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How the process ended, or `None` while it runs. It stays to be reaped.
    fn peek(&self) -> Option<Exit> {
        if self.adopted.is_some() {
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            return poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0).then_some(Exit::Unknown);
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

    fn kill_and_collect(&mut self) {
        let _gone = self.kill_group();
        let _reaped = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }

    /// Whether the number of the ended process is somebody else's by now. While any process is in its group it cannot be, because the
    /// kernel keeps the number of a group that exists.
    fn is_strangers(&self) -> bool {
        let is_other = |adopted: &Identity| Identity::of(self.pid()).is_ok_and(|now| now != *adopted);
        self.adopted.as_ref().is_some_and(is_other)
    }
}

impl Child for LinuxChild {
    fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    fn identity(&self) -> io::Result<Identity> {
        Identity::of(self.pid())
    }

    fn release(&mut self) -> io::Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        // What did not become a runner is on its way out, and nobody else will collect it.
        gate.open().inspect_err(|_| self.kill_and_collect())
    }

    fn discard(mut self) {
        self.kill_and_collect();
    }

    async fn ended(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.peek() {
                return exit;
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
        let signal = match signal {
            Signal::Reload => rustix::process::Signal::HUP,
            Signal::Drain => rustix::process::Signal::QUIT,
            Signal::Terminate => rustix::process::Signal::TERM,
        };
        gone_is_fine(pidfd_send_signal(&self.pidfd, signal))
    }

    fn kill_group(&mut self) -> io::Result<()> {
        if self.is_strangers() {
            return Ok(());
        }
        gone_is_fine(kill_process_group(self.pid, rustix::process::Signal::KILL))
    }

    fn handles_quit(&self) -> bool {
        proc_status::handles_quit(self.pid())
    }

    fn reap(self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let ours = self.adopted.is_some() || waitid(WaitId::PidFd(self.pidfd.as_fd()), options).is_ok();
        // The number may be another's from here on, so this may only look, and its answer is only for the log.
        ours && test_kill_process(self.pid).is_err() && test_kill_process_group(self.pid).is_ok()
    }
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
