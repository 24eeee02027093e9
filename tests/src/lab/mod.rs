//! The lab: what stands in for GitLab, GitLab Runner, VMs and the cloud that makes them, with one event log over all.
//!
//! ```no_run
//! use std::time::Duration;
//! # fn main() -> anyhow::Result<()> {
//! let lab = grit_tests::lab::Lab::start()?;
//! lab.queue().submit(4, Duration::from_secs(2));
//! # Ok(()) }
//! ```

pub mod event;
pub mod http;
pub mod queue;
pub mod runner;

use event::EventLog;
use queue::Queue;

/// Everything that a rollout happens to. Servers run on threads of their own, so tests need no async; dropping the lab ends them.
#[derive(Debug)]
pub struct Lab {
    events: EventLog,
    queue: Queue,
    folder: tempfile::TempDir,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Lab {
    /// Starts the servers, on free ports of loopback.
    pub fn start() -> anyhow::Result<Lab> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let events = EventLog::new();
        let queue = Queue::start(runtime.handle(), events.clone())?;
        let folder = tempfile::Builder::new().prefix("grit-lab-").tempdir()?;
        Ok(Lab { events, queue, folder, runtime: Some(runtime) })
    }

    /// What happened so far, in order.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The job queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// A folder of this lab alone, removed with it.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // In the background: a lab may be dropped in async code, where waiting for a runtime panics.
            runtime.shutdown_background();
        }
    }
}
