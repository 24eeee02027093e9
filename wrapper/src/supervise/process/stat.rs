//! `/proc/PID/stat`, and what follows from it.

use std::{
    fs::{self, File},
    io::Read,
    time::Duration,
};

use super::exit::Exit;

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
    /// The exit status as `wait` returns it. 0 for a running process, and where this user may not read it.
    status: i32,
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
            status: field(52).and_then(|status| status.parse().ok()).unwrap_or_default(),
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

    /// How the process with this PID and start time ended. `None` while it is running, after its parent has reaped it, and where this user may not
    /// read it.
    pub(super) fn exit_of(pid: u32, start_ticks: u64) -> Option<Exit> {
        // Read first: its parent may reap the process between the two.
        let may_read = may_read_status(pid);
        Self::of(pid).filter(|process| process.start_ticks == start_ticks)?.exit(may_read)
    }

    fn exit(&self, may_read: bool) -> Option<Exit> {
        match (self.has_ended(), self.status) {
            (false, _) => None,
            // The kernel also shows 0 to users who may not read the status.
            (true, 0) => may_read.then_some(Exit::Code(0)),
            (true, status) if status & 0x7f == 0 => Some(Exit::Code((status >> 8) & 0xff)),
            (true, status) => Some(Exit::Signal(status & 0x7f)),
        }
    }
}

/// Whether this process can read the exit status of `pid`: with `CAP_SYS_PTRACE`, or as its user and group.
fn may_read_status(pid: u32) -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = |who: &str| fs::read_to_string(format!("/proc/{who}/status")).unwrap_or_default();
    let line = |status: &str, name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|rest| rest.trim().to_owned())
            .unwrap_or_default()
    };
    let capabilities = u64::from_str_radix(&line(&status("self"), "CapEff:"), 16).unwrap_or_default();
    let all_are = |name: &str, id: u32| {
        let ids = line(&status(&pid.to_string()), name);
        !ids.is_empty() && ids.split_ascii_whitespace().all(|found| found == id.to_string())
    };
    capabilities & CAP_SYS_PTRACE != 0
        || (all_are("Uid:", rustix::process::geteuid().as_raw())
            && all_are("Gid:", rustix::process::getegid().as_raw()))
}

#[cfg(test)]
impl Process {
    pub(super) fn child_of(parent: u32, pid: u32) -> Self {
        Self { pid, parent, group: pid, start_ticks: 1, state: b'S', threads: 1, status: 0 }
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
        let ended = Process { state: b'Z', threads: 1, ..read };
        assert_eq!(ended.exit(true), Some(Exit::Code(42)));
        assert_eq!(Process { status: 9, ..ended }.exit(true), Some(Exit::Signal(9)));
        assert_eq!(read.exit(true), None);
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
        assert!(!of().has_ended() && of().exit(true).is_none(), "{:?}", of());
        let pid = python.id();
        assert!(crate::supervise::process::Identity::of(pid).unwrap().is_alive().unwrap());
        python.kill().unwrap();
        while !Process::of(pid).unwrap().has_ended() {
            std::thread::yield_now();
        }
        python.wait().unwrap();
    }

    #[test]
    fn zombie_exit_status_is_read() {
        for (script, exit) in
            [("exit 42", Exit::Code(42)), ("exit 0", Exit::Code(0)), ("kill -9 $$", Exit::Signal(9))]
        {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let start_ticks = Process::of(child.id()).unwrap().start_ticks;
            let ended = || Process::exit_of(child.id(), start_ticks);
            while ended().is_none() {
                std::thread::yield_now();
            }
            assert_eq!(ended(), Some(exit), "{script}");
            assert_eq!(Process::exit_of(child.id(), start_ticks + 1), None);
            child.wait().unwrap();
        }
    }
}
