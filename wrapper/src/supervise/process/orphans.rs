//! Reaps orphaned processes whose parent this process has become: processes of an exited runner, and as the first process of a container
//! all orphans there. Without this they would remain as zombies and keep their PIDs.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::{signal::unix::Signal, time::sleep};

use super::stat::Process;

/// Runners that are reaped elsewhere, after their exit was handled.
static HELD: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Many exits are handled together.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);

/// Excludes this child: it is reaped elsewhere.
pub(super) fn hold(pid: u32) {
    held().insert(pid);
}

/// The child was reaped, or is to be reaped here.
pub(super) fn release(pid: u32) {
    held().remove(&pid);
}

fn held() -> MutexGuard<'static, BTreeSet<u32>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of its descendants' orphans.
/// Fails on Linux before 3.4.
pub(crate) fn adopt() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps orphans whenever a child has exited; never returns.
pub(crate) async fn collect(mut child_ended: Signal) {
    loop {
        collect_now();
        sleep(COLLECT_INTERVAL).await;
        if child_ended.recv().await.is_none() {
            return;
        }
    }
}

fn collect_now() {
    let me = std::process::id();
    let own_group = Process::of(me).map_or(0, |process| process.group);
    for child in children() {
        let ours = Process::of(child).filter(|process| process.parent == me && process.has_ended());
        // Other children of the wrapper are in its process group, and are reaped by the code that started them.
        if ours.is_some_and(|process| process.group != own_group)
            && !held().contains(&child)
            && let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw)
        {
            let _collected = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}

/// The children of all threads; the kernel may not provide this list.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let lists: Result<Vec<_>, _> =
        threads.map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
    match lists {
        Ok(lists) => lists
            .iter()
            .flat_map(|list| list.split_ascii_whitespace())
            .filter_map(|pid| pid.parse().ok())
            .collect(),
        Err(_) => super::list::all().iter().map(|process| process.pid).collect(),
    }
}
