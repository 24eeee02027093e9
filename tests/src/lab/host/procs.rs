//! The process tree of a host, read from `/proc`.

use std::{fs, path::PathBuf};

/// A running process. A zombie is not one, unless only its main thread has exited: then its other threads still run, hold its files, and are
/// the parents of its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// File name of its executable, or the first 15 bytes of its name if that is unreadable.
    pub program: String,
}

/// The running descendants of `root`, without `root` itself.
pub fn descendants(root: u32) -> Vec<Process> {
    let all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses can contain parentheses and spaces; the fields after the last parenthesis are regular.
    let (name, rest) = stat.rsplit_once(')')?;
    let (_, name) = name.split_once('(')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, "Z" | "X") && !has_other_threads(pid) {
        return None;
    }
    // An exiting process frees its memory, and with it the name of its executable, before it closes its files: it still
    // exists, with its locks and sockets.
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_else(|_| PathBuf::from(name));
    let program = exe.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Some(Process { pid, parent, program })
}

/// Whether threads beside the first one are listed. The kernel ends the threads of a killed process in any order.
fn has_other_threads(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_exclude_exited_processes() {
        let mut shell =
            Command::new("sh").args(["-c", "sleep 60 & wait"]).stdin(Stdio::null()).spawn().unwrap();
        let sleeper = crate::poll::until("the sleeper runs", std::time::Duration::from_secs(10), || {
            let found = descendants(std::process::id());
            found.iter().find(|process| process.parent == shell.id()).map(|found| found.pid).ok_or(found)
        });
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(sleeper.cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        shell.kill().unwrap();
        // Not reaped yet: a zombie counts as exited.
        crate::poll::until("both are gone", std::time::Duration::from_secs(10), || {
            let found = descendants(std::process::id());
            match found.iter().any(|process| process.pid == shell.id() || process.pid == sleeper) {
                false => Ok(()),
                true => Err(found),
            }
        });
        shell.wait().unwrap();
    }

    #[test]
    fn process_with_exited_main_thread_is_alive() {
        let script = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(60,)).start()\n\
            ctypes.CDLL(None).pthread_exit(None)";
        let mut python = Command::new("python3").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        crate::poll::until("its first thread has ended", std::time::Duration::from_secs(30), || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", python.id())).unwrap();
            if stat.contains(") Z ") { Ok(()) } else { Err(stat) }
        });
        assert!(read(python.id()).is_some());
        python.kill().unwrap();
        crate::poll::until("all of it has ended", std::time::Duration::from_secs(10), || {
            read(python.id()).map_or(Ok(()), Err)
        });
        python.wait().unwrap();
    }
}
