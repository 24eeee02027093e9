//! Whether the runner is the supervised process, so that SIGQUIT reaches it.
//!
//! SIGQUIT goes to the child only. If the command is another program, which starts the runner and waits for it, the signal has the effect that
//! this program chooses: `su` sends SIGTERM to the runner, a shell exits, `runuser` does nothing.

use std::{fmt, fs, time::Duration};

use super::{list, runner_command, stat::Process};
use crate::supervise::blocking;

/// Programs that pass SIGQUIT on to the program that they start. `launchers` in the tests of the wrapper tries each of them.
pub(super) const PASS_ON: [&str; 4] = ["sudo", "tini", "dumb-init", "catatonit"];

/// Timeout of the search. A process whose file system hangs does not show its command line.
const LIMIT: Duration = Duration::from_secs(1);

/// A process between the wrapper and the runner that does not pass SIGQUIT on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    name: String,
    pid: u32,
    runner: u32,
}

/// The launcher of the runner that descends from this child. `None` if the child is the runner, passes SIGQUIT on to the runner, or has not started
/// a runner.
///
/// The names of the child and of the processes between it and the runner are those of the operator's command. A job cannot be one of them, because
/// the search ends at the runner.
pub(crate) async fn launcher_of(child: u32) -> Option<Launcher> {
    blocking::run("launcher", LIMIT, move || Ok(find(child))).await.ok().flatten()
}

fn find(child: u32) -> Option<Launcher> {
    if is_runner(child)? {
        return None;
    }
    let all = list::all();
    let mut paths = vec![vec![child]];
    while let Some(path) = paths.pop() {
        for process in all.iter().filter(|process| path.last() == Some(&process.parent)) {
            if is_runner(process.pid) == Some(true) {
                return path.iter().find_map(|pid| Launcher::of(*pid, process.pid));
            }
            paths.push([&path[..], &[process.pid]].concat());
        }
    }
    None
}

/// `None` if the process has ended, or its command line cannot be read.
fn is_runner(pid: u32) -> Option<bool> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(runner_command::is_runner(&line))
}

impl Launcher {
    /// `None` if the process passes SIGQUIT on, or has ended.
    fn of(pid: u32, runner: u32) -> Option<Self> {
        let name = Process::of(pid)?.name();
        (!PASS_ON.contains(&name.as_str())).then_some(Self { name, pid, runner })
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, pid, runner } = self;
        write!(
            f,
            "the runner's command starts the runner (PID {runner}) through `{name}` (PID {pid}), and `{name}` does not pass SIGQUIT on: \
             a drain would have no effect or would abort jobs. Use `exec` in a script, `setpriv` or `sudo -u` instead of `su` or \
             `runuser`, or User= in the unit"
        )
    }
}
