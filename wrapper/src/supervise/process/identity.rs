//! Identifies a process uniquely.

use std::{fmt, fs, io, str::FromStr, sync::OnceLock, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde::{Deserialize, Serialize};

use super::stat::Process;

/// A unique process: PIDs are reused, but not with the same start time in the same boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Start time in kernel ticks since boot. Exec does not change it.
    pub start_ticks: u64,
    /// Boot id of these ticks.
    pub boot: BootId,
}

/// The random UUID of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(u128);

impl Identity {
    /// The identity of the process with this PID now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let process = Process::of(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, start_ticks: process.start_ticks, boot: boot_id()? })
    }

    /// The identity of a process that has exited, from its PID and the time from this boot to its start.
    pub fn of_exited(pid: u32, start: Duration, boot: BootId) -> Self {
        let start_ticks = u64::try_from(start.as_millis()).unwrap_or(u64::MAX) / 10;
        Self { pid, start_ticks, boot }
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
            // With EPERM, the process also exists.
            Some(Ok(()) | Err(_)) => Err(io::Error::other(format!(
                "process {} exists, but /proc/{0}/stat cannot be read, so the wrapper cannot determine whether this process is the \
                 runner",
                self.pid
            ))),
        }
    }
}

/// The id of this boot.
pub(crate) fn boot_id() -> io::Result<BootId> {
    static BOOT: OnceLock<BootId> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(*boot);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().parse()?;
    Ok(*BOOT.get_or_init(|| boot))
}

impl FromStr for BootId {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let digits = text.replace('-', "");
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
        number.map(Self).ok_or_else(|| io::Error::other(format!("invalid boot id {text:?}")))
    }
}

impl TryFrom<String> for BootId {
    type Error = io::Error;

    fn try_from(text: String) -> io::Result<Self> {
        text.parse()
    }
}

impl From<BootId> for String {
    fn from(boot: BootId) -> Self {
        boot.to_string()
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.start_ticks)
    }
}

/// The age of a process; zero if it does not exist.
pub(crate) fn age(pid: u32) -> Duration {
    Process::of(pid).and_then(|process| process.age()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_needs_same_start_time_and_boot() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        assert!(!Identity { start_ticks: me.start_ticks + 1, ..me }.is_alive().unwrap());
        assert!(!Identity { boot: BootId(1), ..me }.is_alive().unwrap());
        assert_eq!(me.boot.to_string().parse::<BootId>().unwrap(), me.boot);
        assert!(Identity::of(u32::MAX).is_err());
    }
}
