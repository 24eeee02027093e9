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
pub struct Child<P: Processes = Spawner> {
    processes: P,
    running: Option<Running<P::Process>>,
    /// The runner of a wrapper that was killed has exited before this wrapper was started.
    has_exited: bool,
}

/// The runner. Its PID is not reused before it is reaped, unless another wrapper has started it.
#[derive(Debug)]
struct Running<P> {
    process: P,
    /// A wrapper that was killed has started it.
    is_earlier: bool,
    /// It is being stopped forcefully.
    is_forced: bool,
}

/// What the wrapper needs of the kernel for its child: [`Spawner`], or a simulation.
pub trait Processes: Send + 'static {
    /// One process, never another one with its PID.
    type Process: Send + Sync + 'static;

    /// Starts the runner. Returns after its exec.
    fn spawn(&mut self) -> impl Future<Output = io::Result<(Identity, Self::Process)>> + Send;

    /// The process that a wrapper that was killed has started; `None` if it has exited.
    ///
    /// # Errors
    ///
    /// If it cannot be read whether it is running.
    fn find(&mut self, earlier: &Identity) -> io::Result<Option<Self::Process>>;

    /// Whether it has exited. It is not reaped. `is_earlier`: another process is its parent.
    fn has_exited(&self, process: &Self::Process, is_earlier: bool) -> bool;

    /// Returns when it has exited. Cancel safe.
    fn exited(&self, process: &Self::Process, is_earlier: bool) -> impl Future<Output = ()> + Send;

    /// Remembers its jobs: when it exits, they lose their parent.
    fn remember_jobs(&self, process: &mut Self::Process);

    /// Sends the signal to this process only; SIGKILL also to its jobs. A process that has exited is no error. SIGQUIT also fails if the process is
    /// not the runner.
    fn signal(
        &self,
        process: &mut Self::Process,
        is_earlier: bool,
        signal: Signal,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// Reaps it after its exit, and returns how it ended. Its processes are killed after a forceful stop, for at most 10 s, and logged otherwise.
    fn end(
        &self,
        process: Self::Process,
        is_earlier: bool,
        is_forced: bool,
    ) -> impl Future<Output = Exit> + Send;
}

impl<P: Processes> Child<P> {
    pub fn new(processes: P) -> Self {
        Self { processes, running: None, has_exited: false }
    }

    /// With the runner of a wrapper that was killed. If it has exited, that is the first news.
    ///
    /// # Errors
    ///
    /// If it cannot be read whether it is running.
    pub fn with_earlier(mut processes: P, runner: Option<ChildInfo>) -> io::Result<Self> {
        let running = match runner {
            Some(ChildInfo { process, .. }) => processes.find(&process)?,
            None => None,
        };
        let running = running.map(|process| Running { process, is_earlier: true, is_forced: false });
        let has_exited = runner.is_some() && running.is_none();
        Ok(Self { processes, running, has_exited })
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl<P: Processes> Owner for Child<P>
where
    P: Sync,
{
    async fn changed(&mut self) {
        match &self.running {
            Some(running) => self.processes.exited(&running.process, running.is_earlier).await,
            None if self.has_exited => {}
            None => std::future::pending().await,
        }
    }

    async fn news(&mut self) -> io::Result<Option<Change>> {
        if std::mem::take(&mut self.has_exited) {
            return Ok(Some(Change::Exited(Exit::Unknown)));
        }
        let processes = &self.processes;
        match self.running.take_if(|it| processes.has_exited(&it.process, it.is_earlier)) {
            Some(Running { process, is_earlier, is_forced }) => {
                Ok(Some(Change::Exited(processes.end(process, is_earlier, is_forced).await)))
            }
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
            self.processes.remember_jobs(&mut running.process);
        }
    }

    async fn start(&mut self) -> io::Result<ChildInfo> {
        let (identity, process) = self.processes.spawn().await?;
        self.running = Some(Running { process, is_earlier: false, is_forced: false });
        Ok(ChildInfo { process: identity, started: Moment::now() })
    }

    async fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        self.processes.signal(&mut running.process, running.is_earlier, signal).await
    }

    fn invocation(&self) -> Option<&str> {
        None
    }
}

/// A process that is held by its pidfd.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    leftovers: LeftoverProcesses,
}

impl Held {
    fn new(identity: Identity, (pid, pidfd): (Pid, AsyncFd<OwnedFd>)) -> Self {
        Self { pid, pidfd, identity, leftovers: LeftoverProcesses::new(identity) }
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
    fn kill_group(&self, is_earlier: bool) -> io::Result<()> {
        let was_reused = || Identity::of(self.identity.pid).is_ok_and(|now| now != self.identity);
        if is_earlier && was_reused() {
            return Ok(());
        }
        ignore_esrch(kill_process_group(self.pid, rustix::process::Signal::KILL))
    }
}

impl Processes for Spawner {
    type Process = Held;

    async fn spawn(&mut self) -> io::Result<(Identity, Held)> {
        let identity = Self::spawn(self)?;
        // Without a pidfd the child could not be watched or stopped.
        let held = pidfd::hold(identity.pid).inspect_err(|_| abandon(&identity))?;
        Ok((identity, Held::new(identity, held)))
    }

    fn find(&mut self, earlier: &Identity) -> io::Result<Option<Held>> {
        Ok(pidfd::hold_same(earlier)?.map(|held| Held::new(*earlier, held)))
    }

    fn has_exited(&self, process: &Held, is_earlier: bool) -> bool {
        if is_earlier { pidfd::has_exited(&process.pidfd) } else { process.peek().is_some() }
    }

    async fn exited(&self, process: &Held, is_earlier: bool) {
        pidfd::exited(&process.pidfd, || self.has_exited(process, is_earlier)).await;
    }

    fn remember_jobs(&self, process: &mut Held) {
        process.leftovers.remember();
    }

    /// Other processes of its group may belong to a job.
    async fn signal(&self, process: &mut Held, is_earlier: bool, signal: Signal) -> io::Result<()> {
        if matches!(signal, Signal::Terminate | Signal::Kill) {
            process.leftovers.remember();
        }
        if signal == Signal::Drain
            && let Some(fault) = launcher_fault(process.identity.pid).await
        {
            return Err(io::Error::other(fault));
        }
        if signal == Signal::Kill {
            let killed = process.kill_group(is_earlier);
            process.leftovers.kill();
            return killed;
        }
        ignore_esrch(pidfd_send_signal(&process.pidfd, signal.number()))
    }

    async fn end(&self, process: Held, is_earlier: bool, is_forced: bool) -> Exit {
        let exit = if is_earlier { Exit::Unknown } else { process.peek().unwrap_or(Exit::Unknown) };
        if is_forced {
            let _none_left = process.kill_group(is_earlier);
            process.leftovers.end().await;
        }
        if !is_earlier {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _collected = waitid(WaitId::PidFd(process.pidfd.as_fd()), options);
        }
        orphans::include(process.identity.pid);
        if !is_forced {
            process.leftovers.report();
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
        let spawner = shell("true").processes;
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
