//! The processes of this host: their parents, commands and environment.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Read as _,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use super::{
    command_line::CommandLine,
    identity::{Identity, Origin},
    inspect::inspect,
    marker::{Marker, STATE_FILE_VARIABLE, VARIABLE},
    runner_command,
    stat::Process,
};

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
        let mut lists = variable(&environment, name);
        lists.any(|list| list.split(|byte| *byte == b',').any(|item| item == value.as_bytes()))
    }
}

/// The processes that run this command, according to their arguments, and are not in a container. Without those that do not respond.
pub(crate) async fn running(command: &CommandLine, program: &Path) -> Vec<u32> {
    let command = Arguments::of(command, Some(program));
    search(move |process| command.are_of(&read(process.pid, "cmdline")).then_some(process.pid)).await
}

/// A runner whose wrapper is running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supervised {
    pub(crate) runner: u32,
    pub(crate) wrapper: u32,
}

/// The running runners of this user that lost their wrapper, which had this state file. `program`: of the command, if it was found.
/// Without processes that do not respond. The error is a runner with this state file that has not lost its wrapper.
pub(crate) async fn orphaned(
    state_file: &Path,
    command: &CommandLine,
    program: Option<&Path>,
) -> Result<Vec<Identity>, Supervised> {
    let arguments = Arguments::of(command, program);
    let words = command.words();
    let state_file = state_file.to_owned();
    let user = rustix::process::geteuid().as_raw();
    let started = move |process: &Process| {
        let line = read(process.pid, "cmdline");
        // The processes of its jobs have the same environment.
        let is_runner = arguments.are_of(&line) || runner_command::is_runner(&line);
        if !is_runner || fs::metadata(format!("/proc/{}", process.pid)).ok()?.uid() != user {
            return None;
        }
        let environment = read(process.pid, "environ");
        let value = |name| variable(&environment, name).next();
        let is_ours = value(STATE_FILE_VARIABLE)? == state_file.as_os_str().as_bytes();
        let marker = Marker::of_value(str::from_utf8(value(VARIABLE)?).ok()?)?;
        let origin = Origin { marker, command: words.clone(), seen: Vec::new(), log: None };
        let mut identity = Identity::of(process.pid).ok()?;
        identity.origin = Some(origin);
        (is_ours && identity.start_ticks() == process.start_ticks).then_some((process.parent, identity))
    };
    let started = search(started).await;
    let is_wrapper =
        |pid| Process::of(pid).is_some_and(|parent| !parent.is_ending() && parent.name() == WRAPPER_NAME);
    if let Some((wrapper, runner)) = started.iter().find(|(parent, _)| is_wrapper(*parent)) {
        return Err(Supervised { runner: runner.pid, wrapper: *wrapper });
    }
    let pids: HashSet<_> = started.iter().map(|(_, runner)| runner.pid).collect();
    // A command like `tini -- gitlab-runner run` is supervised, and not its child.
    let runners = started.into_iter().filter(|(parent, _)| !pids.contains(parent));
    Ok(runners.map(|(_, runner)| runner).collect())
}

/// The kernel's name of a wrapper.
const WRAPPER_NAME: &str = "[grit-wrapper]";

/// The command line of a process that runs a command.
struct Arguments {
    by_name: Vec<u8>,
    by_path: Option<Vec<u8>>,
}

impl Arguments {
    fn of(command: &CommandLine, program: Option<&Path>) -> Self {
        let words = |name: &OsStr| {
            let words = std::iter::once(name).chain(command.args.iter().map(OsString::as_os_str));
            words.flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect()
        };
        Self { by_name: words(&command.name), by_path: program.map(|program| words(program.as_os_str())) }
    }

    /// `line` is empty for a process that has ended.
    fn are_of(&self, line: &[u8]) -> bool {
        // The command line of a script begins with its interpreter and at most one argument. The command line of a wrapper of the same
        // command has more.
        let is_script = |path: &[u8]| {
            let before = line.strip_suffix(path).filter(|before| before.ends_with(b"\0"));
            before.is_some_and(|before| before.split_inclusive(|byte| *byte == 0).count() <= 2)
        };
        line == self.by_name || self.by_path.as_deref().is_some_and(|path| line == path || is_script(path))
    }
}

/// The results for the other processes of this PID namespace. Without those that do not respond.
async fn search<T: Send + 'static>(look: impl Fn(&Process) -> Option<T> + Send + Sync + 'static) -> Vec<T> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace("self");
    let look = move |process: &Process| {
        let theirs = || namespace(&process.pid.to_string());
        look(process).filter(|_| theirs().is_none_or(|theirs| Some(theirs) == ours))
    };
    let me = std::process::id();
    let others = all().into_iter().filter(|process| process.pid != me).collect();
    inspect(others, look).await.into_iter().flatten().flatten().collect()
}

pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The values of a variable in an environment as the kernel shows it.
fn variable<'a>(environment: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let entries = environment.split(|byte| *byte == 0);
    entries.filter_map(move |entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
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
