//! A booted systemd: PID 1 in separate namespaces, with a copy-on-write copy of this machine's root file system, or of another one. Installed
//! and written files are removed with it. It shares the machine's network, so that it reaches the servers of tests on loopback.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::geteuid;

use super::succeeded;
use crate::lab::host::procs;

/// Limit of a boot, which normally takes a fraction of a second.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// A booted system. Dropping it ends every process in it.
#[derive(Debug)]
pub struct System {
    /// Runs until its standard input is closed.
    script: Child,
    /// The PID of its first process, seen from outside.
    init: u32,
    folder: tempfile::TempDir,
}

impl System {
    /// Boots a system. It needs root, and a kernel and a systemd that support namespaces; the error names what is missing.
    pub fn boot() -> anyhow::Result<Self> {
        if !Path::new("/lib/systemd/systemd").is_file() {
            bail!("there is no systemd on this machine");
        }
        super::is_debian()?;
        Self::boot_from(Path::new("/"))
    }

    /// Boots a copy of another root file system.
    pub fn boot_from(root: &Path) -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            bail!("only root may boot a systemd");
        }
        let folder = tempfile::Builder::new().prefix("boot-").tempdir()?;
        let log = folder.path().join("log");
        let system = folder.path().join("system");
        fs::create_dir(&system).context("make a folder for it")?;
        let said = File::create(&log).context("make its log")?;
        let script = Command::new("unshare")
            .args(["--mount", "sh", "-c", include_str!("boot.sh"), "boot.sh"])
            .args([&system, root])
            .stdin(Stdio::piped())
            .stdout(said.try_clone().context("make its log")?)
            .stderr(said)
            .spawn()
            .context("start unshare")?;
        let mut booted = Self { script, init: 0, folder };
        booted.wait_boot()?;
        Ok(booted)
    }

    /// Reboots it as `systemctl reboot` does, and waits until it runs. All that was in `/run` and `/tmp` is gone.
    pub fn reboot(&mut self) -> anyhow::Result<()> {
        self.succeeds(&["systemctl", "reboot"])?;
        let stdin = self.script.stdin.as_mut().context("its script has no standard input")?;
        stdin.write_all(b"reboot\n").context("ask its script")?;
        self.wait_boot()
    }

    fn wait_boot(&mut self) -> anyhow::Result<()> {
        let limit = Instant::now() + BOOT_LIMIT;
        let earlier = self.init;
        let log = self.folder.path().join("log");
        let said = || fs::read_to_string(&log).unwrap_or_default();
        loop {
            if let Some(status) = self.script.try_wait().context("look after it")? {
                bail!("it did not boot: {status}: {}", said());
            }
            if self.is_up(earlier) {
                return Ok(());
            }
            if Instant::now() > limit {
                bail!("it did not boot within {BOOT_LIMIT:?}: {}", said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_up(&mut self, earlier: u32) -> bool {
        let mut below = procs::descendants(self.script.id()).into_iter();
        let is_new = |process: &procs::Process| process.program == "systemd" && process.pid != earlier;
        let Some(init) = below.find(is_new) else { return false };
        self.init = init.pid;
        self.run(&["systemctl", "is-system-running"])
            .is_ok_and(|output| output.stdout.starts_with(b"running"))
    }

    /// The PID of its first process, seen from outside.
    #[must_use]
    pub fn init(&self) -> u32 {
        self.init
    }

    /// A path in the system, seen from outside.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.init.to_string()).join("root").join(path.trim_start_matches('/'))
    }

    /// Runs a command in the system, and waits for its end.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        self.command(words).output().context("start nsenter")
    }

    /// Runs a command in the system that must succeed, and returns its trimmed stdout.
    pub fn succeeds(&self, words: &[&str]) -> anyhow::Result<String> {
        Ok(succeeded(&mut self.command(words))?.trim().to_owned())
    }

    /// A command that runs in the system for at most 90 s.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        // Without a limit, a failed test would wait forever for a command that waits for the test.
        command.args(["--all", "--target", &self.init.to_string(), "--", "timeout", "90"]);
        command.args(words).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        command
    }
}

impl Drop for System {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        // It can only fail if the child was reaped elsewhere.
        let _ = self.script.wait();
    }
}
