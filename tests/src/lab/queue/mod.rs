//! The job queue: the stand-in for GitLab's runner API.
//!
//! An HTTP server on loopback, in the process of the test. It gives jobs (durations) to runners, and keeps
//! a ledger in which every job counts once: see [`ledger`]. A runner holds a connection open while it runs
//! (`/lab/presence`). When the kernel closes the connection, the process has exited and its jobs are lost.
//!
//! It has these properties of GitLab (Rails behind Workhorse):
//!
//! - A job is assigned when its request is handled, before the response is sent. A client that disconnects meanwhile does not return the
//!   job to the queue: no runner runs it, and GitLab shows it as running. [`Queue::lost`] lists these jobs. With
//!   [`Queue::set_two_phase_commit`], which is off as in GitLab, the job returns to the queue.
//! - Each response follows after a latency of 50 to 300 ms from a seeded generator: [`Queue::set_latency`].
//! - Long polling: a request with the newest `last_update` is held for up to 50 s, and gets no job, also if one is queued meanwhile. The
//!   runner gets it by the next request, which is handled when it arrives: [`Queue::set_long_polling`], with a variant that is worse.
//!
//! It does not have GitLab's tags, and has one project with its runners: every runner can get every job, in the order of the queue, except those of
//! [`Queue::hold_on`]. A change that can concern one runner ends the wait of all of them.
//!
//! Faults on request: reject a token with 403, respond with 503, or close every connection.
//!
//! Paths and codes are GitLab's where GitLab has them:
//!
//! | request | response |
//! | --- | --- |
//! | `POST /api/v4/jobs/request` `{info, token, system_id, pid, last_update?}` | 201 with a job, 204, 403 |
//! | `PUT /api/v4/jobs/N` `{state: running}` | 200, or 409 when the job is not assigned to this process |
//! | `PUT /api/v4/jobs/N` `{state: success \| failed, failure_reason}` | 200, or 409 |
//! | `GET /api/v4/runners/…`, `POST /api/v4/projects/…` | a runner, its managers and jobs, and their end: see `api.rs` |
//! | `GET /lab/jobs/N/released` | 200 once the job may end |
//! | `GET /lab/presence/SYSTEM_ID/PID` | never, while both sides live |
//! | `POST /lab/events` | 200: recorded in the [`EventLog`] |

mod api;
pub mod ledger;
mod load;
pub(super) mod serve;
mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use api::Access;
pub use ledger::{JobId, JobState, Ledger, LostJob, RunnerProcess, RunnerStats, Tally};
pub use load::Load;
use serde::{Deserialize, Serialize};
pub use settings::LongPolling;
use settings::Settings;
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
    #[default]
    Fine,
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
    settings: Settings,
    /// `last_update`: incremented with every change that can give a runner a job, or can take its right to jobs.
    generation: u64,
    /// Job requests that are held.
    held: usize,
    /// The ids of runner configurations, by their tokens.
    runner_ids: BTreeMap<String, u64>,
    /// The runner configuration that a job was assigned to.
    runner_of: BTreeMap<JobId, u64>,
    /// When GitLab has received the last request of each manager, as a count of requests, by the runner configuration and the system id.
    contacts: BTreeMap<(u64, String), u64>,
    requests_ever: u64,
    /// The jobs that were assigned to a runner that can end them gracefully.
    graceful: BTreeSet<JobId>,
    /// The jobs of a project that the user of no token can see.
    hidden: BTreeSet<JobId>,
    api_tokens: BTreeMap<String, Access>,
    /// The number of further requests with a token that are not answered by 429, if they are limited.
    api_limit: Option<usize>,
    /// The number of recorded job requests, if they are recorded.
    recorded_requests: Option<u64>,
    /// The recorded request that a job was assigned to, until the runner has reported that the job runs.
    request_of: BTreeMap<JobId, u64>,
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
        self.shared.url()
    }

    /// The `id` of the runner configuration with this token. It exists from the first call or job request on.
    pub fn runner_id(&self, token: &str) -> u64 {
        self.shared.books().runner_id(token)
    }

    /// Accepts a token for GitLab's API.
    pub fn add_api_token(&self, token: &str, access: Access) {
        self.shared.books().api_tokens.insert(token.to_owned(), access);
    }

    /// Answers 429 to all requests with a token for GitLab's API, after so many from now on. `None`: to no request.
    pub fn limit_api(&self, after: Option<usize>) {
        self.shared.books().api_limit = after;
    }

    /// Moves jobs to a project in which the user of each token is less than a Reporter.
    pub fn hide(&self, jobs: &[JobId]) {
        self.shared.books().hidden.extend(jobs);
    }

    /// Adds `count` jobs that take `lasts` each.
    pub fn submit(&self, count: usize, lasts: Duration) -> Vec<JobId> {
        self.add(count, Lasts::For(lasts), None)
    }

    /// Keeps `jobs` jobs open that take `lasts` each, until the result is dropped.
    pub fn load(&self, jobs: usize, lasts: Duration) -> Load {
        Load::start(self.clone(), jobs, lasts)
    }

    /// Adds `count` jobs that run until [`Queue::release`] lets them end: a test that holds the health check needs no timing.
    pub fn submit_held(&self, count: usize) -> Vec<JobId> {
        self.add(count, Lasts::UntilReleased, None)
    }

    /// Adds a job for the runner of each of these hosts that runs until [`Queue::release`] lets it end, and waits until all of them run. Panics
    /// after the limit.
    #[track_caller]
    pub fn hold_on(&self, hosts: &[&str], limit: Duration) -> Vec<JobId> {
        let jobs: Vec<_> =
            hosts.iter().flat_map(|host| self.add(1, Lasts::UntilReleased, Some(host))).collect();
        poll::until(&format!("a job runs on each of {hosts:?}"), limit, || {
            let is_running = |job: &JobId| matches!(self.job(*job), Some(JobState::Running { .. }));
            if jobs.iter().all(is_running) { Ok(()) } else { Err(self.tally()) }
        });
        jobs
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
        self.shared.change(|books| books.refused_tokens.insert(token.to_owned()));
    }

    /// Reverts [`Queue::refuse_token`].
    pub fn allow_token(&self, token: &str) {
        self.shared.change(|books| books.refused_tokens.remove(token));
    }

    /// Pauses a runner: its requests are accepted as before, and get no jobs.
    pub fn pause_token(&self, token: &str) {
        self.shared.change(|books| books.paused_tokens.insert(token.to_owned()));
    }

    /// Reverts [`Queue::pause_token`].
    pub fn resume_token(&self, token: &str) {
        self.shared.change(|books| books.paused_tokens.remove(token));
    }

    /// Sets the time between the handling of a request of GitLab's API and its response, for requests from now on.
    pub fn set_latency(&self, latency: RangeInclusive<Duration>) {
        self.shared.books().settings.set_latency(latency);
    }

    /// Sets what becomes of job requests without news, for requests from now on.
    pub fn set_long_polling(&self, long_polling: LongPolling) {
        self.shared.books().settings.long_polling = long_polling;
    }

    /// Sets whether GitLab supports the two-phase job commit: a runner of 18.5 or newer then confirms each job, and GitLab assigns it only by that.
    pub fn set_two_phase_commit(&self, two_phase_commit: bool) {
        self.shared.books().settings.two_phase_commit = two_phase_commit;
    }

    /// Records each job request from now on.
    pub fn record_requests(&self) {
        self.shared.books().recorded_requests.get_or_insert(0);
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

    /// All jobs that GitLab shows as running on a runner manager that is gone.
    pub fn lost(&self) -> Vec<LostJob> {
        self.shared.books().ledger.lost()
    }

    /// Statistics of one host; all zero without requests.
    pub fn runner(&self, system_id: &str) -> RunnerStats {
        self.shared.books().ledger.runner(system_id)
    }

    /// The number of job requests that GitLab holds now.
    pub fn held_requests(&self) -> usize {
        self.shared.books().held
    }

    /// The state of one job.
    pub fn job(&self, job: JobId) -> Option<JobState> {
        self.shared.books().ledger.job(job).cloned()
    }

    /// Waits until every open job runs. Panics after the limit.
    #[track_caller]
    pub fn wait_until_none_waits(&self, limit: Duration) {
        poll::until("every job runs", limit, || {
            let tally = self.tally();
            if tally.queued + tally.assigned == 0 { Ok(()) } else { Err(tally) }
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

    fn add(&self, count: usize, lasts: Lasts, only_on: Option<&str>) -> Vec<JobId> {
        self.shared.change(|books| {
            (0..count)
                .map(|_| {
                    let id = books.ledger.submit(only_on);
                    books.lasts.insert(id, lasts);
                    self.shared.events.record("queue", What::JobQueued { job: id, lasts });
                    id
                })
                .collect()
        })
    }
}

impl Books {
    fn runner_id(&mut self, token: &str) -> u64 {
        let next = 1000 + self.runner_ids.len() as u64;
        *self.runner_ids.entry(token.to_owned()).or_insert(next)
    }

    /// A request of this manager is handled.
    fn contacted(&mut self, runner: u64, system_id: &str) {
        self.requests_ever += 1;
        self.contacts.insert((runner, system_id.to_owned()), self.requests_ever);
    }

    /// Counts a request with a token. Returns whether there were too many.
    fn is_limited(&mut self) -> bool {
        let is_limited = self.api_limit == Some(0);
        self.api_limit = self.api_limit.map(|left| left.saturating_sub(1));
        is_limited
    }
}

impl Shared {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a change that ends the wait of held requests.
    fn change<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.books();
        let changed = change(&mut books);
        books.generation += 1;
        self.news.notify_waiters();
        changed
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vanish(&self, gone: impl Fn(&RunnerProcess) -> bool, why: &str) -> usize {
        // Offers may be withdrawn.
        self.change(|books| {
            let lost = books.ledger.vanish(gone);
            for job in &lost {
                let before = if job.was_running { "" } else { "it was assigned and never started; " };
                let why = format!("{before}{why}");
                self.events.record(&job.on.system_id, What::JobLost { job: job.id, why });
            }
            lost.len()
        })
    }
}
