//! Whether the supervised process is the runner: SIGQUIT goes to this process only. Another program that starts the runner and waits for it chooses the
//! effect of the signal: `su` sends SIGTERM to the runner, a shell exits, `runuser` does nothing. So each such program is refused.

use std::{collections::HashSet, fs, time::Duration};

use super::{list, runner_command, stat::Process};
use crate::supervise::blocking;

/// Timeout of the search. A process whose file system hangs does not show its command line.
const LIMIT: Duration = Duration::from_secs(1);

/// Why this process must not receive SIGQUIT: it is not the runner, and has started a runner. `None` also if that cannot be read.
pub(crate) async fn launcher_fault(child: u32) -> Option<String> {
    blocking::run("launcher", LIMIT, move || Ok(find(child))).await.ok().flatten()
}

fn find(child: u32) -> Option<String> {
    if is_runner(child)? {
        return None;
    }
    let all = list::all();
    let below = list::descendants(&all, &HashSet::from([child]), std::process::id());
    let runner = below.iter().map(|process| process.pid).find(|pid| is_runner(*pid) == Some(true))?;
    let name = Process::of(child)?.name();
    Some(format!(
        "the runner's command is `{name}` (PID {child}), which starts the runner (PID {runner}), but the command must be the runner itself: use \
         `exec` in a script, `setpriv` or User= for another user, and put an init or a launcher of secrets before `grit-wrapper`"
    ))
}

/// `None` if the process has ended, or its command line cannot be read.
fn is_runner(pid: u32) -> Option<bool> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(runner_command::is_runner(&line))
}
