//! Identifies a process uniquely.

use std::{fmt, fs, io, os::unix::fs::MetadataExt, sync::OnceLock};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde::{Deserialize, Serialize};

use super::stat::Process;

/// A unique process: PIDs are reused, but not with the same start time in the same boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Start time in kernel ticks since boot. Exec does not change it.
    start_ticks: u64,
    /// Boot id of these ticks.
    boot: String,
    /// Present for a runner that a wrapper of this release started.
    #[serde(default)]
    pub origin: Option<Origin>,
}

/// Values that a wrapper assigned to a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The command line configured in the wrapper.
    pub command: Vec<String>,
    /// PIDs and start times of its processes at the time of SIGTERM.
    #[serde(default)]
    pub seen: Vec<(u32, u64)>,
    /// The name of its cgroup below the wrapper's.
    pub cgroup: Option<String>,
}

/// A program file, identified by device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of the process with this PID now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let process = Process::of(pid).ok_or(io::ErrorKind::NotFound)?;
        let start_ticks = process.start_ticks;
        Ok(Self { pid, start_ticks, boot: boot_id()?, origin: None })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.start_ticks, &self.boot) == (other.pid, other.start_ticks, &other.boot)
    }

    pub(super) fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Whether it is from this boot, so that some of its processes may still be running.
    pub(super) fn is_of_this_boot(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
    }

    /// Whether the process with this PID is this process, and is running.
    /// Fails if this cannot be read, for example because `/proc` is mounted with `hidepid`: the process may be running.
    pub fn is_alive(&self) -> io::Result<bool> {
        if boot_id()? != self.boot {
            return Ok(false);
        }
        if let Some(now) = Process::of(self.pid) {
            return Ok(now.start_ticks == self.start_ticks && !now.has_ended());
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match pid.map(test_kill_process) {
            None | Some(Err(Errno::SRCH)) => Ok(false),
            // With EPERM it exists, too.
            Some(Ok(()) | Err(_)) => Err(io::Error::other(format!(
                "process {} exists, but /proc/{0}/stat cannot be read, so it is unknown whether it is the runner",
                self.pid
            ))),
        }
    }
}

impl Program {
    /// The program of a process, even if its file was replaced.
    /// Fails if the process does not exist, or belongs to another user.
    pub fn of(pid: u32) -> io::Result<Self> {
        let file = fs::metadata(format!("/proc/{pid}/exe"))?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }
}

/// The unique id of this boot.
pub(crate) fn boot_id() -> io::Result<String> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot.clone());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(BOOT.get_or_init(|| boot).clone())
}

/// Without its origin.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.start_ticks)
    }
}

/// Start time of a process in Unix seconds, as in the metric `process_start_time_seconds` of Prometheus' client libraries: both use the
/// kernel's current boot time, so a clock change affects both.
pub(crate) fn started_at(pid: u32) -> Option<f64> {
    /// The kernel's unit in `/proc`, on all architectures that Linux supports today.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let ticks = Process::of(pid)?.start_ticks;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a century have 39 bits")]
    let since_boot = ticks as f64 / TICKS_PER_SECOND;
    Some(boot + since_boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_start_time_is_in_the_past() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = started_at(std::process::id()).unwrap();
        assert!((now - 3600.0..now + 2.0).contains(&started), "{started} and {now}");
        assert_eq!(started_at(u32::MAX), None);
    }

    #[test]
    fn identity_needs_same_start_time_and_boot() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        assert!(!Identity { start_ticks: me.start_ticks + 1, ..me.clone() }.is_alive().unwrap());
        assert!(!Identity { boot: "another".to_owned(), ..me }.is_alive().unwrap());
        assert_eq!(Program::of(std::process::id()).unwrap(), Program::of(std::process::id()).unwrap());
        assert!(Identity::of(u32::MAX).is_err());
    }
}
