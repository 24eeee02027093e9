//! Looks at processes that may not respond.
//!
//! The kernel reads the command line and the environment of a process from its memory, and waits while another system call of the process
//! has locked that: for a process that maps a file of a dead file server, until the server responds. The supervisor must not wait for that,
//! so that a thread reads them. A process that does not respond in time is skipped until it does.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tracing::{debug, warn};

use super::stat::Process;
use crate::supervise::{blocking, log_key as key};

/// How long the search waits for one process. Others need microseconds, but a busy host may not run the thread for a while.
const PROCESS_LIMIT: Duration = Duration::from_millis(250);

/// How many processes a search waits for. The next search skips them, and comes further.
const MAX_STALLS: usize = 4;

/// The time for a search on a slow host, which looks at one process after the other.
const SEARCH_LIMIT: Duration = Duration::from_secs(5);

/// A thread waits for each of them. With more, no process is looked at.
const MAX_UNRESPONSIVE: usize = 100;

/// The processes for which a thread is still waiting. Locked after [`Progress`].
static UNRESPONSIVE: Mutex<BTreeSet<(u32, u64)>> = Mutex::new(BTreeSet::new());

struct Search<T, F> {
    processes: Vec<Process>,
    look: F,
    progress: Mutex<Progress<T>>,
}

struct Progress<T> {
    /// The number of the thread that continues. Others end after their current process.
    thread: usize,
    /// The index of the next process, and of the one that the thread looks at.
    next: usize,
    looking: Option<usize>,
    results: Vec<Option<T>>,
}

/// The result of `look`, which may block, for each of `processes`; `None` for one that does not respond, and for those that the search did not
/// reach within [`SEARCH_LIMIT`].
///
/// Cancel safe: when the future is dropped, the search ends after the current process.
pub(super) async fn inspect<T, F>(processes: Vec<Process>, look: F) -> Vec<Option<T>>
where
    T: Send + 'static,
    F: Fn(&Process) -> T + Send + Sync + 'static,
{
    if processes.is_empty() {
        return Vec::new();
    }
    let results = processes.iter().map(|_| None).collect();
    let progress = Mutex::new(Progress { thread: 0, next: 0, looking: None, results });
    let search = Arc::new(Search { processes, look, progress });
    let end = EndOfSearch(&search);
    let until = Instant::now() + SEARCH_LIMIT;
    for thread in 0..=MAX_STALLS {
        if lock(&UNRESPONSIVE).len() >= MAX_UNRESPONSIVE {
            break;
        }
        let for_thread = Arc::clone(&search);
        let finished = match blocking::start("processes", move || for_thread.run(thread)) {
            Ok(finished) => finished,
            // The caller reports that its search is incomplete.
            Err(error) => {
                debug!({ key::ERROR } = %error, "cannot start the thread that searches for processes");
                break;
            }
        };
        if !search.stalls(finished, until).await {
            break;
        }
    }
    end.results()
}

impl<T, F: Fn(&Process) -> T> Search<T, F> {
    fn run(&self, thread: usize) {
        while let Some(index) = self.next(thread) {
            let Some(process) = self.processes.get(index) else { return };
            let result = (self.look)(process);
            let mut progress = lock(&self.progress);
            lock(&UNRESPONSIVE).remove(&process.id());
            if let Some(place) = progress.results.get_mut(index) {
                *place = Some(result);
            }
            if progress.thread == thread {
                progress.looking = None;
            }
        }
    }
}

impl<T, F> Search<T, F> {
    /// The next process that responded so far.
    fn next(&self, thread: usize) -> Option<usize> {
        let mut progress = lock(&self.progress);
        if progress.thread != thread {
            return None;
        }
        let unresponsive = lock(&UNRESPONSIVE);
        let mut rest = self.processes.iter().enumerate().skip(progress.next);
        let (index, _) = rest.find(|(_, process)| !unresponsive.contains(&process.id()))?;
        progress.next = index + 1;
        progress.looking = Some(index);
        Some(index)
    }

    /// Waits until the thread has finished. `true` if a process does not respond, and the others need another thread.
    async fn stalls(&self, mut finished: oneshot::Receiver<()>, until: Instant) -> bool {
        loop {
            let before = lock(&self.progress).looking;
            if timeout(PROCESS_LIMIT, &mut finished).await.is_ok() || Instant::now() >= until {
                return false;
            }
            let mut progress = lock(&self.progress);
            if let Some(process) = progress
                .looking
                .filter(|_| progress.looking == before)
                .and_then(|index| self.processes.get(index))
            {
                progress.give_up(process);
                warn!(
                    { key::PID } = process.pid,
                    "a process of this host does not respond, possibly because of its file system; searching \
                     for the runner's processes without its environment"
                );
                return true;
            }
        }
    }
}

impl<T> Progress<T> {
    /// The thread that looks at this process ends when the process responds.
    fn give_up(&mut self, process: &Process) {
        lock(&UNRESPONSIVE).insert(process.id());
        self.looking = None;
        self.thread += 1;
    }
}

/// Ends the search when it is dropped.
struct EndOfSearch<'a, T, F>(&'a Search<T, F>);

impl<T, F> EndOfSearch<'_, T, F> {
    fn results(self) -> Vec<Option<T>> {
        mem::take(&mut lock(&self.0.progress).results)
    }
}

impl<T, F> Drop for EndOfSearch<'_, T, F> {
    fn drop(&mut self) {
        let mut progress = lock(&self.0.progress);
        progress.thread = usize::MAX;
        if let Some(process) = progress.looking.take().and_then(|index| self.0.processes.get(index)) {
            // Until the thread has looked at it.
            lock(&UNRESPONSIVE).insert(process.id());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn processes(pids: std::ops::Range<u32>) -> Vec<Process> {
        pids.map(|pid| Process::child_of(1, pid)).collect()
    }

    #[tokio::test]
    async fn process_that_does_not_respond_is_skipped_until_it_does() {
        let (release, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let mut expected: Vec<_> = (4_000_001..4_000_201).map(Some).collect();
        expected[100] = None;
        let held = Arc::new(held);
        let others = async {
            loop {
                let held = Arc::clone(&held);
                let search = inspect(processes(4_000_001..4_000_201), move |process| {
                    if process.pid == 4_000_101 {
                        let _released = lock(&held).recv();
                    }
                    process.pid
                });
                // On a busy host another process may be skipped, too.
                if search.await == expected {
                    break;
                }
            }
        };
        timeout(Duration::from_secs(60), others).await.unwrap();

        // No thread waits for it again.
        let found = inspect(processes(4_000_101..4_000_102), |_| panic!("not skipped")).await;
        assert_eq!(found, [None::<u32>]);

        drop(release);
        let all = async {
            loop {
                let found = inspect(processes(4_000_101..4_000_102), |process| process.pid).await;
                if found == [Some(4_000_101)] {
                    break;
                }
            }
        };
        timeout(Duration::from_secs(60), all).await.unwrap();
    }

    #[tokio::test]
    async fn search_ends_although_no_process_responds() {
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let waiting = Arc::clone(&held);
        let search = inspect(processes(4_100_001..4_100_801), move |_| {
            let _released = lock(&waiting).recv();
        });
        let found = timeout(Duration::from_secs(60), search).await.unwrap();
        assert!(found.len() == 800 && found.iter().all(Option::is_none));
        drop(release);
    }
}
