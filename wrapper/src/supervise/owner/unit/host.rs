//! What a unit needs of its host: the kernel, systemd, and two small files.

use std::{fs, future::Future, io, os::fd::OwnedFd, path::Path, process::Stdio, time::Duration};

use rustix::process::pidfd_send_signal;
use tokio::{io::unix::AsyncFd, process::Command, time::timeout};

use crate::supervise::process::{self, BootId, Identity, Signal, ignore_esrch, launcher_fault, pidfd};

/// The host of a unit: [`Linux`], or a simulation.
pub trait Host: Send + Sync + 'static {
    /// One process, never another one with its PID.
    type Process: Send + Sync + 'static;

    /// The process with this PID.
    fn hold(&self, pid: u32) -> io::Result<Self::Process>;

    /// The process with this identity; `None` if it has exited.
    fn hold_same(&self, identity: &Identity) -> io::Result<Option<Self::Process>>;

    fn has_exited(&self, process: &Self::Process) -> bool;

    /// Returns when it has exited. Cancel safe.
    fn exited(&self, process: &Self::Process) -> impl Future<Output = ()> + Send;

    /// Sends the signal. A process that has exited is no error. SIGQUIT also fails if the process is not the runner.
    fn signal(
        &self,
        pid: u32,
        process: &Self::Process,
        signal: Signal,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// The identity of a running process.
    fn identity(&self, pid: u32) -> io::Result<Identity>;

    fn boot_id(&self) -> io::Result<BootId>;

    /// The time since the start of a process.
    fn age(&self, pid: u32) -> Duration;

    /// Whether the process is still systemd's, and becomes the main process of the unit soon.
    fn is_before_exec(&self, pid: u32) -> bool;

    /// The output of `systemctl`. The error has its message.
    fn systemctl(&self, words: &[&str], limit: Duration) -> impl Future<Output = io::Result<String>> + Send;

    fn exists(&self, file: &Path) -> bool;

    /// Creates an empty file, and its directory.
    fn create(&self, file: &Path) -> io::Result<()>;

    fn remove(&self, file: &Path) -> io::Result<()>;

    /// The content of a file; `None` if it cannot be read.
    fn read(&self, file: &Path) -> Option<Vec<u8>>;
}

/// This host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Host for Linux {
    type Process = AsyncFd<OwnedFd>;

    fn hold(&self, pid: u32) -> io::Result<Self::Process> {
        pidfd::hold(pid).map(|(_, pidfd)| pidfd)
    }

    fn hold_same(&self, identity: &Identity) -> io::Result<Option<Self::Process>> {
        Ok(pidfd::hold_same(identity)?.map(|(_, pidfd)| pidfd))
    }

    fn has_exited(&self, process: &Self::Process) -> bool {
        pidfd::has_exited(process)
    }

    async fn exited(&self, process: &Self::Process) {
        pidfd::exited(process, || pidfd::has_exited(process)).await;
    }

    async fn signal(&self, pid: u32, process: &Self::Process, signal: Signal) -> io::Result<()> {
        if signal == Signal::Drain
            && let Some(fault) = launcher_fault(pid).await
        {
            return Err(io::Error::other(fault));
        }
        ignore_esrch(pidfd_send_signal(process, signal.number()))
    }

    fn identity(&self, pid: u32) -> io::Result<Identity> {
        Identity::of(pid)
    }

    fn boot_id(&self) -> io::Result<BootId> {
        process::boot_id()
    }

    fn age(&self, pid: u32) -> Duration {
        process::age(pid)
    }

    fn is_before_exec(&self, pid: u32) -> bool {
        let file = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let exe = file(pid);
        exe.is_none() || exe == file(1) || exe.is_some_and(|exe| exe.ends_with("systemd-executor"))
    }

    /// Through `systemctl`, which as root needs neither D-Bus nor polkit.
    async fn systemctl(&self, words: &[&str], limit: Duration) -> io::Result<String> {
        let mut command = Command::new("systemctl");
        command
            .args(words)
            .env("LC_ALL", "C")
            .env("SYSTEMD_COLORS", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let failed = |why: &str| io::Error::other(format!("systemctl {}: {}", words[0], why.trim()));
        let output = match timeout(limit, command.output()).await {
            Ok(output) => output.map_err(|error| failed(&error.to_string()))?,
            Err(_) => {
                let error = failed("systemd does not respond").to_string();
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
        };
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(failed(&format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))),
        }
    }

    fn exists(&self, file: &Path) -> bool {
        file.exists()
    }

    fn create(&self, file: &Path) -> io::Result<()> {
        fs::create_dir_all(file.with_file_name(""))?;
        fs::write(file, "")
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        fs::read(file).ok()
    }
}
