//! The processes of this host: their parents, commands and environment.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Read as _,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use super::{command_line::CommandLine, inspect::inspect, runner_command, stat::Process};

impl Process {
    /// Its program name without arguments, which may contain secrets. Blocks while the process does not respond.
    pub(super) fn command(&self) -> String {
        let line = read(self.pid, "cmdline");
        let word = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        if !word.is_empty() {
            return word.chars().take(100).collect();
        }
        self.name()
    }

    /// Whether it is `gitlab-runner run`. Blocks while the process does not respond.
    pub(super) fn is_runner(&self) -> bool {
        runner_command::is_runner(&read(self.pid, "cmdline"))
    }

    /// The kernel's name of it, in brackets as in `ps`. Never blocks.
    pub(super) fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        format!("[{}]", name.trim_end())
    }

    /// Whether a variable of its initial environment has this value in its comma-separated list. Blocks while the process does not respond.
    pub(super) fn has_in_environment(&self, name: &str, value: &str) -> bool {
        let environment = read(self.pid, "environ");
        environment.split(|byte| *byte == 0).any(|entry| {
            let list = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            list.is_some_and(|list| list.split(|byte| *byte == b',').any(|item| item == value.as_bytes()))
        })
    }
}

/// The processes that run this command, according to their arguments, and are not in a container. Without those that do not respond.
pub(crate) async fn running(command: &CommandLine, program: &Path) -> Vec<u32> {
    let words = |name: &OsStr| {
        let words = std::iter::once(name).chain(command.args.iter().map(OsString::as_os_str));
        words.flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>()
    };
    let (by_name, by_path) = (words(&command.name), words(program.as_os_str()));
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace("self");
    let is_same = move |process: &Process| {
        // Empty for a process that has ended.
        let line = read(process.pid, "cmdline");
        // The command line of a script begins with its interpreter and at most one argument. The command line of a wrapper of the same
        // command has more.
        let is_script = || {
            let before = line.strip_suffix(by_path.as_slice()).filter(|before| before.ends_with(b"\0"));
            before.is_some_and(|before| before.split_inclusive(|byte| *byte == 0).count() <= 2)
        };
        (line == by_name || line == by_path || is_script())
            && namespace(&process.pid.to_string()).is_none_or(|theirs| Some(theirs) == ours)
    };
    let me = std::process::id();
    let others: Vec<_> = all().into_iter().filter(|process| process.pid != me).collect();
    let pids: Vec<_> = others.iter().map(|process| process.pid).collect();
    let same = inspect(others, is_same).await;
    pids.into_iter().zip(same).filter(|(_, same)| *same == Some(true)).map(|(pid, _)| pid).collect()
}

pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// A file of a process; empty if this user cannot read it.
fn read(pid: u32, file: &str) -> Vec<u8> {
    #[cfg(test)]
    unresponsive::wait_for(pid);
    let mut content = Vec::with_capacity(4096);
    // `take`, because a `File` asks for its size first. The kernel does not know it, and the files of all processes are read before a
    // runner starts.
    let read = File::open(format!("/proc/{pid}/{file}"))
        .and_then(|file| file.take(u64::MAX).read_to_end(&mut content));
    if read.is_ok() { content } else { Vec::new() }
}

/// The descendants of `roots`, including `roots`, without `me` and its ancestors.
pub(super) fn descendants<'a>(all: &'a [Process], roots: &HashSet<u32>, me: u32) -> Vec<&'a Process> {
    let mut above = HashSet::from([me]);
    let mut found = roots.clone();
    // Each round adds a generation, because the list has no reliable order.
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

/// A stand-in for processes that hang in a file system, which tests cannot have.
#[cfg(test)]
pub(crate) mod unresponsive {
    use std::sync::{Condvar, Mutex};

    static PIDS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    static CHANGED: Condvar = Condvar::new();

    pub(super) fn wait_for(pid: u32) {
        drop(CHANGED.wait_while(PIDS.lock().unwrap(), |pids| pids.contains(&pid)).unwrap());
    }

    /// Whether the kernel holds back the memory of this process.
    pub(crate) fn set(pid: u32, hangs: bool) {
        let mut pids = PIDS.lock().unwrap();
        pids.retain(|other| *other != pid);
        pids.extend(hangs.then_some(pid));
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_exclude_own_process_in_any_order() {
        // 1 - 10 (root) - 11 - 12, and 11 - 20 (me) - 21; 30 is unrelated.
        let all = [(12, 11), (21, 20), (30, 1), (20, 11), (11, 10), (10, 1), (1, 0)]
            .map(|(pid, parent)| Process::child_of(parent, pid));
        let found = |roots: &[u32]| {
            let found = descendants(&all, &roots.iter().copied().collect(), 20);
            let mut found: Vec<_> = found.iter().map(|process| process.pid).collect();
            found.sort_unstable();
            found
        };
        // Ancestors of the wrapper are excluded, and so are their other descendants.
        assert_eq!(found(&[10]), Vec::<u32>::new());
        assert_eq!(found(&[12, 21]), [12, 21]);
        assert_eq!(found(&[30]), [30]);
        assert_eq!(found(&[]), Vec::<u32>::new());
    }

    #[test]
    fn environment_variable_list_contains_value() {
        let mut child = std::process::Command::new("sleep").arg("1000").env("GRIT_X", "a,b").spawn().unwrap();
        let found = Process::of(child.id()).unwrap();
        // During exec a process briefly has no environment.
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
