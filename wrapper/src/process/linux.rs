//! Children on Linux, held by a pidfd.
//!
//! A pidfd names one process for ever, so a signal cannot reach a stranger that was given the same number, and it becomes
//! readable when the process ends, so nothing polls. The end is first *seen* and only later *reaped*: while the dead leader is not
//! reaped, its number, and with it the number of its group, belongs to nobody else, and what is left of the group can be killed
//! without a doubt about whom that hits.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{self, Stdio},
};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal,
        test_kill_process_group, waitid,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{Child, CommandLine, Exit, Platform, Signal, proc_status};

/// Starts the command line as a child of this process, on its stdout and stderr, with nothing on stdin.
#[derive(Clone, Debug)]
pub struct Linux {
    command: CommandLine,
    env: Vec<(String, String)>,
}

impl Linux {
    #[must_use]
    pub fn new(command: CommandLine) -> Self {
        Self { command, env: Vec::new() }
    }

    /// Adds a variable to the child's environment, which is otherwise ours.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Platform for Linux {
    type Child = LinuxChild;

    fn spawn(&mut self) -> io::Result<LinuxChild> {
        // The group keeps a terminal's Ctrl-C, which is meant for us, away from the child.
        let mut child = process::Command::new(&self.command.program)
            .arg0(&self.command.name)
            .args(&self.command.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        match hold(&child) {
            Ok((pid, pidfd)) => Ok(LinuxChild { pid, pidfd }),
            Err(error) => {
                // Without a pidfd we could neither watch nor stop it.
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe, for descriptors that may be closed by others; an OwnedFd is ours alone"
)]
fn hold(child: &process::Child) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((pid, AsyncFd::with_interest(pidfd, Interest::READABLE)?))
}

/// A child made by [`Linux`].
#[derive(Debug)]
pub struct LinuxChild {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
}

impl LinuxChild {
    /// How the process ended, or `None` while it runs. It stays to be reaped.
    fn peek(&self) -> Option<Exit> {
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
}

impl Child for LinuxChild {
    fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
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
            if let Some(exit) = self.peek() {
                return exit;
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
        gone_is_fine(kill_process_group(self.pid, rustix::process::Signal::KILL))
    }

    fn handles_quit(&self) -> bool {
        proc_status::handles_quit(self.pid())
    }

    fn reap(self) -> bool {
        let reaped = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        // The number may be another's from here on, so this may only look, and its answer is only for the log.
        reaped.is_ok() && test_kill_process_group(self.pid).is_ok()
    }
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
