//! Collecting ended processes that are ours by inheritance: those of a runner whose parent has gone, and as the first process of a
//! container those of everybody there. Uncollected, each would keep its number as a zombie.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::{signal::unix::Signal, time::sleep};

use super::stat::Process;

/// Runners that are collected elsewhere, when their end was dealt with.
static HELD: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A crowd of ends is dealt with at once.
const PAUSE: Duration = Duration::from_millis(100);

/// From now on this child is collected by somebody else.
pub(super) fn hold(pid: u32) {
    held().insert(pid);
}

/// That was done, or is left to us.
pub(super) fn release(pid: u32) {
    held().remove(&pid);
}

fn held() -> MutexGuard<'static, BTreeSet<u32>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the kernel for the orphans of our descendants.
///
/// # Errors
///
/// When the kernel does not know how: before Linux 3.4.
pub(crate) fn adopt() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Collects them, whenever a child has ended.
pub(crate) async fn collect(mut child_ended: Signal) {
    loop {
        collect_now();
        sleep(PAUSE).await;
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
        // What we started for ourselves is in our group, and collected by whoever started it.
        if ours.is_some_and(|process| process.group != own_group)
            && !held().contains(&child)
            && let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw)
        {
            let _collected = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}

/// The children of each of our threads, or of nobody knows which one where the kernel does not list them.
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
