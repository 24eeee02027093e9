//! The status of the runner and its wrapper. All APIs, the metrics, systemd and the commands show this. [`build`] makes it.

mod build;

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{duration, health::Level, visible::visible_line};
use crate::supervise::{Mode, RunnerState, StopOutcome, process};

pub(crate) use self::build::failure;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    pub state: RunnerState,
    pub pid: Option<u32>,
    #[serde(serialize_with = "rfc3339")]
    pub started_at: Option<SystemTime>,
    /// The end of the last runner, while no runner is running.
    pub exit: Option<Exit>,
    /// Empty without a failure. The lines after the first are the last log lines of the runner.
    pub failure_reason: String,
    pub restarts: u32,
    pub crash_loop: bool,
    pub health: HealthStatus,
    pub drain: Option<Drain>,
    /// The drain of an earlier runner.
    pub last_drain: Option<Drain>,
    /// The wrapper exits after the runner.
    pub shutting_down: bool,
    pub wrapper_version: String,
    /// Where the runner is registered.
    pub registrations: Vec<Registration>,
    /// The last log lines are being read, and follow in `failure_reason`.
    #[serde(skip)]
    pub reading_log: bool,
}

/// The answer to a drain.
#[derive(Debug, Serialize)]
pub(crate) struct Drained {
    #[serde(flatten)]
    pub(crate) status: Status,
    pub(crate) joined: bool,
    pub(crate) joined_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exit {
    pub how: How,
    /// The wrapper killed the runner, because it did not exit in time.
    pub killed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Code(i32),
    Signal(i32),
    NeverStarted(bool),
    SpawnError(String),
    Unknown(bool),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HealthStatus {
    pub level: Level,
    /// `None` before the first probe.
    pub level_max: Option<Level>,
    pub reasons: Vec<String>,
    /// The wrapper does not listen on all its addresses.
    #[serde(skip)]
    pub unbound: bool,
    pub runner_version: Option<String>,
    pub runner_revision: Option<String>,
    pub process_state: Option<String>,
    pub sections: Option<u32>,
    pub polling_sections: Option<u32>,
    pub rejected_sections: Option<u32>,
    pub jobs: Option<u32>,
    pub oldest_job: Option<OldestJob>,
    /// Jobs that have ended since the start of the runner's process.
    pub jobs_succeeded: Option<u64>,
    pub jobs_failed: Option<u64>,
    pub concurrent: Option<u64>,
    /// The result of boot-verify.
    pub verified: Option<bool>,
    pub job_router: Option<JobRouter>,
    pub worker_groups: Vec<String>,
    /// The last 2xx response to a job request.
    #[serde(skip)]
    pub last_poll_at: Option<SystemTime>,
}

/// The `[[runners]]` sections of one GitLab instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Registration {
    pub url: String,
    pub system_id: Option<String>,
    pub runner_ids: Vec<u64>,
    pub sections_without_id: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRouter {
    pub circuit_breaker: String,
    pub requests: u64,
    pub fallbacks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OldestJob {
    #[serde(rename = "age_seconds", serialize_with = "seconds")]
    pub age: Duration,
    pub stage: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drain {
    pub id: String,
    pub mode: Mode,
    pub reason: String,
    #[serde(serialize_with = "rfc3339")]
    pub requested_at: Option<SystemTime>,
    pub requested_by: String,
    /// Who made a graceful drain forceful, in the same form; empty if nobody did.
    pub forced_by: String,
    #[serde(serialize_with = "rfc3339")]
    pub deadline: Option<SystemTime>,
    /// The stop signal was sent, so that the drain cannot be cancelled.
    pub signalled: bool,
    #[serde(serialize_with = "outcome_name")]
    pub outcome: Option<StopOutcome>,
    /// Job requests that were open at SIGQUIT or, before it, are open now; `None` if unknown.
    pub open_requests: Option<u32>,
    /// What a graceful drain waits for before SIGQUIT.
    pub waits_for: Option<String>,
    /// Only of an earlier runner.
    pub exit: Option<Exit>,
    /// The deadline of the request, also after the end of the drain.
    #[serde(skip)]
    pub graceful_until: Option<SystemTime>,
    /// While a stop is in progress: its request, its signal, or the end of a job since, whichever was last.
    #[serde(skip)]
    pub progress_at: Option<SystemTime>,
}

/// A job of the runner. Its URL is left out, because it contains the name of a project.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    pub id: Option<u64>,
    pub state: String,
    pub stage: String,
    pub executor_stage: String,
    #[serde(rename = "age_seconds", serialize_with = "seconds")]
    pub age: Duration,
}

/// The oldest jobs first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobList {
    pub jobs: Vec<Job>,
    /// Younger jobs that are left out.
    pub left_out: u32,
}

impl Status {
    /// The runner has exited, or was never started, and is not restarted.
    pub fn is_over(&self) -> bool {
        matches!(self.state, RunnerState::Stopped | RunnerState::Failed)
    }

    /// One line for progress displays and for errors. Its subject is the runner.
    pub fn line(&self) -> String {
        let mut line = format!("is {}", self.state.name());
        if self.state == RunnerState::Running {
            line += &format!(", health level {}", self.health.level.name());
        }
        if let Some(Drain { signalled: false, open_requests: Some(open), .. }) = self.drain {
            line += &format!(", waiting for a gap between job requests ({open} open)");
        }
        if let Some(jobs) = self.health.jobs {
            line += &format!(", {jobs} {}", if jobs == 1 { "job" } else { "jobs" });
        }
        if let Some(oldest) = &self.health.oldest_job {
            line += &format!(", oldest job {} in stage {}", oldest.age_text(), visible_line(&oldest.stage));
        }
        line
    }

    /// The status as a line of JSON.
    pub fn json(&self) -> String {
        json(self)
    }
}

/// A value as a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    // The types here have no maps, and their serialization does not fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{text}\n")
}

impl Exit {
    /// As a shell reports it. `None` without an exit, or where it is unknown.
    pub(crate) fn shell_code(&self) -> Option<u8> {
        let exit = match self.how {
            How::Code(code) => process::Exit::Code(code),
            How::Signal(signal) => process::Exit::Signal(signal),
            How::NeverStarted(_) | How::SpawnError(_) | How::Unknown(_) => return None,
        };
        Some(exit.shell_code())
    }
}

impl OldestJob {
    pub fn age_text(&self) -> String {
        duration::show(Duration::from_secs(self.age.as_secs()))
    }
}

/// A time as text, such as `2023-11-14T22:13:20.5Z`.
pub(crate) fn time_text(time: SystemTime) -> Option<String> {
    OffsetDateTime::from(time).format(&Rfc3339).ok()
}

#[expect(clippy::ref_option, reason = "the signature that serde requires")]
fn rfc3339<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.and_then(time_text).serialize(serializer)
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    duration.as_secs().serialize(serializer)
}

#[expect(clippy::ref_option, reason = "the signature that serde requires")]
fn outcome_name<S: Serializer>(outcome: &Option<StopOutcome>, serializer: S) -> Result<S::Ok, S::Error> {
    outcome.map(StopOutcome::name).serialize(serializer)
}
