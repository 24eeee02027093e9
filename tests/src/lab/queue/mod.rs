//! The job queue: the stand-in for GitLab's runner API.
//!
//! An HTTP server on loopback, in the process of the test. It gives jobs (durations) to runners, and keeps
//! a ledger in which every job counts once: see [`ledger`]. A runner holds a connection open while it runs
//! (`/lab/presence`). When the kernel closes the connection, the process has exited and its running jobs are lost.
//!
//! Faults on request: reject a token with 403, respond late, respond with 503, or close every connection.
//!
//! Paths and codes are GitLab's where GitLab has them:
//!
//! | request | response |
//! | --- | --- |
//! | `POST /api/v4/jobs/request` `{token, system_id, pid, last_update?, two_phase_job_commit}` | 201 with a job, 204, 403; held open while there is no job and `last_update` is the newest (the long poll; the first request is answered at once) |
//! | `PUT /api/v4/jobs/N` `{state: running}` | 200, or 409 when the offer lapsed |
//! | `PUT /api/v4/jobs/N` `{state: success \| failed, failure_reason}` | 200, or 409 |
//! | `GET /lab/jobs/N/released` | 200 once the job may end |
//! | `GET /lab/presence/SYSTEM_ID/PID` | never, while both sides live |
//! | `POST /lab/events` | 200: recorded in the [`EventLog`] |

pub mod ledger;
mod load;
pub(super) mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use ledger::{JobId, JobState, Ledger, RunnerProcess, RunnerStats, Tally};
pub use load::Load;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::event::{EventLog, What};
use crate::poll;

/// The duration of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    For(Duration),
    UntilReleased,
}

/// The fault mode of job requests and reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FaultMode {
    /// Immediate responses.
    #[default]
    Fine,
    /// Each response is delayed by this duration.
    Slow(Duration),
    /// Each response to a job request is delayed by this duration. A job in it is already assigned.
    SlowResponse(Duration),
    /// Every response is 503.
    Unavailable,
    /// Connections are closed without a response. In the metrics of GitLab Runner, their status is -1.
    Down,
}

/// A handle to the queue; clones share it.
#[derive(Debug, Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    events: EventLog,
    books: Mutex<Books>,
    /// Notified when a long poll may have a response.
    news: Notify,
}

#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    lasts: BTreeMap<JobId, Lasts>,
    refused_tokens: BTreeSet<String>,
    paused_tokens: BTreeSet<String>,
    /// Processes whose first successful poll was recorded.
    polling: BTreeSet<RunnerProcess>,
    fault_mode: FaultMode,
    /// Incremented with every submitted job; long polls compare it with the number of their last response.
    generation: u64,
}

impl Queue {
    /// Starts a queue on a free loopback port, served by `runtime`.
    pub fn start(runtime: &tokio::runtime::Handle, events: EventLog) -> anyhow::Result<Queue> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { address, events, books: Mutex::default(), news: Notify::new() });
        let _entered = runtime.enter();
        runtime.spawn(serve::run(tokio::net::TcpListener::from_std(listener)?, Arc::clone(&shared)));
        Ok(Queue { shared })
    }

    /// The URL that a runner's configuration names, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Adds `count` jobs that take `lasts` each.
    pub fn submit(&self, count: usize, lasts: Duration) -> Vec<JobId> {
        self.add(count, Lasts::For(lasts))
    }

    /// Keeps `jobs` jobs open that take `lasts` each, until the result is dropped.
    pub fn load(&self, jobs: usize, lasts: Duration) -> Load {
        Load::start(self.clone(), jobs, lasts)
    }

    /// Adds `count` jobs that run until [`Queue::release`] lets them end: a test that holds the health check needs no timing.
    pub fn submit_held(&self, count: usize) -> Vec<JobId> {
        self.add(count, Lasts::UntilReleased)
    }

    /// Adds jobs until the runner of this host has one that runs until [`Queue::release`] lets it end. The others end. Panics after the limit.
    #[track_caller]
    pub fn hold_on(&self, system_id: &str, limit: Duration) -> Vec<JobId> {
        let runs_there = |job: &JobId| matches!(self.job(*job), Some(JobState::Running { on }) if on.system_id == system_id);
        let mut jobs = Vec::new();
        poll::until(&format!("{system_id} has a job"), limit, || {
            jobs.extend(self.submit_held(1));
            self.wait_until_none_is_queued(limit);
            if jobs.iter().any(runs_there) { Ok(()) } else { Err(self.tally()) }
        });
        let (held, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(runs_there);
        self.release(&others);
        held
    }

    /// Lets jobs of [`Queue::submit_held`] end.
    pub fn release(&self, jobs: &[JobId]) {
        let mut books = self.shared.books();
        for job in jobs {
            books.lasts.insert(*job, Lasts::For(Duration::ZERO));
        }
        self.shared.news.notify_waiters();
    }

    /// Answers 403 to requests with this token from now on.
    pub fn refuse_token(&self, token: &str) {
        self.shared.books().refused_tokens.insert(token.to_owned());
        self.shared.news.notify_waiters();
    }

    /// Reverts [`Queue::refuse_token`].
    pub fn allow_token(&self, token: &str) {
        self.shared.books().refused_tokens.remove(token);
    }

    /// Pauses a runner: its requests are accepted as before, and get no jobs.
    pub fn pause_token(&self, token: &str) {
        self.shared.books().paused_tokens.insert(token.to_owned());
    }

    /// Reverts [`Queue::pause_token`].
    pub fn resume_token(&self, token: &str) {
        self.shared.books().paused_tokens.remove(token);
        self.shared.news.notify_waiters();
    }

    /// Sets the fault mode, also for requests that wait now.
    pub fn set_fault_mode(&self, fault_mode: FaultMode) {
        self.shared.books().fault_mode = fault_mode;
        self.shared.news.notify_waiters();
    }

    /// The number of jobs in each state.
    pub fn tally(&self) -> Tally {
        self.shared.books().ledger.tally()
    }

    /// Statistics of one host; all zero without requests.
    pub fn runner(&self, system_id: &str) -> RunnerStats {
        self.shared.books().ledger.runners().get(system_id).copied().unwrap_or_default()
    }

    /// Statistics of every host that sent requests.
    pub fn runners(&self) -> BTreeMap<String, RunnerStats> {
        self.shared.books().ledger.runners().clone()
    }

    /// The state of one job.
    pub fn job(&self, job: JobId) -> Option<JobState> {
        self.shared.books().ledger.job(job).cloned()
    }

    /// Waits until runners have taken every job. Panics after the limit.
    #[track_caller]
    pub fn wait_until_none_is_queued(&self, limit: Duration) {
        poll::until("every job runs", limit, || {
            let tally = self.tally();
            if tally.queued == 0 { Ok(()) } else { Err(tally) }
        });
    }

    /// Waits until every submitted job is finished or lost. The error has the open jobs.
    pub fn wait_all_ended(&self, limit: Duration) -> Result<Tally, Tally> {
        let deadline = Instant::now() + limit;
        let mut seen = 0;
        loop {
            let tally = self.tally();
            if tally.open() == 0 {
                return Ok(tally);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = self.shared.events.wait_from(seen, left, |event| {
                matches!(event.what, What::JobFinished { .. } | What::JobLost { .. })
            });
            match ended {
                Some(event) => seen = event.seq + 1,
                None => return Err(self.tally()),
            }
        }
    }

    /// Removes a host with all its processes. Returns the number of lost jobs.
    pub fn host_vanished(&self, system_id: &str, why: &str) -> usize {
        self.shared.vanish(|process| process.system_id == system_id, why)
    }

    fn add(&self, count: usize, lasts: Lasts) -> Vec<JobId> {
        let mut books = self.shared.books();
        let ids = (0..count)
            .map(|_| {
                let id = books.ledger.submit();
                books.lasts.insert(id, lasts);
                self.shared.events.record("queue", What::JobQueued { job: id, lasts });
                id
            })
            .collect();
        books.generation += 1;
        self.shared.news.notify_waiters();
        ids
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vanish(&self, gone: impl Fn(&RunnerProcess) -> bool, why: &str) -> usize {
        let mut books = self.books();
        let lost = books.ledger.vanish(gone, why);
        for (job, system_id) in &lost {
            self.events.record(system_id, What::JobLost { job: *job, why: why.to_owned() });
        }
        // Offers may have been withdrawn.
        books.generation += 1;
        self.news.notify_waiters();
        lost.len()
    }
}
