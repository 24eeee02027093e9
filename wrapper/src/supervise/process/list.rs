//! Processes as `/proc` shows them: their parents, groups and environment.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
};

use super::{CommandLine, Exit};

/// One process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// When it was made, in the kernel's ticks since boot: with the number it names one process.
    pub(super) start_ticks: u64,
    pub(super) zombie: bool,
    /// The exit status as `wait` gives it. 0 for a process that runs, and where this user may not read it.
    status: i32,
}

impl Process {
    /// The process that has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads `/proc/PID/stat`. The name in field 2 may hold anything, so counting starts behind its last parenthesis.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and what follows the name is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid,
            parent: field(4)?.parse().ok()?,
            // -1 where the group is in another namespace.
            group: field(5)?.parse().unwrap_or_default(),
            start_ticks: field(22)?.parse().ok()?,
            zombie: matches!(field(3), Some("Z" | "X")),
            status: field(52).and_then(|status| status.parse().ok()).unwrap_or_default(),
        })
    }

    /// How a zombie ended, if this user may read it.
    pub(super) fn exit(&self) -> Option<Exit> {
        match (self.zombie, self.status) {
            (false, _) => None,
            // Who may not read the status is shown this, too.
            (true, 0) => may_read_status(self.pid).then_some(Exit::Code(0)),
            (true, status) if status & 0x7f == 0 => Some(Exit::Code((status >> 8) & 0xff)),
            (true, status) => Some(Exit::Signal(status & 0x7f)),
        }
    }

    /// Its program as it calls itself, without arguments, which may hold secrets.
    pub(super) fn command(&self) -> String {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let word = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        if !word.is_empty() {
            return word.chars().take(100).collect();
        }
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        format!("[{}]", name.trim_end())
    }

    /// Whether a variable of its environment, as it was when its program was started, has this value in a list with commas.
    pub(super) fn has_in_environment(&self, name: &str, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| {
            let list = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            list.is_some_and(|list| list.split(|byte| *byte == b',').any(|item| item == value.as_bytes()))
        })
    }
}

/// The processes that run this command, as far as their words tell, and are not in a container.
pub(crate) fn running(command: &CommandLine) -> Vec<u32> {
    let words = |name: &OsStr| {
        let words = std::iter::once(name).chain(command.args.iter().map(OsString::as_os_str));
        words.flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>()
    };
    let (by_name, by_path) = (words(&command.name), words(command.program.as_os_str()));
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace("self");
    let is_same = |process: &Process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        // A script is run by its interpreter, whose words come first.
        let is_script =
            || line.strip_suffix(by_path.as_slice()).is_some_and(|before| before.ends_with(b"\0"));
        (line == by_name || line == by_path || is_script())
            && namespace(&process.pid.to_string()).is_none_or(|theirs| Some(theirs) == ours)
    };
    let me = std::process::id();
    let found = all().into_iter().filter(|process| process.pid != me && !process.zombie && is_same(process));
    found.map(|process| process.pid).collect()
}

/// Whether the kernel shows us the exit status of this process: with `CAP_SYS_PTRACE`, or as the user and group that it has and had.
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

/// All processes that can be seen from here.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers =
        entries.filter(|entry| entry.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit));
    numbers.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Those that descend from one of `roots`, themselves included, and neither `me` nor one that `me` descends from.
pub(super) fn descendants<'a>(all: &'a [Process], roots: &HashSet<u32>, me: u32) -> Vec<&'a Process> {
    let mut above = HashSet::from([me]);
    let mut found = roots.clone();
    // Each round adds a generation; the list is in no order that could be relied on.
    loop {
        let before = above.len();
        above.extend(
            all.iter()
                .filter(|process| above.contains(&process.pid))
                .map(|process| process.parent)
                .collect::<Vec<_>>(),
        );
        if above.len() == before {
            break;
        }
    }
    loop {
        let before = found.len();
        let children =
            all.iter().filter(|process| found.contains(&process.parent) && !above.contains(&process.parent));
        found.extend(children.map(|process| process.pid).collect::<Vec<_>>());
        if found.len() == before {
            break;
        }
    }
    all.iter().filter(|process| found.contains(&process.pid) && !above.contains(&process.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Process {
        Process { pid, parent, group: pid, start_ticks: 1, zombie: false, status: 0 }
    }

    #[test]
    fn stat_with_parentheses_in_comm_is_parsed() {
        let fields: Vec<_> = (6..=51).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) S 1 1 (b) Z 4 5 {} 10752", fields.join(" "));
        let read = Process::parse(&stat).unwrap();
        assert_eq!((read.pid, read.parent, read.group, read.start_ticks, read.zombie), (17, 4, 5, 22, true));
        assert_eq!(read.exit(), Some(Exit::Code(42)));
        assert_eq!(Process { status: 9, ..read }.exit(), Some(Exit::Signal(9)));
        assert_eq!(Process { zombie: false, ..read }.exit(), None);
        assert_eq!(Process::parse("17 (x"), None);
    }

    #[test]
    fn descendants_exclude_own_process_in_any_order() {
        // 1 - 10 (root) - 11 - 12, and 11 - 20 (me) - 21; 30 is another's.
        let all = [(12, 11), (21, 20), (30, 1), (20, 11), (11, 10), (10, 1), (1, 0)]
            .map(|(pid, parent)| process(pid, parent));
        let found = |roots: &[u32]| {
            let found = descendants(&all, &roots.iter().copied().collect(), 20);
            let mut found: Vec<_> = found.iter().map(|process| process.pid).collect();
            found.sort_unstable();
            found
        };
        // Ancestors of the wrapper are left alone, and so is what descends from them by another way.
        assert_eq!(found(&[10]), Vec::<u32>::new());
        assert_eq!(found(&[12, 21]), [12, 21]);
        assert_eq!(found(&[30]), [30]);
        assert_eq!(found(&[]), Vec::<u32>::new());
    }

    #[test]
    fn zombie_exit_status_is_read() {
        for (script, exit) in
            [("exit 42", Exit::Code(42)), ("exit 0", Exit::Code(0)), ("kill -9 $$", Exit::Signal(9))]
        {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let ended = || Process::of(child.id()).unwrap().exit();
            while ended().is_none() {
                std::thread::yield_now();
            }
            assert_eq!(ended(), Some(exit), "{script}");
            child.wait().unwrap();
        }
    }

    #[test]
    fn environment_variable_list_contains_value() {
        let mut child = std::process::Command::new("sleep").arg("1000").env("GRIT_X", "a,b").spawn().unwrap();
        let found = Process::of(child.id()).unwrap();
        // For a moment in the middle of exec a process shows no environment.
        while !found.has_in_environment("GRIT_X", "a") {
            std::thread::yield_now();
        }
        assert!(found.has_in_environment("GRIT_X", "b"));
        assert!(!found.has_in_environment("GRIT_X", "a,b") && !found.has_in_environment("GRIT_", "a"));
        assert_eq!(found.command(), "sleep");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
