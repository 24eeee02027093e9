//! The processes of a job, for tests of their end.
//!
//! GitLab Runner's shell executor starts each job as the leader of a new process group (`helpers/process/group_unix.go`). To abort it,
//! the runner sends SIGTERM to the group and waits for ten minutes before it sends SIGKILL, which is longer than its own `shutdown_timeout`
//! of 30 s: a runner that is stopped forcefully while a job ignores SIGTERM exits 1 and leaves the job behind.

use std::{io, process::Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// The reaction of a job's process to SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum JobProcess {
    /// Exits.
    Obedient,
    /// Ignores it, and so does its child process.
    Stubborn,
}

/// A job's process group. Its processes outlive this value and the runner, as upstream's do.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    number: Pid,
}

impl Group {
    pub(super) fn start(process: JobProcess) -> io::Result<Group> {
        let script = match process {
            JobProcess::Obedient => "sleep 86400 & wait",
            JobProcess::Stubborn => "trap '' TERM; sleep 86400 & wait; wait",
        };
        let leader = Command::new("/bin/sh")
            .args(["-c", script, "job-of-runner-stand-in"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let number = leader.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let number = number.ok_or_else(|| io::Error::other("it has ended already"))?;
        Ok(Group { leader, number })
    }

    /// Sends SIGTERM to the group, and waits for its leader for as long as that takes.
    pub(super) async fn terminate(&mut self) {
        let _ = kill_process_group(self.number, Signal::TERM);
        let _ = self.leader.wait().await;
    }

    /// Ends the process of a finished job.
    pub(super) async fn kill(&mut self) {
        let _ = kill_process_group(self.number, Signal::KILL);
        let _ = self.leader.wait().await;
    }
}
