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

/// Children in the wrapper's process group, which the wrapper started before an upgrade. No other code waits for them any more.
pub(crate) fn of_earlier_program() -> BTreeSet<u32> {
    let own_group = own_group();
    let is_ours = |pid: &u32| Process::of(*pid).is_some_and(|process| process.group == own_group);
    children().into_iter().filter(is_ours).collect()
}

/// Reaps orphans whenever a child has exited, and children of the [earlier program](of_earlier_program). Returns only when the signal handler ends.
pub(crate) async fn collect(mut child_ended: Signal, mut earlier: BTreeSet<u32>) {
    loop {
        collect_now(&mut earlier);
        sleep(COLLECT_INTERVAL).await;
        if child_ended.recv().await.is_none() {
            return;
        }
    }
}

fn own_group() -> u32 {
    Process::of(std::process::id()).map_or(0, |process| process.group)
}

fn collect_now(earlier: &mut BTreeSet<u32>) {
    let me = std::process::id();
    let own_group = own_group();
    for child in children() {
        let ours = Process::of(child).filter(|process| process.parent == me && process.has_ended());
        // Other children of the wrapper are in its process group, and are reaped by the code that started them.
        if ours.is_some_and(|process| process.group != own_group || earlier.remove(&child))
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
