//! The wrapper as the parent of the runner: in containers, and as upstream's wrapper.
//!
//! A pidfd refers to one process only, so a signal never reaches an unrelated process that reuses the PID. It becomes readable when the
//! process exits, so no polling is needed. The exit is first *observed* and only later *reaped*: until the exited leader is reaped, its
//! PID and the id of its process group are not reused, so the rest of the group can be killed safely.
//!
//! When the wrapper dies, the kernel sends SIGQUIT to the runner. The next wrapper waits for the exit of such a runner. Another process reaps it, so
//! that its exit status is not known here.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::process::{
    Pid, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_send_signal, waitid,
};
use tokio::io::unix::AsyncFd;

use super::{Change, Owner};
use crate::supervise::{
    core::{ChildInfo, Moment},
    process::{
        Exit, Identity, LeftoverProcesses, Signal, Spawner, ignore_esrch, launcher_fault, orphans, pidfd,
    },
};

/// Starts the runner as a child of this process.
#[derive(Debug)]
pub struct Child {
    spawner: Spawner,
    running: Option<Running>,
    /// The runner of a wrapper that was killed has exited before this wrapper was started.
    has_exited: bool,
}

/// The runner. Its PID is not reused before it is reaped, unless another wrapper has started it.
#[derive(Debug)]
struct Running {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    leftovers: LeftoverProcesses,
    /// A wrapper that was killed has started it.
    is_earlier: bool,
    /// It is being stopped forcefully.
    is_forced: bool,
}

impl Child {
    pub fn new(spawner: Spawner) -> Self {
        Self { spawner, running: None, has_exited: false }
    }

    /// With the runner of a wrapper that was killed. If it has exited, that is the first news.
    ///
    /// # Errors
    ///
    /// If it cannot be read whether it is running.
    pub fn with_earlier(spawner: Spawner, runner: Option<ChildInfo>) -> io::Result<Self> {
        let running = match runner {
            Some(ChildInfo { process, .. }) => {
                pidfd::hold_same(&process)?.map(|(pid, pidfd)| Running::new(process, pid, pidfd, true))
            }
            None => None,
        };
        let has_exited = runner.is_some() && running.is_none();
        Ok(Self { spawner, running, has_exited })
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Running {
    fn new(identity: Identity, pid: Pid, pidfd: AsyncFd<OwnedFd>, is_earlier: bool) -> Self {
        let leftovers = LeftoverProcesses::new(identity);
        Self { pid, pidfd, identity, leftovers, is_earlier, is_forced: false }
    }

    /// Whether it has exited. It is not reaped.
    fn has_exited(&self) -> bool {
        if self.is_earlier { pidfd::has_exited(&self.pidfd) } else { self.peek().is_some() }
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

    /// Kills the process group. While it has members, the kernel does not reuse its id for another one.
    fn kill_group(&self) -> io::Result<()> {
        let was_reused = || Identity::of(self.identity.pid).is_ok_and(|now| now != self.identity);
        if self.is_earlier && was_reused() {
            return Ok(());
        }
        ignore_esrch(kill_process_group(self.pid, rustix::process::Signal::KILL))
    }

    /// Reaps it after its exit, and returns how it ended. Its processes are killed after a forceful stop, for at most 10 s, and logged otherwise.
    async fn end(self) -> Exit {
        let exit = if self.is_earlier { Exit::Unknown } else { self.peek().unwrap_or(Exit::Unknown) };
        if self.is_forced {
            let _none_left = self.kill_group();
            self.leftovers.end().await;
        }
        if !self.is_earlier {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _collected = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
        orphans::include(self.identity.pid);
        if !self.is_forced {
            self.leftovers.report();
        }
        exit
    }
}

/// Kills a child that has just been started. It is not waited for, because it may hang in the kernel: it is reaped as an orphan.
fn abandon(child: &Identity) {
    if let Some(pid) = i32::try_from(child.pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, rustix::process::Signal::KILL);
    }
    orphans::include(child.pid);
}

impl Owner for Child {
    async fn changed(&mut self) {
        match &self.running {
            Some(running) => pidfd::exited(&running.pidfd, || running.has_exited()).await,
            None if self.has_exited => {}
            None => std::future::pending().await,
        }
    }

    async fn news(&mut self) -> io::Result<Option<Change>> {
        if std::mem::take(&mut self.has_exited) {
            return Ok(Some(Change::Exited(Exit::Unknown)));
        }
        match self.running.take_if(|running| running.has_exited()) {
            Some(running) => Ok(Some(Change::Exited(running.end().await))),
            None => Ok(None),
        }
    }

    /// Nothing else starts a child.
    fn hold(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn force(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|running| !running.is_forced) {
            running.is_forced = true;
            // When the runner exits, its jobs lose their parent.
            running.leftovers.remember();
        }
    }

    async fn start(&mut self) -> io::Result<ChildInfo> {
        let identity = self.spawner.spawn()?;
        // Without a pidfd the child could not be watched or stopped.
        let (pid, pidfd) = pidfd::hold(identity.pid).inspect_err(|_| abandon(&identity))?;
        self.running = Some(Running::new(identity, pid, pidfd, false));
        Ok(ChildInfo { process: identity, started: Moment::now() })
    }

    /// Sends `signal`, except SIGKILL, to the runner's process only: other processes of its group may belong to a job.
    async fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        if matches!(signal, Signal::Terminate | Signal::Kill) {
            running.leftovers.remember();
        }
        if signal == Signal::Drain
            && let Some(fault) = launcher_fault(running.identity.pid).await
        {
            return Err(io::Error::other(fault));
        }
        if signal == Signal::Kill {
            let killed = running.kill_group();
            running.leftovers.kill();
            return killed;
        }
        ignore_esrch(pidfd_send_signal(&running.pidfd, signal.number()))
    }

    fn invocation(&self) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, time::Duration};

    use tokio::time::sleep;

    use super::*;
    use crate::supervise::process::CommandLine;

    fn shell(script: &str) -> Child {
        let words = ["sh", "-c", script].map(Into::into).to_vec();
        Child::new(Spawner::new(CommandLine::new(words, Some("/usr/bin:/bin".into())).unwrap()))
    }

    #[tokio::test]
    async fn exit_code_of_a_child_is_known() {
        let mut child = shell("exit 3");
        child.start().await.unwrap();
        child.changed().await;
        assert_eq!(child.news().await.unwrap(), Some(Change::Exited(Exit::Code(3))));
        assert_eq!(child.news().await.unwrap(), None);
    }

    /// For example because it aborts its jobs already.
    #[tokio::test]
    async fn forced_child_leaves_no_process_without_a_signal_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs").display().to_string();
        let mut child =
            shell(&format!("sleep 1000 & echo $! > {file}; while [ -e {file} ]; do sleep 0.05; done"));
        child.start().await.unwrap();
        let job = loop {
            match fs::read_to_string(&file).unwrap_or_default().trim().parse() {
                Ok(pid) => break Identity::of(pid).unwrap(),
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        child.force();
        fs::remove_file(&file).unwrap();
        child.changed().await;
        assert_eq!(child.news().await.unwrap(), Some(Change::Exited(Exit::Code(0))));
        assert!(!job.is_alive().unwrap());
    }

    /// Another process is its parent.
    #[tokio::test]
    async fn runner_of_a_killed_wrapper_is_waited_for() {
        let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
        let info = ChildInfo { process: Identity::of(process.id()).unwrap(), started: Moment::now() };
        let spawner = shell("true").spawner;
        let mut child = Child::with_earlier(spawner.clone(), Some(info)).unwrap();
        assert!(child.is_running());
        assert_eq!(child.news().await.unwrap(), None);
        child.signal(Signal::Terminate).await.unwrap();
        child.changed().await;
        assert_eq!(child.news().await.unwrap(), Some(Change::Exited(Exit::Unknown)));
        process.wait().unwrap();
        let mut child = Child::with_earlier(spawner, Some(info)).unwrap();
        assert!(!child.is_running());
        child.changed().await;
        assert_eq!(child.news().await.unwrap(), Some(Change::Exited(Exit::Unknown)));
    }
}
