//! The event log: one list with one writer, so that events have one order.
//!
//! Hosts, runners, the job queue and the cloud record here, in this order. An action of another
//! process is recorded over HTTP *before* the process performs it (a runner reports its exit, waits for the response, and
//! exits), so an effect never precedes its cause in the list.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::queue::Lasts;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Index in the log, from 0 without gaps.
    pub seq: usize,
    /// Time since the log was opened.
    pub at: Duration,
    /// The subject: an instance name, or `queue`, `terraform`, `demo`.
    pub subject: String,
    pub what: What,
}

/// The text of the note before the reset of a host, when its processes still run.
pub const RESET_BEGINS: &str = "the host is being reset";

/// In the log of the host's init, after the process id.
pub const DIED_OF_SIGNAL: &str = "died of signal";

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// An instance was requested; its boot begins.
    InstanceCreated { id: String, version: String },
    /// The host's SSH port is open and its wrapper was started. The runner may not run yet.
    InstanceBooted { ssh: String },
    /// The destruction of the instance was requested. Recorded before any process is killed.
    InstanceTerminating { runner_alive: bool, jobs: usize },
    /// All processes of the host have ended. `lost`: number of jobs that were running.
    InstanceRemoved { lost: usize },
    /// A runner process started.
    RunnerStarted { pid: u32, version: String },
    /// The job queue sent its first 2xx response to a job request of this process.
    RunnerPolling { pid: u32 },
    /// A signal was handled, or dropped (`ignored`), as GitLab Runner may do.
    RunnerSignal { pid: u32, signal: String, jobs: usize, ignored: bool },
    /// The last job has ended. The executors shut down; the process still runs.
    RunnerIdle { pid: u32 },
    /// The process exits now, for this reason.
    RunnerExiting { pid: u32, code: i32, reason: String },
    /// A job was queued.
    JobQueued { job: u64, lasts: Lasts },
    /// A runner started the job.
    JobStarted { job: u64 },
    /// The runner reported success.
    JobFinished { job: u64 },
    /// The job was lost: it was aborted, it failed, or its runner exited.
    JobLost { job: u64, why: String },
    /// GitLab received a job request of the section with this token, and assigned a job to it or none. Recorded after
    /// [`Queue::record_requests`](super::queue::Queue::record_requests) only.
    JobRequestOpened { request: u64, token: String, job: Option<u64> },
    /// GitLab has responded to the request and, if it assigned a job, to the report that the job runs. Or the runner has cancelled the request.
    JobRequestClosed { request: u64, cancelled: bool },
    /// An event of Terraform's JSON output. It comes through a pipe: ordered among themselves, but later than other events.
    Terraform { address: String, action: String, moment: Moment },
    /// A log line of a process of the host (wrapper or runner).
    Log { line: String },
    /// A note of the test.
    Note { text: String },
}

/// The stage of an operation on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    Start,
    Complete,
    Error,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} {:<14} {}", self.at.as_secs_f64(), self.subject, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::InstanceCreated { id, version } => write!(f, "instance created ({id}, runner {version})"),
            What::InstanceBooted { ssh } => write!(f, "instance booted ({ssh})"),
            What::InstanceTerminating { runner_alive: true, jobs } => {
                write!(f, "instance terminating with a live runner and {jobs} jobs")
            }
            What::InstanceTerminating { runner_alive: false, .. } => write!(f, "instance terminating"),
            What::InstanceRemoved { lost: 0 } => write!(f, "instance removed"),
            What::InstanceRemoved { lost } => write!(f, "instance removed, {lost} jobs LOST with it"),
            What::RunnerStarted { pid, version } => write!(f, "runner {version} started (pid {pid})"),
            What::RunnerPolling { .. } => write!(f, "runner takes jobs"),
            What::RunnerSignal { signal, jobs, ignored: false, .. } => {
                write!(f, "{signal} received with {jobs} jobs running")
            }
            What::RunnerSignal { signal, .. } => write!(f, "{signal} dropped"),
            What::RunnerIdle { .. } => write!(f, "last job ended, executors shut down"),
            What::RunnerExiting { code, reason, .. } => write!(f, "runner exits {code}: {reason}"),
            What::JobQueued { job, lasts: Lasts::For(lasts) } => {
                write!(f, "job {job} queued ({:.1} s)", lasts.as_secs_f64())
            }
            What::JobQueued { job, lasts: Lasts::UntilReleased } => write!(f, "job {job} queued (held)"),
            What::JobStarted { job } => write!(f, "job {job} started"),
            What::JobFinished { job } => write!(f, "job {job} finished"),
            What::JobLost { job, why } => write!(f, "job {job} LOST: {why}"),
            What::JobRequestOpened { request, token, job } => {
                write!(f, "job request {request} of {token}: {job:?}")
            }
            What::JobRequestClosed { request, cancelled: false } => write!(f, "job request {request} closed"),
            What::JobRequestClosed { request, .. } => write!(f, "job request {request} CANCELLED"),
            What::Terraform { address, action, moment } => {
                let moment = match moment {
                    Moment::Start => "...",
                    Moment::Complete => ": done",
                    Moment::Error => ": FAILED",
                };
                write!(f, "{action} {address}{moment}")
            }
            What::Log { line } => write!(f, "| {line}"),
            What::Note { text } => write!(f, "{text}"),
        }
    }
}

/// The log. Clones share it.
#[derive(Debug, Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    opened: Instant,
    events: Mutex<Vec<Event>>,
    grown: Condvar,
}

impl EventLog {
    /// An empty log, whose clock starts now.
    #[expect(clippy::new_without_default, reason = "opening a log starts a clock")]
    pub fn new() -> EventLog {
        EventLog {
            shared: Arc::new(Shared {
                opened: Instant::now(),
                events: Mutex::new(Vec::new()),
                grown: Condvar::new(),
            }),
        }
    }

    /// Appends an event, and returns it with its index and time.
    pub fn record(&self, subject: impl Into<String>, what: What) -> Event {
        let mut events = self.lock();
        let event =
            Event { seq: events.len(), at: self.shared.opened.elapsed(), subject: subject.into(), what };
        events.push(event.clone());
        self.shared.grown.notify_all();
        event
    }

    /// Appends a [`What::Note`].
    pub fn note(&self, subject: impl Into<String>, text: impl Into<String>) -> Event {
        self.record(subject, What::Note { text: text.into() })
    }

    /// All events so far.
    pub fn all(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// The signals that the runners of this host handled, or of all hosts, in order: [`EventLog::signalled`].
    #[must_use]
    pub fn signals(&self, host: Option<&str>) -> Vec<String> {
        let signals = self.signalled(0).into_iter();
        signals.filter(|(of, _)| host.is_none_or(|host| of == host)).map(|(_, signal)| signal).collect()
    }

    /// The signals that runners handled from index `from` on, with their hosts, in order. The end or the reset of an instance kills its wrapper, and the
    /// kernel sends SIGQUIT to its runner: signals after it are not counted, before another runner starts.
    #[must_use]
    pub fn signalled(&self, from: usize) -> Vec<(String, String)> {
        let mut ended = HashSet::new();
        let mut signals = Vec::new();
        for event in self.all().into_iter().skip(from) {
            match event.what {
                What::InstanceTerminating { .. } => drop(ended.insert(event.subject)),
                What::Note { text } if text == RESET_BEGINS => drop(ended.insert(event.subject)),
                What::RunnerStarted { .. } => drop(ended.remove(&event.subject)),
                What::RunnerSignal { signal, .. } if !ended.contains(&event.subject) => {
                    signals.push((event.subject, signal));
                }
                _ => {}
            }
        }
        signals
    }

    /// The first matching event.
    pub fn find(&self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        self.lock().iter().find(|event| wanted(event)).cloned()
    }

    /// Waits for the first matching event from index `from` on; `None` after `limit`.
    pub fn wait_from(&self, from: usize, limit: Duration, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let deadline = Instant::now() + limit;
        let mut events = self.lock();
        let mut seen = from;
        loop {
            if let Some(found) = events.iter().skip(seen).find(|event| wanted(event)) {
                return Some(found.clone());
            }
            seen = seen.max(events.len());
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            events = self.shared.grown.wait_timeout(events, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// [`EventLog::wait_from`] the beginning; panics with the whole log after the limit.
    #[track_caller]
    #[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
    pub fn wait_for(&self, what: &str, limit: Duration, wanted: impl Fn(&Event) -> bool) -> Event {
        match self.wait_from(0, limit, wanted) {
            Some(event) => event,
            None => panic!("{what}: not within {limit:?}; the log:\n{self}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.shared.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all().iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}
