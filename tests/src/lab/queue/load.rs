//! Jobs that keep coming.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::Queue;

/// Keeps jobs in the queue until it is dropped: when a job ends, another one is submitted.
#[derive(Debug)]
pub struct Load {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(queue: Queue, jobs: usize, lasts: Duration) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let missing = jobs.saturating_sub(queue.tally().open());
                if missing > 0 {
                    queue.submit(missing, lasts);
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Load {
    /// After this, no job is submitted.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in the thread has been printed.
            let _ = thread.join();
        }
    }
}
