//! Child processes on Linux, managed by pidfd.
//!
//! A pidfd refers to one process only, so a signal never reaches an unrelated process that reuses the PID. It becomes readable when the
//! process exits, so no polling is needed. The exit is first *observed* and only later *reaped*: until the exited leader is reaped, its
//! PID and the id of its process group are not reused, so the rest of the group can be killed safely.
//!
//! A child of a killed wrapper can be adopted. Another process reaps it: after that the kernel reports its exit status through the
//! pidfd (`grit_pidfd`); older kernels show it in `/proc` only before that. Its PID may be reused as soon as it has exited. After an upgrade in
//! place the runner still is a child of this process.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use grit_pidfd::Ending;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid},
};
use tokio::{
    io::unix::AsyncFd,
    time::{Instant, sleep},
};

use super::{
    exec_barrier::Barrier,
    exit::Exit,
    identity::{Identity, Origin},
    launcher::launcher_fault,
    leftovers::LeftoverProcesses,
    orphans,
    pidfd::{self, hold, hold_same},
    stat::Process,
};
use crate::supervise::core::Leftovers;

/// Maximum time to wait for a killed child that never became a runner.
const COLLECT_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Maximum time until an adopted child is reaped by its parent, before its exit status counts as unknown. PID 1 needs milliseconds.
pub(crate) const REAP_LIMIT: Duration = Duration::from_secs(2);

/// Interval of reading the exit status of an adopted child in that time.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Signals for a child, named after their meaning for GitLab Runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGQUIT: accept no new jobs, finish running jobs, exit.
    Drain,
    /// SIGTERM: abort jobs, exit. A second one would skip the runner's cleanup.
    Terminate,
    /// SIGKILL, to the process group and to all other processes of the runner.
    Kill,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => "SIGHUP",
            Self::Drain => "SIGQUIT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        })
    }
}

/// A child that this wrapper started, or adopted. Its PID is not reused before [`Child::reap`], unless it was adopted.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    origin: Origin,
    /// Whether another process reaps it.
    adopted: bool,
    leftovers: LeftoverProcesses,
    barrier: Option<Barrier>,
}

impl Child {
    /// A child that this process has started.
    pub(super) fn started(
        leftovers: LeftoverProcesses,
        (identity, origin): (Identity, Origin),
        barrier: Option<Barrier>,
    ) -> io::Result<Self> {
        let (pid, pidfd) = hold(identity.pid)?;
        Ok(Self { pid, pidfd, identity, origin, adopted: false, leftovers, barrier })
    }

    /// Continues with a child of this process from before an upgrade, which may have exited, or adopts a process that the previous wrapper
    /// started; `None` if that has exited, even if its PID was reused.
    pub fn adopt(identity: Identity, origin: Origin) -> io::Result<Option<Self>> {
        Self::of_earlier(identity, origin, identity.is_child())
    }

    fn of_earlier(identity: Identity, origin: Origin, is_own: bool) -> io::Result<Option<Self>> {
        // Nothing else reaps a child of this process, so that its PID is not reused.
        let held = if is_own { Some(hold(identity.pid)?) } else { hold_same(&identity)? };
        let Some((pid, pidfd)) = held else { return Ok(None) };
        if is_own {
            orphans::hold(identity.pid);
        }
        let leftovers = LeftoverProcesses::of_earlier(identity, &origin);
        Ok(Some(Self { pid, pidfd, identity, origin, adopted: !is_own, leftovers, barrier: None }))
    }

    /// Handles processes that are still running after a runner of the previous wrapper exited: kills or logs them.
    pub async fn handle_leftovers(runner: Identity, origin: &Origin, policy: Leftovers) {
        if !runner.is_of_this_boot() {
            return;
        }
        let leftovers = LeftoverProcesses::of_earlier(runner, origin);
        leftovers.finish(policy).await;
        leftovers.close();
    }

    /// Whether another process is its parent.
    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Identifies this process uniquely.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// What the next wrapper needs besides the identity.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the next wrapper finds it without the state file.
    pub(crate) fn has_cgroup(&self) -> bool {
        self.origin.cgroup.is_some()
    }

    /// Lets the child execute its command, and returns when it has done so.
    /// After an error of exec, the child has exited.
    pub(crate) async fn release(&mut self) -> io::Result<()> {
        let Some(barrier) = self.barrier.take() else { return Ok(()) };
        // A child that did not become a runner is exiting, and must be reaped here.
        barrier.open().await.inspect_err(|_| self.kill_and_collect())
    }

    /// Waits until the process has exited, without reaping it. Cancel safe, and can be repeated.
    pub(crate) async fn exited(&self) {
        pidfd::exited(&self.pidfd, || self.has_exited()).await;
    }

    /// The exit status of the exited process, at most 2 s later. Where the policy is to kill its processes, also waits at most 10 s for their exit.
    pub(crate) async fn exit(&self, policy: Leftovers) -> Exit {
        // First: it can be read only until the parent of an adopted process has reaped it.
        let exit = self.exit_status().await;
        if policy == Leftovers::Kill {
            let _none_left = self.kill_group();
            self.leftovers.finish(policy).await;
        }
        exit
    }

    /// Sends `signal`, except SIGKILL, to this process only: other processes of its group may belong to a job.
    /// Fails if the process changed its user, but not if it has exited. SIGQUIT also fails if the process is [not the runner](super::launcher).
    pub(crate) async fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if matches!(signal, Signal::Terminate | Signal::Kill) {
            // When it exits, its jobs lose their parent, and those of an adopted child become children of another process.
            // For this wrapper, and through the state file for the next one.
            self.origin.seen = self.leftovers.remember();
        }
        if signal == Signal::Drain
            && let Some(fault) = launcher_fault(self.pid()).await
        {
            return Err(io::Error::other(fault));
        }
        let signal = match signal {
            Signal::Reload => rustix::process::Signal::HUP,
            Signal::Drain => rustix::process::Signal::QUIT,
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => return self.kill(),
        };
        ignore_esrch(pidfd_send_signal(&self.pidfd, signal))
    }

    /// Reaps the exited process. Where the policy is to report its processes that are still running, they have had the time until now to end.
    pub(crate) async fn reap(self, policy: Leftovers) {
        if !self.adopted {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _collected = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
        orphans::release(self.pid());
        self.leftovers.close();
        if policy == Leftovers::Report {
            self.leftovers.finish(policy).await;
        }
    }

    /// The exit status of the exited process. That of an adopted one may become known only after its parent has reaped it, which is waited for.
    async fn exit_status(&self) -> Exit {
        if !self.adopted {
            return self.peek().unwrap_or(Exit::Unknown);
        }
        let until = Instant::now() + REAP_LIMIT;
        loop {
            // One answer of the kernel decides both: the parent may reap the process between two.
            match grit_pidfd::ending(&self.pidfd) {
                Ok(Ending::Code(code)) => return Exit::Code(code),
                Ok(Ending::Signal(signal)) => return Exit::Signal(signal),
                Ok(Ending::NotCollected) if Instant::now() < until => {}
                Ok(Ending::NotCollected) | Err(_) => return self.zombie_exit().unwrap_or(Exit::Unknown),
            }
            if let Some(exit) = self.zombie_exit() {
                return exit;
            }
            sleep(REAP_INTERVAL).await;
        }
    }

    /// Whether the process has exited. It is not reaped.
    fn has_exited(&self) -> bool {
        if self.adopted { pidfd::has_exited(&self.pidfd) } else { self.peek().is_some() }
    }

    /// The exit of a child of this process; `None` while it is running. The process is not reaped.
    fn peek(&self) -> Option<Exit> {
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

    /// The exit of an adopted process that its parent has not reaped, from `/proc`.
    fn zombie_exit(&self) -> Option<Exit> {
        Process::exit_of(self.pid(), self.identity.start_ticks)
    }

    /// Ends a child that did not become a runner. Does not wait for a process that hangs in the kernel: it is reaped as an orphan later.
    pub(crate) fn kill_and_collect(&mut self) {
        let _gone = self.kill_group();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ended = poll(&mut fds, Some(&COLLECT_LIMIT));
        let _reaped =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        orphans::release(self.pid());
        self.leftovers.close();
    }

    /// Kills the child and all its processes.
    /// An empty group is not an error.
    fn kill(&self) -> io::Result<()> {
        let killed = self.kill_group();
        let _found = self.leftovers.kill();
        killed
    }

    /// Kills the process group of the child. While it has members, the kernel does not reuse its id for another one.
    fn kill_group(&self) -> io::Result<()> {
        if self.pid_was_reused() {
            return Ok(());
        }
        ignore_esrch(kill_process_group(self.pid, rustix::process::Signal::KILL))
    }

    /// Whether the PID of the exited process was reused. While its process group has members, the kernel does not reuse the PID.
    fn pid_was_reused(&self) -> bool {
        self.adopted && Identity::of(self.pid()).is_ok_and(|now| now != self.identity)
    }
}

fn ignore_esrch(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// It has exited while this process executed another program.
    #[tokio::test]
    async fn exit_status_of_own_zombie_is_known() {
        let mut process = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let identity = Identity::of(process.id()).unwrap();
        while identity.is_alive().unwrap() {
            std::thread::yield_now();
        }
        let child = Child::adopt(identity, Origin::default()).unwrap().unwrap();
        assert!(!child.is_adopted());
        child.exited().await;
        assert_eq!(child.exit(Leftovers::Report).await, Exit::Code(3));
        child.reap(Leftovers::Report).await;
        assert!(Child::adopt(identity, Origin::default()).unwrap().is_none());
        assert!(process.wait().is_err(), "it was reaped before");
    }

    /// Its parent reaps it at any moment after its exit.
    #[tokio::test]
    async fn exit_status_of_adopted_child_is_known() {
        let mut unknown = 0;
        for number in 0..1000_u32 {
            let code = number % 3;
            let mut process = Command::new("sh")
                .args(["-c", &format!("read line; exit {code}")])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let identity = Identity::of(process.id()).unwrap();
            // As if the test were not the parent.
            let child = Child::of_earlier(identity, Origin::default(), false).unwrap().unwrap();
            // `wait` closes its stdin, so that it exits.
            let parent = std::thread::spawn(move || process.wait().unwrap());
            child.exited().await;
            let exit = child.exit(Leftovers::Report).await;
            assert_eq!(parent.join().unwrap().code(), i32::try_from(code).ok());
            match exit {
                Exit::Unknown => unknown += 1,
                exit => assert_eq!(exit, Exit::Code(i32::try_from(code).unwrap())),
            }
        }
        // Before Linux 6.15 the kernel does not report it after the process was reaped.
        let is_reported = grit_pidfd::ending(hold(std::process::id()).unwrap().1).is_ok();
        assert!(unknown == 0 || !is_reported, "{unknown}");
    }
}
