//! `/proc/PID/stat`, and what follows from it.

use std::{
    fs::{self, File},
    io::Read,
    time::Duration,
};

/// One process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// When it was started, in the kernel's ticks since boot. With the PID this identifies a process.
    pub(super) start_ticks: u64,
    /// The state of its first thread.
    state: u8,
    threads: u32,
}

impl Process {
    /// Time since its start, also while the host was suspended. The kernel reports start times at 100 ticks per second.
    pub(super) fn age(&self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime = Duration::try_from_secs_f64(uptime.split(' ').next()?.parse().ok()?).ok()?;
        Some(uptime.saturating_sub(Duration::from_millis(self.start_ticks.saturating_mul(10))))
    }

    /// The process that has this PID now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        // The kernel returns the whole line at once. All processes of a host are read while its runner is not running, so that further
        // system calls would delay its restart.
        let mut line = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        Self::parse(&String::from_utf8_lossy(line.get(..length)?))
    }

    /// The name in field 2 may contain anything, so that the fields are counted after its last parenthesis.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split_once(' ')?.0.parse().ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the first field after the name is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid,
            parent: field(4)?.parse().ok()?,
            // -1 where the group is in another namespace.
            group: field(5)?.parse().unwrap_or_default(),
            start_ticks: field(22)?.parse().ok()?,
            state: field(3)?.bytes().next()?,
            threads: field(20)?.parse().ok()?,
        })
    }

    /// Identifies it in this boot: PIDs are reused, but not with the same start time.
    pub(super) fn id(&self) -> (u32, u64) {
        (self.pid, self.start_ticks)
    }

    /// Whether all its threads have ended. While other threads run, the first thread of a process can be a zombie.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Whether it was stopped by SIGSTOP or by a debugger.
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

#[cfg(test)]
impl Process {
    pub(super) fn child_of(parent: u32, pid: u32) -> Self {
        Self { pid, parent, group: pid, start_ticks: 1, state: b'S', threads: 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn stat_with_parentheses_in_comm_is_parsed() {
        let fields: Vec<_> = (6..=51).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) S 1 1 (b) S 4 5 {} 10752", fields.join(" "));
        let read = Process::parse(&stat).unwrap();
        assert_eq!((read.pid, read.parent, read.group, read.start_ticks), (17, 4, 5, 22));
        assert_eq!(read.threads, 20);
        assert!(!read.has_ended() && Process { state: b'Z', threads: 1, ..read }.has_ended());
        assert_eq!(Process::parse("17 (x"), None);
    }

    #[test]
    fn process_with_exited_main_thread_is_running() {
        let script = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(60,)).start()\n\
            ctypes.CDLL(None).pthread_exit(None)";
        let python = Command::new("python3").args(["-c", script]).stdin(Stdio::null()).spawn();
        let Ok(mut python) = python else {
            return grit_testkit::not_covered(
                "a process whose first thread has ended",
                "python3 cannot be started",
            );
        };
        let of = || Process::of(python.id()).unwrap();
        while of().state != b'Z' {
            std::thread::yield_now();
        }
        assert!(!of().has_ended(), "{:?}", of());
        let pid = python.id();
        assert!(crate::supervise::process::Identity::of(pid).unwrap().is_alive().unwrap());
        python.kill().unwrap();
        while !Process::of(pid).unwrap().has_ended() {
            std::thread::yield_now();
        }
        python.wait().unwrap();
    }
}
