//! Reaps orphaned processes whose parent this process has become: processes of an exited runner, and as the first process of a container
//! all orphans there. Without this they would remain as zombies and keep their PIDs.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::{signal::unix::Signal, time::sleep};

use super::stat::Process;

/// The runner, which is reaped elsewhere after its exit was handled.
static RUNNER: AtomicU32 = AtomicU32::new(0);

/// Many exits are handled together.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);

/// Excludes this child, the runner: it is reaped elsewhere.
pub(in crate::supervise) fn exclude(pid: u32) {
    RUNNER.store(pid, Ordering::Relaxed);
}

/// The runner was reaped, or is to be reaped here.
pub(in crate::supervise) fn include(pid: u32) {
    let _another = RUNNER.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Makes this process the parent of its descendants' orphans.
/// Fails on Linux before 3.4.
pub(crate) fn become_parent() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps orphans whenever a child has exited. Returns only when the signal handler ends.
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
        // Other children of the wrapper are in its process group, and are reaped by the code that started them.
        let is_orphan = Process::of(child)
            .is_some_and(|process| process.parent == me && process.has_ended() && process.group != own_group);
        if is_orphan
            && RUNNER.load(Ordering::Relaxed) != child
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
