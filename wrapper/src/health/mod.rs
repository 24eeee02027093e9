//! Whether the runner is of use: a ladder of four rungs, each of which says more than the one below.
//!
//! | rung | what holds |
//! | --- | --- |
//! | process | it has lived for a while, is not on its way out, and was not restarted just now |
//! | ready | its configuration has runners, and it says that it is ready (`/health/ready`, else its process state, else its metrics) |
//! | polling | GitLab answered the job requests of every `[[runners]]` section with a 2xx |
//!
//! [`prober`] asks the runner from time to time and publishes a [`Health`]; [`ladder`] decides on what it found and is pure. Nothing here
//! changes what the supervisor does: health is told, not acted upon.
//!
//! What cannot be known is said to be unknown: a count of jobs that is absent is not zero, and zero jobs is not the runner's end.

mod config;
mod exposition;
mod http;
mod jobs;
mod ladder;
mod prober;
mod read;

use std::time::Duration;

use tokio::time::Instant;

pub use self::{
    config::{ConfigError, RunnerConfig, Section, Source},
    jobs::Job,
    prober::{Prober, Settings},
};

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Not even the process can be relied on.
    #[default]
    None,
    Process,
    Ready,
    Polling,
}

impl Level {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
        }
    }
}

/// What is known about the runner beyond its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub level: Level,
    /// The highest rung on which this runner can be seen at all; `None` before the first probe.
    pub goal: Level,
    /// Why the next rung is not reached, for people.
    pub reasons: Vec<String>,
    /// What the runner says its version is.
    pub version: Option<String>,
    pub revision: Option<String>,
    /// What the runner says it is doing, from 19.1 on.
    pub process_state: Option<String>,
    /// `[[runners]]` sections of its configuration, and how many of them poll.
    pub sections: Option<usize>,
    pub polling_sections: Option<usize>,
    /// Jobs that run now; `None` when the runner does not say.
    pub jobs: Option<usize>,
    /// The job that has run longest, when the runner lists its jobs and has one.
    pub oldest: Option<Oldest>,
    /// When the jobs were last seen to become fewer; `None` when that was not seen of this runner.
    pub fewer_jobs: Option<Instant>,
    /// When GitLab was last seen to have answered a job request well, whichever section's; `None` when that was not seen of this runner.
    pub last_poll: Option<Instant>,
}

/// The job that has run longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oldest {
    pub age: Duration,
    pub stage: String,
}
